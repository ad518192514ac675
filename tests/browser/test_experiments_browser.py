"""The strip and the Experiments page, seen in a browser."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from recon_core.kinds import perform
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.signals import StopFlag
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore
from tests.browser.pages import assert_readable, click, settle
from tests.processes import wait_for
from tests.runs.match_runs import MNIST, leaking_run, train_run

TRAIN = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [30, 30], "init_scale": 0.1},
    "training": {"recipe": "flow", "target_loss": 1e-3},
}


def test_the_strip_follows_the_queue_and_moves_it(dashboard, visit, monkeypatch) -> None:
    monkeypatch.setenv("AFTERIMAGE_SLOTS", "1")
    store = RunStore(dashboard.store)
    gate = dashboard.gates.close("train")
    page = visit(f"{dashboard.url}/Glossary")
    strip = page.get_by_test_id("stSidebar")
    expect(strip.get_by_text("Nothing is running.")).to_be_visible()
    names = ("first", "second", "third")
    runs = [store.create("train", TRAIN, name=name) for name in names]
    with monkeypatch.context() as held:  # the page itself sees to it that somebody hands them out, with its gates
        held.setattr(queue, "ensure_scheduler", lambda root: None)
        for run in runs:
            queue.submit(run)
    page.reload()
    gate.wait()
    expect(strip.get_by_text("2 waiting")).to_be_visible()
    expect(strip.get_by_text("waits for a free slot")).to_have_count(2)
    strip.get_by_role("button", name="Move up").last.click()
    wait_for(lambda: queue.waiting(store).index(runs[2].id) < queue.waiting(store).index(runs[1].id))
    strip.get_by_role("button", name="Stop").first.click()
    wait_for(lambda: runs[0].status().state is RunState.CANCELLED)
    gate.wait(2)
    expect(strip.get_by_text("1 waiting")).to_be_visible()
    for run in runs[1:]:
        run.request_cancel()
    expect(strip.get_by_text("Nothing is running.")).to_be_visible()


def test_an_experiment_is_found_opened_and_its_link_outlives_it(dashboard, visit) -> None:
    store = RunStore(dashboard.store)
    model = train_run(store, MNIST)
    match = create_match(store, MatchConfig(runs=(leaking_run(store, model).id,)))
    assert perform(match, StopFlag()) is RunState.DONE
    page = visit(f"{dashboard.url}/Experiments", scheme="dark")
    card = page.get_by_role("button", name="MNIST, 6 images, width 8", exact=True)
    expect(card).to_be_visible()
    expect(page.get_by_text("4 of 6 reconstructed")).to_be_visible()
    pairs = page.get_by_role("group", name=re.compile("^Best pairs of MNIST"))
    expect(pairs).to_be_visible()
    expect(pairs.get_by_role("button", name=re.compile(r"^training image \d, SSIM"))).to_have_count(6)
    assert_readable(page, 5)
    click(page, card)
    expect(page).to_have_url(re.compile(f"experiment={model.id}"))
    expect(page.get_by_role("heading", name="Matchings")).to_be_visible()
    assert_readable(page, 5, pale=lambda text: text.text == "Save")  # nothing to save yet
    store.rename(model.id, "Renamed")
    page.reload()
    expect(page.get_by_role("heading", name="Renamed", exact=True)).to_be_visible()
    settle(page)
    store.delete(model.id, with_dependents=True)
    page.reload()
    expect(page.get_by_text("is not in the store any more")).to_be_visible()
