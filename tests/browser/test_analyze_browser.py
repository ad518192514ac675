"""The Analyze page as a person uses it: points and the images behind them, sliders, a reload, presenting."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Error, Locator, Page, expect

from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.store import Run, RunState, RunStore
from tests.runs.match_runs import MNIST, candidate_run, data_of, noise, noisy_copies, train_run

PATIENCE = 40_000  # milliseconds; CI machines are slow
READABLE = 4.5
# Where on the screen each sample's point is.
POINTS = """chart => {
  if (!chart.calcdata?.length) return null;  // being drawn
  const { xaxis, yaxis } = chart._fullLayout, box = chart.getBoundingClientRect(), places = {};
  for (const points of chart.calcdata) for (const point of points) {
    const sample = points[0].trace.customdata[point.i][0];
    places[sample] = [box.left + xaxis._offset + xaxis.c2p(point.x), box.top + yaxis._offset + yaxis.c2p(point.y)];
  }
  return places;
}"""


@pytest.fixture
def made(dashboard) -> Run:
    """Sixteen noisy copies of each of six images: 0, 4 and 5 of 6 above 0.5 at B = 1, 1.1 and 1.5; two models."""
    store = RunStore(dashboard.store)
    decayed = train_run(store, {**MNIST, "training": {"epochs": 1, "weight_decay": 0.01}})
    _match(store, candidate_run(store, decayed, noise(6, (1, 28, 28), 1)))
    model = train_run(store, MNIST)
    floor = candidate_run(store, model, noise(12, (1, 28, 28), 3), baseline="untrained")
    return _match(store, candidate_run(store, model, noisy_copies(data_of(MNIST).train_x)), untrained=floor.id)


def _match(store: RunStore, run: Run, **settings: Any) -> Run:
    matching = store.create("match", {"runs": [run.id], **settings}, parents=[run.id])
    assert perform(matching, StopFlag()) is RunState.DONE
    return matching


def count(page: Page) -> Locator:
    return page.get_by_role("heading", name="training images came back")


def pairs(page: Page) -> Locator:
    return page.get_by_role("group", name="Training images above their reconstructions").get_by_role("button")


def shown(page: Page) -> set[int]:
    return {int(pair.get_attribute("data-id") or -1) for pair in pairs(page).all()}


def points(page: Page) -> dict[int, tuple[float, float]]:
    """Where each point is, as soon as all is drawn: a chart that changed is taken away and made anew."""
    deadline = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < deadline:
        wait_for_plot(page)
        with contextlib.suppress(Error):
            found = page.locator(".st-key-a_scatter .js-plotly-plot").evaluate(POINTS)
            if found:
                return {int(sample): (x, y) for sample, (x, y) in found.items()}
        page.wait_for_timeout(200)
    pytest.fail("the points were not drawn")


def wait_for_plot(page: Page) -> None:
    expect(page.locator(".st-key-a_scatter .scatterlayer .point").nth(5)).to_be_visible(timeout=PATIENCE)
    page.get_by_test_id("stStatusWidget").wait_for(state="hidden", timeout=PATIENCE)


def test_points_and_the_images_behind_them(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_t=0.5", height=1000)
    expect(count(page)).to_have_text("4 of 6 training images came back", timeout=PATIENCE)
    expect(page.get_by_text("the mean image alone matches 0, an untrained network 0")).to_be_visible()
    expect(pairs(page)).to_have_count(6, timeout=PATIENCE)
    wait_for_plot(page)

    # Hovering names the image; a click shows it and no other.
    page.mouse.move(*points(page)[2])
    label = page.locator(".st-key-a_scatter .hoverlayer")
    for words in ("image ", "SSIM ", "distance to the margin 2"):
        expect(label).to_contain_text(words, timeout=PATIENCE)
    page.mouse.click(*points(page)[2])
    expect(pairs(page)).to_have_count(1, timeout=PATIENCE)
    expect(pairs(page)).to_have_attribute("data-id", "2")
    expect(pairs(page)).to_have_attribute("aria-pressed", "true")
    wait_for_plot(page)
    page.mouse.move(1, 1)
    page.mouse.click(*points(page)[2])
    expect(pairs(page)).to_have_count(6, timeout=PATIENCE)

    # Choosing a pair in the grid rings its point.
    page.locator('button[data-id="4"]').click()
    expect(page.locator(".st-key-a_scatter .textpoint")).to_have_text(re.compile(r"image \d+"), timeout=PATIENCE)
    expect(pairs(page)).to_have_count(6)
    expect(page).to_have_url(re.compile(r"a_img=[a-z0-9-]+%3A4\b"))

    # A lasso around the points of samples 0 and 1, which are those nearest to the margin.
    page.get_by_role("radio", name="lasso").click()
    wait_for_plot(page)
    expect(page.get_by_text("Draw a line around points")).to_be_visible(timeout=PATIENCE)
    places = points(page)
    between = (places[1][0] + places[2][0]) / 2
    left = places[0][0] - 8
    area = page.locator(".st-key-a_scatter .nsewdrag").bounding_box()
    assert area
    top, bottom = area["y"] + 4, area["y"] + area["height"] - 4
    _lasso(page, [(left, top), (between, top), (between, bottom), (left, bottom), (left, top + 2)])
    expect(pairs(page)).to_have_count(2, timeout=PATIENCE)
    assert shown(page) == {0, 1}
    expect(page.get_by_text("2 chosen images, best first")).to_be_visible()

    # A reload, and a way around other pages, bring all of it back.
    address = page.url
    page.reload()
    expect(page.get_by_text("2 chosen images, best first")).to_be_visible(timeout=PATIENCE)
    expect(pairs(page)).to_have_count(2, timeout=PATIENCE)
    assert shown(page) == {0, 1}
    expect(count(page)).to_have_text("4 of 6 training images came back")
    assert page.url == address
    page.get_by_role("link", name="Match").click()
    expect(count(page)).to_have_count(0, timeout=PATIENCE)
    page.get_by_role("link", name="Analyze").click()
    expect(page.get_by_text("2 chosen images, best first")).to_be_visible(timeout=PATIENCE)
    expect(pairs(page)).to_have_count(2, timeout=PATIENCE)
    page.get_by_role("button", name="Show all").click()
    expect(pairs(page)).to_have_count(6, timeout=PATIENCE)


def test_sliders_move_count_points_and_pairs(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_t=0.5&a_b=1.0")
    expect(count(page)).to_have_text("0 of 6 training images came back", timeout=PATIENCE)
    wait_for_plot(page)
    before = points(page)
    _slide(page, "Merge factor B", "ArrowRight", 10)
    expect(count(page)).to_have_text("4 of 6 training images came back", timeout=PATIENCE)
    expect(pairs(page).filter(has_text="✓")).to_have_count(4, timeout=PATIENCE)
    after = _moved(page, before)
    assert all(after[sample][1] < before[sample][1] - 2 for sample in before), "better scores stand higher"
    assert all(abs(after[sample][0] - before[sample][0]) < 1 for sample in before)
    _slide(page, "Good means SSIM above", "Home", 1)
    expect(count(page)).to_have_text("6 of 6 training images came back", timeout=PATIENCE)
    expect(pairs(page).filter(has_text="✓")).to_have_count(6, timeout=PATIENCE)
    expect(page).to_have_url(re.compile(r"[?&]a_t=0(&|$|\.0)"))


def test_presenting_by_keyboard(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_t=0.5")
    expect(count(page)).to_have_text("4 of 6 training images came back", timeout=PATIENCE)
    page.get_by_role("button", name="Present").click()
    title = page.locator(".st-key-presenter-words").get_by_role("heading")
    expect(title).to_have_text("SSIM against distance to the margin", timeout=PATIENCE)
    expect(page.get_by_text("1 of 7")).to_be_visible()
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    size = title.evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    assert size > 34
    chart = page.get_by_test_id("stPlotlyChart")
    expect(chart.locator(".js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    page.keyboard.press("ArrowRight")
    expect(title).to_have_text("Good reconstructions of 6 training images", timeout=PATIENCE)
    page.keyboard.press("ArrowRight")
    expect(title).to_have_text("4 of 6 reconstructions are good", timeout=PATIENCE)
    page.keyboard.press("ArrowLeft")
    expect(title).to_have_text("Good reconstructions of 6 training images", timeout=PATIENCE)
    page.reload()
    expect(title).to_have_text("Good reconstructions of 6 training images", timeout=PATIENCE)
    expect(page.get_by_text("2 of 7")).to_be_visible()
    expect(page.get_by_role("button", name="Leave")).to_be_visible(timeout=PATIENCE)
    page.keyboard.press("Escape")
    expect(count(page)).to_have_text("4 of 6 training images came back", timeout=PATIENCE)
    expect(page.get_by_test_id("stSidebar")).to_be_visible()
    expect(page).not_to_have_url(re.compile("present"))


def test_figures_and_numbers_can_be_taken_along(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_view=Weight+decay&a_t=0.5")
    expect(page.get_by_text("Good reconstructions of 6 training images by weight decay")).to_be_visible(
        timeout=PATIENCE
    )
    page.get_by_role("button", name="Download").click()
    assert b"plotly" in _downloaded(page, "Figure as a web page", "weight-decay.html")
    assert _downloaded(page, "Figure as a picture", "weight-decay.png").startswith(b"\x89PNG")
    rows = list(csv.DictReader(io.StringIO(_downloaded(page, "Numbers as CSV", "weight-decay.csv").decode())))
    assert [(row["weight_decay"], row["good"]) for row in rows] == [("0.0", "4"), ("0.01", "0")]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1920)])
def test_it_can_be_read(dashboard, visit, contrasts: Callable, made: Run, scheme: str, width: int) -> None:
    for address in ("?a_f=true", "?a_view=Several+models", "?a_view=Errors", "?present=1"):
        page = visit(f"{dashboard.url}/Analyze{address}", scheme, width)
        drawn = page.locator(".js-plotly-plot .main-svg").or_(page.get_by_test_id("stDataFrame")).first
        expect(drawn).to_be_visible(timeout=PATIENCE)
        page.get_by_test_id("stStatusWidget").wait_for(state="hidden", timeout=PATIENCE)
        found = contrasts(page)
        assert len(found) > 4
        # A slider's value hangs above its handle, whose colour is not behind it; what cannot be pressed may be pale.
        pale = page.get_by_test_id("stSliderThumbValue").or_(page.locator("button:disabled *")).all_inner_texts()
        assert [text for text in found if text.contrast < READABLE and text.text not in pale] == [], address
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address


def _moved(page: Page, before: dict[int, tuple[float, float]]) -> dict[int, tuple[float, float]]:
    """Where the points are once they are drawn anew."""
    deadline = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < deadline:
        if (found := points(page)) != before:
            return found
        page.wait_for_timeout(200)
    pytest.fail("the points did not move")


def _lasso(page: Page, path: list[tuple[float, float]]) -> None:
    page.mouse.move(*path[0])
    page.mouse.down()
    for place in path[1:]:
        page.mouse.move(*place, steps=6)
    page.mouse.up()


def _slide(page: Page, label: str, key: str, times: int) -> None:
    handle = page.get_by_role("slider", name=label)
    handle.focus()
    for _ in range(times):
        handle.press(key)


def _downloaded(page: Page, button: str, name: str) -> bytes:
    with page.expect_download(timeout=PATIENCE) as downloading:
        page.get_by_role("button", name=button).click()
    assert downloading.value.suggested_filename == name
    return downloading.value.path().read_bytes()
