"""The Analyze page as a person uses it: points and the images behind them, sliders, a reload, presenting."""

from __future__ import annotations

import csv
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.store import Run, RunState, RunStore
from tests.browser.pages import (
    assert_readable,
    click,
    click_marker,
    evaluate,
    markers,
    settle,
    slide,
    type_key,
)
from tests.runs.match_runs import MNIST, candidate_run, data_of, noise, noisy_copies, train_run

CHART = ".st-key-a_scatter"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen noisy copies of each of six images: 0, 4 and 5 of 6 above 0.5 at B = 1, 1.1 and 1.5; two models."""
    store = RunStore(tmp_path_factory.mktemp("done") / "runs")
    decayed = train_run(store, {**MNIST, "training": {"epochs": 1, "weight_decay": 0.01}})
    _match(store, candidate_run(store, decayed, noise(6, (1, 28, 28), 1)))
    model = train_run(store, MNIST)
    control = candidate_run(store, model, noise(12, (1, 28, 28), 3), baseline="untrained")
    _match(store, candidate_run(store, model, noisy_copies(data_of(MNIST).train_x)), untrained=control.id)
    return store.root


@pytest.fixture
def _made(dashboard, done: Path) -> None:
    shutil.copytree(done, dashboard.store)


def _match(store: RunStore, run: Run, **settings: Any) -> None:
    matching = store.create("match", {"runs": [run.id], **settings}, parents=[run.id])
    assert perform(matching, StopFlag()) is RunState.DONE


def count(page: Page) -> Locator:
    return page.get_by_role("heading", name="training images reconstructed")


def pairs(page: Page) -> Locator:
    return page.get_by_role("group", name="Training images above their reconstructions").get_by_role("button")


def shown(page: Page) -> set[int]:
    return {int(pair.get_attribute("data-id") or -1) for pair in pairs(page).all()}


def points(page: Page) -> dict[int, tuple[float, float]]:
    """Where the point of each sample is."""
    return {int(sample): place for sample, place in markers(page, CHART).items()}


@pytest.mark.usefixtures("_made")
def test_points_and_the_images_behind_them(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_t=0.5", height=1000)
    expect(count(page)).to_have_text("4 of 6 training images reconstructed")
    expect(page.get_by_text("the mean image alone matches 0, an untrained network 0")).to_be_visible()
    expect(pairs(page)).to_have_count(6)

    # Hovering names the image; a click shows it and no other.
    page.mouse.move(*points(page)[2])
    label = page.locator(".st-key-a_scatter .hoverlayer")
    for words in ("image ", "SSIM ", "distance to the margin 2"):
        expect(label).to_contain_text(words)
    click_marker(page, CHART, "2")
    expect(pairs(page)).to_have_count(1)
    expect(pairs(page)).to_have_attribute("data-id", "2")
    expect(pairs(page)).to_have_attribute("aria-pressed", "true")
    click_marker(page, CHART, "2")
    expect(pairs(page)).to_have_count(6)

    # Choosing a pair in the grid rings its point.
    click(page, page.locator('button[data-id="4"]'))
    expect(page.locator(".st-key-a_scatter .textpoint")).to_have_text(re.compile(r"image \d+"))
    expect(pairs(page)).to_have_count(6)
    expect(page).to_have_url(re.compile(r"a_img=[a-z0-9-]+%3A4\b"))

    # A lasso around the points of samples 0 and 1, which are those nearest to the margin.
    click(page, page.get_by_role("radio", name="lasso"))
    expect(page.get_by_text("Draw a line around points")).to_be_visible()
    places = points(page)
    between = (places[1][0] + places[2][0]) / 2
    left = places[0][0] - 8
    area = page.locator(".st-key-a_scatter .nsewdrag").bounding_box()
    assert area
    top, bottom = area["y"] + 4, area["y"] + area["height"] - 4
    _lasso(page, [(left, top), (between, top), (between, bottom), (left, bottom), (left, top + 2)])
    expect(pairs(page)).to_have_count(2)
    assert shown(page) == {0, 1}
    expect(page.get_by_text("2 chosen images, best first")).to_be_visible()

    # A reload, and a way around other pages, bring all of it back.
    settle(page)
    expect(page).to_have_url(re.compile(r"a_sel=[a-z0-9-]+%3A0-1\b"))
    address = page.url
    page.reload()
    expect(page.get_by_text("2 chosen images, best first")).to_be_visible()
    expect(pairs(page)).to_have_count(2)
    assert shown(page) == {0, 1}
    expect(count(page)).to_have_text("4 of 6 training images reconstructed")
    expect(page).to_have_url(address)
    click(page, page.get_by_role("link", name="Match"))
    expect(count(page)).to_have_count(0)
    click(page, page.get_by_role("link", name="Analyze"))
    expect(page.get_by_text("2 chosen images, best first")).to_be_visible()
    expect(pairs(page)).to_have_count(2)
    click(page, page.get_by_role("button", name="Show all"))
    expect(pairs(page)).to_have_count(6)


@pytest.mark.usefixtures("_made")
def test_sliders_move_count_points_and_pairs(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_t=0.5&a_b=1.0")
    expect(count(page)).to_have_text("0 of 6 training images reconstructed")
    before = points(page)
    slide(page, "Merge factor B", "PageUp")
    expect(count(page)).to_have_text("4 of 6 training images reconstructed")
    expect(pairs(page).filter(has_text="✓")).to_have_count(4)
    after = points(page)
    assert all(after[sample][1] < before[sample][1] - 2 for sample in before), "better scores stand higher"
    assert all(abs(after[sample][0] - before[sample][0]) < 1 for sample in before)
    slide(page, "Good means SSIM above", "Home")
    expect(count(page)).to_have_text("6 of 6 training images reconstructed")
    expect(pairs(page).filter(has_text="✓")).to_have_count(6)
    expect(page).to_have_url(re.compile(r"[?&]a_t=0(&|$|\.0)"))


@pytest.mark.usefixtures("_made")
def test_presenting_by_keyboard(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_t=0.5")
    expect(count(page)).to_have_text("4 of 6 training images reconstructed")
    click(page, page.get_by_role("button", name="Present"))
    title = page.locator(".st-key-presenter-words").get_by_role("heading")
    expect(title).to_have_text("SSIM against distance to the margin")
    expect(page.get_by_text("1 of 9")).to_be_visible()
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    size = evaluate(page, ".st-key-presenter-words :is(h1, h2, h3)", "e => parseFloat(getComputedStyle(e).fontSize)")
    assert size > 34
    chart = page.get_by_test_id("stPlotlyChart")
    expect(chart.locator(".js-plotly-plot")).to_be_visible()
    type_key(page, "ArrowRight")
    expect(title).to_have_text(re.compile("^The best pairs of "))
    type_key(page, "ArrowRight")
    expect(title).to_have_text("Good reconstructions of 6 training images")
    type_key(page, "ArrowRight")
    expect(title).to_have_text("4 of 6 reconstructions are good")
    type_key(page, "ArrowLeft")
    expect(title).to_have_text("Good reconstructions of 6 training images")
    page.reload()
    expect(title).to_have_text("Good reconstructions of 6 training images")
    expect(page.get_by_text("3 of 9")).to_be_visible()
    expect(page.locator(".st-key-presenter-place")).to_be_visible()
    type_key(page, "Escape")
    expect(count(page)).to_have_text("4 of 6 training images reconstructed")
    expect(page.get_by_test_id("stSidebar")).to_be_visible()
    expect(page).not_to_have_url(re.compile("present"))


@pytest.mark.usefixtures("_made")
def test_figures_and_numbers_can_be_taken_along(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_view=Weight+decay&a_t=0.5")
    expect(page.get_by_text("Good reconstructions of 6 training images by weight decay")).to_be_visible()
    click(page, page.get_by_test_id("stPopoverButton").filter(has_text="Download"))
    assert b"plotly" in _downloaded(page, "Figure as a web page", "weight-decay.html")
    assert _downloaded(page, "Figure as a picture", "weight-decay.png").startswith(b"\x89PNG")
    rows = list(csv.DictReader(io.StringIO(_downloaded(page, "Numbers as CSV", "weight-decay.csv").decode())))
    assert [(row["weight_decay"], row["good"]) for row in rows] == [("0.0", "4"), ("0.01", "0")]


@pytest.mark.usefixtures("_made")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1920)])
def test_it_can_be_read(dashboard, visit, scheme: str, width: int) -> None:
    page = visit(dashboard.url, scheme, width)
    for address in ("?a_f=true", "?a_view=Several+models", "?a_view=Errors", "?present=1"):
        page.goto(f"{dashboard.url}/Analyze{address}")
        drawn = page.locator(".js-plotly-plot .main-svg").or_(page.get_by_test_id("stDataFrame")).first
        expect(drawn).to_be_visible()
        settle(page)
        # A slider's value hangs above its handle, whose colour is not behind it; what cannot be pressed may be pale.
        pale = page.get_by_test_id("stSliderThumbValue").or_(page.locator("button:disabled *")).all_inner_texts()
        assert_readable(page, 5, lambda text: text.text in pale)  # noqa: B023


def _lasso(page: Page, path: list[tuple[float, float]]) -> None:
    page.mouse.move(*path[0])
    page.mouse.down()
    for place in path[1:]:
        page.mouse.move(*place, steps=6)
    page.mouse.up()


def _downloaded(page: Page, button: str, name: str) -> bytes:
    with page.expect_download() as downloading:
        click(page, page.get_by_role("button", name=button))
    assert downloading.value.suggested_filename == name
    return downloading.value.path().read_bytes()


@pytest.mark.usefixtures("_made")
def test_a_point_shows_its_images_and_the_axis_its_scale(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_scale=log")
    thumbnail = page.locator(".thumbnail")
    expect(thumbnail).to_be_hidden()
    title = page.locator(f"{CHART} .xtitle")
    expect(title.filter(has_text="log")).to_have_count(1)
    for sample in ("2", "5"):
        x, y = markers(page, CHART)[sample]
        page.mouse.move(1, 1)
        page.mouse.move(x - 2, y)
        page.mouse.move(x, y)
        expect(thumbnail).to_be_visible()
        expect(thumbnail).to_have_attribute("data-sample", sample)
    page.mouse.move(1, 1)
    expect(thumbnail).to_be_hidden()
    # The chart is another one after this, and its points show their images all the same.
    click(page, page.get_by_role("radio", name="linear"))
    expect(title.filter(has_text="log")).to_have_count(0)
    x, y = markers(page, CHART)["3"]
    page.mouse.move(x - 2, y)
    page.mouse.move(x, y)
    expect(thumbnail).to_have_attribute("data-sample", "3")


@pytest.mark.usefixtures("_made")
def test_small_multiples_stay_clear_of_their_toolbar(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_view=Several+models")
    chart = page.locator(".st-key-a_panels")
    expect(chart.locator(".xtitle, .x2title")).to_have_count(2)
    settle(page)
    chart.hover()
    bar = chart.locator(".modebar").bounding_box()
    assert bar
    for title in chart.locator(".annotation-text").all():
        box = title.bounding_box()
        assert box
        assert box["y"] >= bar["y"] + bar["height"] or box["x"] + box["width"] <= bar["x"]
