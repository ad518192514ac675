"""Twenty tabs with the same run open, each a session of its own."""

from __future__ import annotations

from playwright.sync_api import expect

from recon_core.store import RunState, RunStore

TABS = 20


def test_twenty_tabs_follow_a_run_to_its_end(dashboard, visit) -> None:
    run = RunStore(dashboard.store).create("train", {"data": {"n": 3}}, name="watched")
    with run.writer() as writer:
        writer.start(200)
        writer.progress(50, "at a quarter", force=True)
        first = visit(f"{dashboard.url}/?run={run.id}", width=800, height=600)
        pages = [first, *(first.context.new_page() for _ in range(TABS - 1))]
        for page in pages[1:]:
            page.goto(first.url, wait_until="commit")  # all at once
        for step, message in ((50, "at a quarter"), (100, "half way"), (150, "nearly there")):
            writer.progress(step, message, force=True)
            for page in pages:
                expect(page.get_by_text(message)).to_be_visible()
        writer.finish(RunState.DONE, {}, "it is over")
    for page in pages:
        expect(page.get_by_text("it is over").first).to_be_visible()
        expect(page.locator(".stMarkdownBadge", has_text="done").first).to_be_visible()
    assert "Traceback" not in dashboard.log.read_text()
