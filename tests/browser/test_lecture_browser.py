"""Lecture mode in a browser: one key, no scrolling at 1280 x 720, and keys for all that is to be done."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.pages import evaluate, settle, type_key

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
