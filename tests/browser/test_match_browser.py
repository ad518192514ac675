"""The Match page as a person uses it: sliders, a click on a pair, the wipe, a reload."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from recon_core.store import Run, RunStore
from tests.runs.match_runs import MNIST, candidate_run, data_of, noise, noisy_copies, train_run

PATIENCE = 40_000  # milliseconds; CI machines are slow
READABLE = 4.5


@pytest.fixture
def made(dashboard) -> Run:
    """Sixteen noisy copies of each of six images, and a floor: 0, 4 and 5 of 6 above 0.5 at B = 1, 1.1 and 1.5."""
    store = RunStore(dashboard.store)
    model = train_run(store, MNIST)
    candidate_run(store, model, noise(12, (1, 28, 28), 3), baseline="untrained")
    return candidate_run(store, model, noisy_copies(data_of(MNIST).train_x))


def count(page: Page) -> Locator:
    return page.get_by_test_id("stMetric").filter(has_text="Training images back").get_by_test_id("stMetricValue")


def slide(page: Page, label: str, key: str, times: int = 1) -> None:
    handle = page.get_by_role("slider", name=label)
    handle.focus()
    for _ in range(times):
        handle.press(key)


def drag(page: Page, label: str, share: float) -> None:
    """The handle to a share of its track."""
    thumb = page.get_by_role("slider", name=label)
    track = page.get_by_role("group", name=label).bounding_box()
    handle = thumb.locator("xpath=../..").bounding_box()
    assert track
    assert handle
    page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + share * track["width"], handle["y"] + handle["height"] / 2, steps=8)
    page.mouse.up()


def pairs(page: Page) -> Locator:
    return page.get_by_role("group", name="Training images above their reconstructions").get_by_role("button")


def test_sliders_pairs_and_a_reload(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Match?m_t=0.5&m_b=1.0")
    expect(count(page)).to_have_text("0 of 6", timeout=PATIENCE)
    slide(page, "Merge factor B", "ArrowRight", 10)
    expect(page.get_by_text("B = 1.1, buzaglo protocol")).to_be_visible(timeout=PATIENCE)
    expect(count(page)).to_have_text("4 of 6", timeout=PATIENCE)
    drag(page, "Good means SSIM above", 0.1)
    expect(count(page)).to_have_text("6 of 6", timeout=PATIENCE)
    expect(pairs(page)).to_have_count(6)
    expect(pairs(page).filter(has_text="✓")).to_have_count(6)

    # At the right end nothing is good enough, in the middle some are.
    drag(page, "Good means SSIM above", 1.0)
    expect(count(page)).to_have_text("0 of 6", timeout=PATIENCE)
    expect(pairs(page).filter(has_text="✓")).to_have_count(0)
    drag(page, "Good means SSIM above", 0.52)
    expect(count(page)).to_have_text("4 of 6", timeout=PATIENCE)
    line = page.get_by_text("All counts:")
    conditions = line.inner_text()

    # A click shows the pair; arrow keys and Enter another one.
    first, second = (pairs(page).nth(place).get_attribute("data-id") for place in (0, 1))
    pairs(page).first.click()
    large = page.locator(".st-key-m-pair-view")
    expect(large.get_by_text(f"Training image {first}:")).to_be_visible(timeout=PATIENCE)
    for name in ("training image", "reconstruction", "difference", "SSIM map"):
        expect(large.get_by_role("img", name=re.compile(f"^{name}:"))).to_be_visible()
    merged = large.get_by_role("group", name="The candidates behind it").get_by_role("img")
    expect(merged.first).to_have_attribute("aria-label", re.compile(f"candidate \\d+ of run {made.id}, distance "))
    expect(pairs(page).first).to_have_attribute("aria-pressed", "true")
    pairs(page).first.press("ArrowRight")
    expect(pairs(page).nth(1)).to_be_focused()
    pairs(page).nth(1).press("Enter")
    expect(large.get_by_text(f"Training image {second}:")).to_be_visible(timeout=PATIENCE)
    expect(pairs(page).nth(1)).to_be_focused()

    # The wipe uncovers the one or the other.
    wipe = large.get_by_role("slider", name="Wipe between training image and reconstruction")
    wipe.press("Home")
    assert _clipped(large).endswith(" 0%)")
    wipe.press("End")
    assert _clipped(large).endswith(" 100%)")

    expect(page).to_have_url(re.compile(rf"m_pair={second}\b"))
    page.reload()
    expect(count(page)).to_have_text("4 of 6", timeout=PATIENCE)
    expect(line).to_have_text(conditions)
    expect(large.get_by_text(f"Training image {second}:")).to_be_visible(timeout=PATIENCE)

    # There and back again: the page remembers.
    page.get_by_role("link", name="Analyze").click()
    expect(count(page)).to_have_count(0, timeout=PATIENCE)
    page.get_by_role("link", name="Match").click()
    expect(count(page)).to_have_text("4 of 6", timeout=PATIENCE)
    expect(large.get_by_text(f"Training image {second}:")).to_be_visible(timeout=PATIENCE)
    large.get_by_role("button", name="Close").click()
    expect(large).to_have_count(0, timeout=PATIENCE)
    expect(page).not_to_have_url(re.compile("m_pair"))


def test_what_is_shown_can_be_taken_along(dashboard, visit, made: Run) -> None:
    page = visit(f"{dashboard.url}/Match?m_t=0.5")
    expect(count(page)).to_have_text("4 of 6", timeout=PATIENCE)
    page.get_by_role("button", name="Download").click()
    picture = _downloaded(page, "This page of the grid, as a picture")
    with Image.open(io.BytesIO(picture)) as grid:
        assert grid.size == (6 * 32 * 3, (2 * 28 + 4) * 3)
    assert _downloaded(page, "All pairs, as a table").decode().count("\n") == 7
    with zipfile.ZipFile(io.BytesIO(_downloaded(page, "All pairs, pictures and table"))) as archive:
        assert archive.testzip() is None
        assert "settings.json" in archive.namelist()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1920)])
def test_it_can_be_read(dashboard, visit, contrasts: Callable, made: Run, scheme: str, width: int) -> None:
    page = visit(f"{dashboard.url}/Match?m_pair=0", scheme, width)
    expect(page.get_by_text("What was merged")).to_be_visible(timeout=PATIENCE)
    expect(pairs(page)).to_have_count(6)
    found = contrasts(page)
    assert len(found) > 15
    # A slider's value hangs above its handle, whose colour is not behind it.
    values = set(page.get_by_test_id("stSliderThumbValue").all_inner_texts())
    assert [text for text in found if text.contrast < READABLE and text.text not in values] == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    cut = page.get_by_test_id("stMetricValue").evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth + 1)")
    assert cut == []


def _clipped(large: Locator) -> str:
    return large.locator(".half.right").evaluate("half => getComputedStyle(half).clipPath")


def _downloaded(page: Page, name: str) -> bytes:
    with page.expect_download(timeout=PATIENCE) as downloading:
        page.get_by_role("button", name=name).click()
    return downloading.value.path().read_bytes()
