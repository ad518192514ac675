"""Lecture mode in a browser: one key, no scrolling at 1280 x 720, and keys for all that is to be done."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from recon_core.kinds import perform
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.signals import StopFlag
from recon_core.store import RunState, RunStore
from tests.browser.pages import evaluate, settle, type_key
from tests.runs.match_runs import MNIST, leaking_run, train_run

FITS = "root => root.scrollHeight <= root.clientHeight + 1"


def fits(page: Page) -> bool:
    """Whether nothing has to be scrolled to."""
    return bool(evaluate(page, "[data-testid=stMain]", FITS))


def player(page: Page, name: str) -> str:
    return str(evaluate(page, ".player", f"e => e.dataset.{name}"))


def test_the_circle_fills_a_lecture_and_obeys_keys(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/?view=circle", width=1280, height=720)
    evaluate(page, ".player", "e => e.dataset.stage || null")
    page.keyboard.press("l")
    expect(page).to_have_url(re.compile("lecture=1"))
    expect(page.get_by_role("button", name="Run it live")).to_be_hidden()
    expect(page.get_by_role("combobox", name=re.compile("Training points"))).to_be_hidden()
    evaluate(page, ".player.lecture", "e => e.dataset.stage || null")
    page.keyboard.press("4")
    evaluate(page, ".player", "e => e.dataset.stage === 'd' || null")
    assert fits(page)
    bottom, right = evaluate(
        page, ".player .frame", "e => { const box = e.getBoundingClientRect(); return [box.bottom, box.right]; }"
    )
    assert bottom <= 720
    assert right <= 1280
    size = evaluate(page, ".player .note", "e => parseFloat(getComputedStyle(e).fontSize)")
    assert size >= 22
    page.keyboard.press(" ")
    evaluate(page, ".player", "e => e.dataset.playing === 'true' || null")
    page.keyboard.press("+")
    evaluate(page, ".player", "e => e.dataset.speed === '2' || null")
    page.keyboard.press(" ")
    evaluate(page, ".player", "e => e.dataset.playing === 'false' || null")
    before = float(player(page, "time"))
    page.keyboard.press("ArrowRight")
    evaluate(page, ".player", f"e => Number(e.dataset.time) > {before} || null")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Run it live")).to_be_visible()
    expect(page).not_to_have_url(re.compile("lecture"))


def test_neurons_are_drawn_when_asked_for(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/?view=circle")
    assert evaluate(page, ".player", "e => e.dataset.neurons") == "0"
    page.get_by_role("button", name="Neurons").click()
    assert evaluate(page, ".player", "e => e.dataset.neurons === '60' ? 60 : null") == 60


def test_two_circles_share_a_lecture(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/?view=circle&c_two=true&lecture=1", width=1280, height=720)
    settle(page)
    expect(page.get_by_text("Drop multipliers below")).to_be_hidden()
    assert fits(page)
    type_key(page, "l")
    expect(page.get_by_text("Drop multipliers below").first).to_be_visible()


@pytest.fixture(scope="module")
def matched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks of other weight decay, and what came back of their images."""
    store = RunStore(tmp_path_factory.mktemp("matched") / "runs")
    for decay in (0.01, 0.0):
        model = train_run(store, {**MNIST, "training": {"epochs": 1, "weight_decay": decay}})
        match = create_match(store, MatchConfig(runs=(leaking_run(store, model).id,)))
        assert perform(match, StopFlag()) is RunState.DONE
    return store.root


def test_match_is_lectured_on_with_keys_alone(dashboard, visit, matched: Path) -> None:
    shutil.copytree(matched, dashboard.store)
    page = visit(f"{dashboard.url}/Match?m_t=0.5&m_b=1.1", width=1280, height=720)
    board = page.locator(".board")
    expect(board).to_have_attribute("data-threshold", "0.5")
    type_key(page, "l")
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    settle(page)
    assert fits(page)
    type_key(page, "ArrowUp")
    expect(board).to_have_attribute("data-threshold", "0.51")
    type_key(page, "ArrowDown")
    expect(board).to_have_attribute("data-threshold", "0.5")
    type_key(page, "]")
    expect(page).to_have_url(re.compile(r"m_b=1\.15"))
    type_key(page, "[")
    expect(page).not_to_have_url(re.compile(r"m_b=1\.15"))

    # The pair has the screen; the next one, and back to the board.
    large = page.locator(".st-key-m-pair-view")
    type_key(page, "ArrowRight")
    expect(large).to_be_visible()
    expect(board).to_be_hidden()
    first = large.get_by_role("heading").inner_text()
    settle(page)
    assert fits(page)
    type_key(page, "ArrowRight")
    expect(large.get_by_role("heading")).not_to_have_text(first)
    type_key(page, "ArrowLeft")
    expect(large.get_by_role("heading")).to_have_text(first)
    type_key(page, "Escape")
    expect(large).to_have_count(0)
    expect(board).to_be_visible()

    keys = page.locator("dialog.keys")
    type_key(page, "?")
    expect(keys.get_by_text("merge factor B, by 0.05")).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    expect(page).to_have_url(re.compile("lecture=1"))
    type_key(page, "Escape")
    expect(page).not_to_have_url(re.compile("lecture"))
    expect(page.get_by_test_id("stSidebar")).to_be_visible()


def test_slides_of_analyze_have_images_and_no_toolbar(dashboard, visit, matched: Path) -> None:
    shutil.copytree(matched, dashboard.store)
    page = visit(f"{dashboard.url}/Analyze", width=1280, height=720)
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    type_key(page, "l")
    title = page.locator(".st-key-presenter-words").get_by_role("heading")
    place = page.locator(".st-key-presenter-place")
    expect(place).to_have_text(re.compile("^1 of "))
    seen = [title.inner_text()]
    count = int(place.inner_text().rpartition(" ")[2])
    for number in range(2, count + 1):
        settle(page)
        assert fits(page)
        expect(page.locator(".modebar").first).to_be_hidden()
        type_key(page, " " if number % 2 else "PageDown")
        expect(place).to_have_text(f"{number} of {count}")
        settle(page)
        seen.append(title.inner_text())
        if seen[-1].startswith(("The best pairs", "The same images")):
            assert page.locator(".js-plotly-plot image").count() >= 2
    assert any(text.startswith("The best pairs of") for text in seen)
    assert "The same images at every weight decay" in seen
    assert not any("prior" in text for text in seen)  # nothing was attacked with two of them
    type_key(page, "?")
    expect(page.locator("dialog.keys").get_by_text("next slide")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.down("x")  # whose release is missed
    type_key(page, "Escape")
    expect(page).not_to_have_url(re.compile("present"))
