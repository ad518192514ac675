"""The Studies page as a person uses it: a mark of the curve and the model behind it, presenting, both themes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from recon_core.store import Run, RunStore
from recon_core.studies.study import StudyConfig, queue_study
from tests.studies.tiny_studies import do_study, tiny_plan

PATIENCE = 60_000  # milliseconds; CI machines are slow
READABLE = 4.5
# Where on the screen each model's mark is; lines carry models too, but only marks are clicked.
MARKS = """async chart => {
  while (!chart._fullLayout || !chart.calcdata) await new Promise(done => setTimeout(done, 50));  // not drawn yet
  const { xaxis, yaxis } = chart._fullLayout, box = chart.getBoundingClientRect(), places = {};
  for (const points of chart.calcdata) for (const point of points) {
    const { trace } = points[0];
    if (trace.mode !== 'markers' || !trace.customdata) continue;
    places[trace.customdata[point.i][0]] =
      [box.left + xaxis._offset + xaxis.c2p(point.x), box.top + yaxis._offset + yaxis.c2p(point.y)];
  }
  return places;
}"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two values and a reference, one seed."""
    run = queue_study(RunStore(tmp_path_factory.mktemp("studies") / "runs"), StudyConfig(plan=tiny_plan()))
    do_study(run)
    return run


@pytest.fixture
def study(dashboard, done: Run) -> str:
    shutil.copytree(done.dir.parent, dashboard.store)
    return done.id


def settle(page: Page) -> None:
    expect(page.locator(".st-key-s_curve_good .js-plotly-plot .scatterlayer").first).to_be_visible(timeout=PATIENCE)
    page.get_by_test_id("stStatusWidget").wait_for(state="hidden", timeout=PATIENCE)


def marks(page: Page) -> dict[str, tuple[float, float]]:
    return page.locator(".st-key-s_curve_good .js-plotly-plot").evaluate(MARKS)


def test_a_study_is_explored_and_presented(dashboard, visit, contrasts: Callable, study: str) -> None:
    page = visit(f"{dashboard.url}/Studies?run={study}", height=1400)
    settle(page)
    page.mouse.click(*marks(page)["/0.001/0"])
    expect(page.get_by_role("heading", name="0.001, seed 0")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("group", name="Training images above their reconstructions")).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+ of 10 came back"))).to_be_visible()
    expect(page).to_have_url(re.compile(r"s_model=%2F0.001%2F0"))
    settle(page)

    # Another mark, then a reload, which keeps it.
    page.mouse.move(1, 1)
    page.mouse.click(*marks(page)["/none/0"])
    expect(page.get_by_role("heading", name="none, seed 0")).to_be_visible(timeout=PATIENCE)
    page.reload()
    expect(page.get_by_role("heading", name="none, seed 0")).to_be_visible(timeout=PATIENCE)
    settle(page)
    assert [text for text in contrasts(page) if text.contrast < READABLE] == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    # The report is made when it is asked for.
    with page.expect_download(timeout=PATIENCE) as downloading:
        page.get_by_role("button", name="Report").click()
    assert downloading.value.suggested_filename == f"tiny-{study}.html"
    assert b"A tiny study" in downloading.value.path().read_bytes()

    page.get_by_role("button", name="Present").click()
    title = page.locator(".st-key-presenter-words").get_by_role("heading")
    expect(title).to_have_text("Training images that come back", timeout=PATIENCE)
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(title).to_have_text("Training samples on the margin", timeout=PATIENCE)
    for words in ("Train and test error", "Who comes back", "The same images at every value"):
        page.keyboard.press("ArrowRight")
        expect(title).to_contain_text(words, timeout=PATIENCE)
    expect(page.locator(".js-plotly-plot image")).to_have_count(4, timeout=PATIENCE)
    page.keyboard.press("ArrowLeft")
    expect(title).to_contain_text("Who comes back", timeout=PATIENCE)
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="none, seed 0")).to_be_visible(timeout=PATIENCE)

    # From there to the model's own page.
    page.get_by_role("button", name="Analyze").click()
    expect(page.get_by_role("heading", name=re.compile("training images came back"))).to_be_visible(timeout=PATIENCE)


def test_it_can_be_read_in_the_dark(dashboard, visit, contrasts: Callable, study: str) -> None:
    for address in ("", "?s_view=A+study+of+your+own", f"?run={study}&s_show=findings"):
        page = visit(f"{dashboard.url}/Studies{address}", "dark", 1920)
        words = page.get_by_text(re.compile("Start the study|Train and test error")).first
        expect(words).to_be_visible(timeout=PATIENCE)
        page.get_by_test_id("stStatusWidget").wait_for(state="hidden", timeout=PATIENCE)
        found = contrasts(page)
        assert len(found) > 10
        assert [text for text in found if text.contrast < READABLE] == [], address
