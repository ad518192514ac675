"""The home page as a person sees it, in a real browser."""

from __future__ import annotations

import re
import zipfile

import pytest
from playwright.sync_api import Page, expect

from recon_core.store import RunState, RunStore
from tests.browser.pages import assert_readable, click, cut_off, evaluate, settle

MARKUP = "<b>x</b> **bold** :red[y] $z^2$"


def fill(store: RunStore) -> None:
    """A run in every state that a page can meet while nobody works."""
    store.create("train", {}, name="waiting")
    for state in (RunState.DONE, RunState.CANCELLED, RunState.FAILED, RunState.INTERRUPTED):
        with store.create("train", {"data": {"note": MARKUP}}, name=f"{state} {MARKUP}").writer() as writer:
            writer.start(10)
            writer.log("a line")
            writer.progress(7)
            writer.finish(state, {"train_loss": 0.5}, f"it is {state}")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1920)])
def test_first_visit_is_readable(dashboard, visit, scheme: str, width: int) -> None:
    page = visit(dashboard.url, scheme, width)
    expect(page).to_have_title("Afterimage")
    expect(page.get_by_role("heading", name="Afterimage")).to_be_visible()
    expect(page.get_by_text("There are no runs yet")).to_be_visible()
    expect(page.get_by_text("python -m recon_core train --preset cifar10-50")).to_be_visible()
    assert_readable(page, 5)
    background = evaluate(page, "[data-testid=stApp]", "e => getComputedStyle(e).backgroundColor")
    shade = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert shade > 200 if scheme == "light" else shade < 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_runs_can_be_opened_shared_and_taken_along(dashboard, visit, tmp_path, scheme: str) -> None:
    store = RunStore(dashboard.store)
    fill(store)
    page = visit(dashboard.url, scheme)
    for state in ("queued", "done", "cancelled", "failed", "interrupted"):
        expect(page.locator(".stMarkdownBadge", has_text=state)).to_be_visible()
    assert_readable(page, 5)

    click(page, page.get_by_role("link", name=f"done {MARKUP}"))
    expect(page.get_by_role("heading", name=f"done {MARKUP}")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name=f"done {MARKUP}")).to_be_visible()
    click(page, page.get_by_text("Settings, command and log"))
    expect(page.get_by_role("cell", name=MARKUP)).to_be_visible()
    expect(page.get_by_text("a line")).to_be_visible()
    # What cannot be pressed may be pale: nothing was measured that could be downloaded.
    assert_readable(page, 5, lambda text: text.text == "Measurements as CSV")

    with page.expect_download() as downloading:
        click(page, page.get_by_role("button", name="Run as zip"))
    taken = tmp_path / downloading.value.suggested_filename
    downloading.value.save_as(taken)
    assert taken.name == f"{_run_in_address(page)}.zip"
    assert zipfile.ZipFile(taken).testzip() is None

    click(page, page.get_by_role("button", name="All trainings"))
    expect(page).not_to_have_url(re.compile("run="))
    settle(page)
    page.go_back()
    expect(page.get_by_role("heading", name=f"done {MARKUP}")).to_be_visible()


@pytest.mark.parametrize("width", [900, 1280])
def test_long_names_in_the_list_are_read_whole(dashboard, visit, width: int) -> None:
    name = "CIFAR-10, 50 images, convolution 3x3, width 1000, small start, decay 1e-3: untrained network"
    RunStore(dashboard.store).create("train", {}, name=name)
    page = visit(dashboard.url, width=width)
    expect(page.get_by_test_id("stMain").get_by_role("link", name=name)).to_be_visible()
    assert cut_off(page) == []


def test_a_run_started_elsewhere_appears_moves_and_ends_by_itself(dashboard, visit) -> None:
    page = visit(dashboard.url)
    expect(page.get_by_text("There are no runs yet")).to_be_visible()
    run = RunStore(dashboard.store).create("train", {}, name="from a shell")
    with run.writer() as writer:
        writer.start(100)
        writer.progress(10, force=True)
        expect(page.get_by_test_id("stMain").get_by_role("link", name="from a shell")).to_be_visible()
        expect(page.get_by_text("step 10 of 100")).to_be_visible()
        writer.progress(60, force=True)
        expect(page.get_by_text("step 60 of 100")).to_be_visible()
        writer.finish(RunState.DONE, {}, "all fifty learnt")
    expect(page.get_by_text("all fifty learnt")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_have_count(0)


def test_a_run_deleted_while_it_is_shown_becomes_a_sentence(dashboard, visit) -> None:
    store = RunStore(dashboard.store)
    run = store.create("train", {}, name="short-lived")
    page = visit(f"{dashboard.url}/?run={run.id}")
    expect(page.locator(".stMarkdownBadge", has_text="queued")).to_be_visible()
    store.delete(run.id)
    expect(page.get_by_role("alert")).to_contain_text(f"There is no run {run.id}")


def _run_in_address(page: Page) -> str:
    match = re.search(r"[?&]run=([a-z0-9_-]+)", page.url)
    assert match
    return match[1]
