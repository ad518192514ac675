"""The Match page as a person uses it: sliders, a click on a pair, the wipe, a reload."""

from __future__ import annotations

import io
import re
import shutil
import zipfile

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from recon_core.store import Run, RunStore
from tests.browser.pages import assert_readable, broken_words, click, cut_off, drag, press, settle, slide
from tests.runs.match_runs import MNIST, candidate_run, data_of, noise, noisy_copies, train_run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Sixteen noisy copies of each of six images, and a control: 0, 4 and 5 of 6 above 0.5 at B = 1, 1.1 and 1.5."""
    store = RunStore(tmp_path_factory.mktemp("done") / "runs")
    model = train_run(store, MNIST)
    candidate_run(store, model, noise(12, (1, 28, 28), 3), baseline="untrained")
    return candidate_run(store, model, noisy_copies(data_of(MNIST).train_x))


@pytest.fixture
def made(dashboard, done: Run) -> Run:
    shutil.copytree(done.dir.parent, dashboard.store)
    return done


def count(page: Page) -> Locator:
    return page.locator("[data-count=good] dd")


def pairs(page: Page) -> Locator:
    return page.get_by_role("group", name="Training images above their reconstructions").get_by_role("button")


def test_sliders_pairs_and_a_reload(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Match?m_t=0.5&m_b=1.0")
    expect(count(page)).to_have_text("0 of 6")
    slide(page, "Merge factor B", "PageUp")
    expect(page.get_by_text("B = 1.1, buzaglo protocol")).to_be_visible()
    expect(count(page)).to_have_text("4 of 6")
    drag(page, "Good means SSIM above", 0.1)
    expect(count(page)).to_have_text("6 of 6")
    expect(pairs(page)).to_have_count(6)
    expect(pairs(page).filter(has_text="✓")).to_have_count(6)

    # At the right end nothing is good enough, in the middle some are.
    drag(page, "Good means SSIM above", 1.0)
    expect(count(page)).to_have_text("0 of 6")
    expect(pairs(page).filter(has_text="✓")).to_have_count(0)
    drag(page, "Good means SSIM above", 0.52)
    expect(count(page)).to_have_text("4 of 6")
    line = page.get_by_text("All counts:")
    conditions = line.inner_text()

    # A click shows the pair; arrow keys and Enter another one.
    first, second = (pairs(page).nth(place).get_attribute("data-id") for place in (0, 1))
    click(page, pairs(page).first)
    large = page.locator(".st-key-m-pair-view")
    expect(large.get_by_text(f"Training image {first}:")).to_be_visible()
    for name in ("training image", "reconstruction", "difference", "SSIM map"):
        expect(large.get_by_role("img", name=re.compile(f"^{name}:"))).to_be_visible()
    merged = large.get_by_role("group", name="The candidates behind it").get_by_role("img")
    expect(merged.first).to_have_attribute("aria-label", re.compile(f"candidate \\d+ of run {made.id}, distance "))
    expect(pairs(page).first).to_have_attribute("aria-pressed", "true")
    press(page, pairs(page).first, "ArrowRight")
    expect(pairs(page).nth(1)).to_be_focused()
    press(page, pairs(page).nth(1), "Enter")
    expect(large.get_by_text(f"Training image {second}:")).to_be_visible()
    expect(pairs(page).nth(1)).to_be_focused()

    # The wipe uncovers the one or the other.
    wipe = large.get_by_role("slider", name="Wipe between training image and reconstruction")
    for key, uncovered in (("Home", "0%"), ("End", "100%")):
        press(page, wipe, key)
        expect(large.locator(".half.right")).to_have_css("clip-path", re.compile(rf" {uncovered}\)$"))

    expect(page).to_have_url(re.compile(rf"m_pair={second}\b"))
    page.reload()
    expect(count(page)).to_have_text("4 of 6")
    expect(line).to_have_text(conditions)
    expect(large.get_by_text(f"Training image {second}:")).to_be_visible()

    # There and back again: the page remembers.
    click(page, page.get_by_role("link", name="Analyze"))
    expect(count(page)).to_have_count(0)
    click(page, page.get_by_role("link", name="Match"))
    expect(count(page)).to_have_text("4 of 6")
    expect(large.get_by_text(f"Training image {second}:")).to_be_visible()
    click(page, large.get_by_role("button", name="Close"))
    expect(large).to_have_count(0)
    expect(page).not_to_have_url(re.compile("m_pair"))


def test_what_is_shown_can_be_taken_along(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Match?m_t=0.5")
    expect(count(page)).to_have_text("4 of 6")
    click(page, page.get_by_role("button", name="Download"))
    picture = _downloaded(page, "This page of the grid, as a picture")
    with Image.open(io.BytesIO(picture)) as grid:
        assert grid.size == (6 * 32 * 3, (2 * 28 + 4) * 3)
    assert _downloaded(page, "All pairs, as a table").decode().count("\n") == 7
    with zipfile.ZipFile(io.BytesIO(_downloaded(page, "All pairs, pictures and table"))) as archive:
        assert archive.testzip() is None
        assert "settings.json" in archive.namelist()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1920)])
def test_it_can_be_read(dashboard, visit, made: Run, scheme: str, width: int) -> None:
    page = visit(f"{dashboard.url}/Match?m_pair=0", scheme, width)
    expect(page.get_by_text("What was merged")).to_be_visible()
    expect(pairs(page)).to_have_count(6)
    settle(page)
    # A slider's value hangs above its handle, whose colour is not behind it.
    values = set(page.get_by_test_id("stSliderThumbValue").all_inner_texts())
    assert_readable(page, 16, lambda text: text.text in values)
    cut = page.locator("[data-count] dd").evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth + 1)")
    assert cut == []


@pytest.mark.parametrize("address", ["", "Match", "Experiments", "Train"])
def test_no_word_is_broken_or_cut_off_on_a_small_screen(dashboard, visit, made: Run, address: str) -> None:
    page = visit(f"{dashboard.url}/{address}", width=900)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert broken_words(page) == []
    assert cut_off(page) == []


def test_all_is_seen_at_once_and_follows_the_threshold_during_the_drag(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Match?m_t=0.5")
    expect(count(page)).to_have_text("4 of 6")
    settle(page)
    screen = {"width": 1280, "height": 800}
    for part in (
        page.get_by_role("slider", name="Good means SSIM above").locator("xpath=../.."),
        page.get_by_role("slider", name="Merge factor B").locator("xpath=../.."),
        page.locator("[data-count=auc] dd"),
        page.locator(".histogram svg"),
        pairs(page).last,
    ):
        box = part.bounding_box()
        assert box
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= screen["height"]
    assert page.get_by_test_id("stMain").evaluate("e => e.scrollHeight - e.clientHeight") <= 1

    # The slider, held: the server has not heard of it yet.
    handle = page.get_by_role("slider", name="Good means SSIM above")
    knob, track = (handle.locator(f"xpath={way}").bounding_box() for way in ("../..", "../../.."))
    assert knob
    assert track
    page.mouse.move(knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + 0.98 * track["width"], knob["y"], steps=6)
    expect(count(page)).to_have_text("0 of 6")
    expect(pairs(page).filter(has_text="✓")).to_have_count(0)
    expect(pairs(page).first.locator(".picture")).to_have_css("opacity", "0.3")
    expect(page).to_have_url(re.compile(r"m_t=0\.5"))
    page.mouse.move(track["x"] + 0.1 * track["width"], knob["y"], steps=6)
    expect(pairs(page).filter(has_text="✓")).to_have_count(6)
    expect(pairs(page).first.locator(".picture")).to_have_css("opacity", "1")
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"m_t=0\.[01]"))

    # The line in the histogram moves everything, and the slider when it is let go.
    settle(page)
    plot = page.locator(".histogram svg").bounding_box()
    assert plot
    page.mouse.move(plot["x"] + 0.2 * plot["width"], plot["y"] + 40)
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] + 50, plot["y"] + 40, steps=6)
    expect(count(page)).to_have_text("0 of 6")
    page.mouse.up()
    expect(handle).to_have_value("1")
    expect(page).to_have_url(re.compile(r"m_t=1"))
    expect(count(page)).to_have_text("0 of 6")


def test_the_grid_follows_the_merge_factor_during_the_drag(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Match?m_t=0.5&m_b=1.0")
    expect(count(page)).to_have_text("0 of 6")
    settle(page)
    board = page.locator(".board")
    handle = page.get_by_role("slider", name="Merge factor B")
    knob, track = (handle.locator(f"xpath={way}").bounding_box() for way in ("../..", "../../.."))
    assert knob
    assert track
    page.mouse.move(knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + 0.5 * track["width"], knob["y"], steps=6)
    expect(board).to_have_attribute("data-merging", handle.input_value())
    expect(count(page)).to_have_text("5 of 6")
    expect(pairs(page).filter(has_text="✓")).to_have_count(5)
    # The pictures too; the controls wait until the slider is let go, as its place in the address does.
    drawn = pairs(page).first.locator(".picture").evaluate("e => getComputedStyle(e, '::after').backgroundImage")
    assert drawn.startswith('url("blob:')
    expect(page.locator("[data-count=held_out]")).to_have_class("before")
    expect(page).to_have_url(re.compile(r"m_b=1\.0"))
    page.mouse.move(knob["x"] - 20, knob["y"], steps=6)  # and back
    expect(board).to_have_attribute("data-merging", "1")
    expect(count(page)).to_have_text("0 of 6")
    expect(page.locator("[data-count=held_out]")).to_have_class("")
    page.mouse.move(track["x"] + 0.5 * track["width"], knob["y"], steps=6)
    page.mouse.up()
    settle(page)
    expect(page).to_have_url(re.compile(r"m_b=1\.[45]"))
    expect(count(page)).to_have_text("5 of 6")
    expect(page.locator("[data-count=held_out]")).to_have_class("")
    expect(page.locator(".mosaic.merging")).to_have_count(0)


def test_the_page_follows_a_slider_let_go_in_the_moment_of_a_question(dashboard, visit, made: Run) -> None:
    """The browser sends both in one message, which names the fragment that answers the question."""
    page = visit(f"{dashboard.url}/Match?m_t=0.5&m_b=1.0")
    expect(count(page)).to_have_text("0 of 6")
    settle(page)
    ask = "() => window.dispatchEvent(new CustomEvent('afterimage-merge', {detail: 1.2}))"
    page.evaluate(f"() => window.addEventListener('pointerup', {ask}, {{capture: true, once: true}})")
    drag(page, "Merge factor B", 0.5)
    expect(page.get_by_text(re.compile(r"B = 1\.[45]\d?, buzaglo protocol"))).to_be_visible()
    expect(count(page)).to_have_text("5 of 6")
    expect(page.locator("[data-count=held_out]")).to_have_class("")


def test_arrow_keys_lead_into_the_grid_and_a_filter_empties_it(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Match")
    expect(pairs(page)).to_have_count(6)
    settle(page)
    page.keyboard.press("ArrowRight")
    expect(pairs(page).first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(pairs(page).nth(1)).to_be_focused()
    page.goto(f"{dashboard.url}/Match?m_ssim_range=0.99&m_ssim_range=1.0")
    expect(page.get_by_text("No training image passes the filter.")).to_be_visible()
    expect(pairs(page)).to_have_count(0)
    expect(count(page)).to_have_text(re.compile("of 6$"))


def _downloaded(page: Page, name: str) -> bytes:
    with page.expect_download() as downloading:
        click(page, page.get_by_role("button", name=name))
    return downloading.value.path().read_bytes()
