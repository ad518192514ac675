"""The Studies page as a person uses it: a mark of the curve and the model behind it, presenting, both themes."""

from __future__ import annotations

import re
import shutil

import pytest
from playwright.sync_api import expect

from recon_core.store import Run, RunStore
from recon_core.studies.study import StudyConfig, create_study
from tests.browser.pages import assert_readable, click, click_marker, cut_off, type_key
from tests.studies.tiny_studies import do_study, tiny_plan

CURVE = ".st-key-s_curve_good"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two values and a reference, one seed."""
    run = create_study(RunStore(tmp_path_factory.mktemp("studies") / "runs"), StudyConfig(plan=tiny_plan()))
    do_study(run)
    return run


@pytest.fixture
def study(dashboard, done: Run) -> str:
    shutil.copytree(done.dir.parent, dashboard.store)
    return done.id


def test_a_study_is_explored_and_presented(dashboard, visit, study: str) -> None:
    page = visit(f"{dashboard.url}/Studies?run={study}", height=1400)
    click_marker(page, CURVE, "/0.001/0")
    expect(page.get_by_role("heading", name="0.001, seed 0")).to_be_visible()
    expect(page.get_by_role("group", name="Training images above their reconstructions")).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+ of 10 training images reconstructed"))).to_be_visible()
    expect(page).to_have_url(re.compile(r"s_model=%2F0.001%2F0"))

    # Another mark, then a reload, which keeps it.
    click_marker(page, CURVE, "/none/0")
    expect(page.get_by_role("heading", name="none, seed 0")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="none, seed 0")).to_be_visible()
    assert_readable(page, 10)

    # The report is made when it is asked for.
    with page.expect_download() as downloading:
        click(page, page.get_by_role("button", name="Report"))
    assert downloading.value.suggested_filename == f"tiny-{study}.html"
    assert b"A tiny study" in downloading.value.path().read_bytes()

    click(page, page.get_by_role("button", name="Present"))
    title = page.locator(".st-key-presenter-words").get_by_role("heading")
    expect(title).to_have_text("Reconstructed training images")
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    type_key(page, "ArrowRight")
    expect(title).to_have_text("Training samples on the margin")
    for words in ("Train and test error", "SSIM and distance", "The same images at every value"):
        type_key(page, "ArrowRight")
        expect(title).to_contain_text(words)
    expect(page.locator(".js-plotly-plot image")).to_have_count(4)
    type_key(page, "ArrowLeft")
    expect(title).to_contain_text("SSIM and distance")
    type_key(page, "Escape")
    expect(page.get_by_role("heading", name="none, seed 0")).to_be_visible()

    # From there to the model's own page.
    click(page, page.get_by_role("button", name="Analyze"))
    expect(page.get_by_role("heading", name=re.compile("training images reconstructed"))).to_be_visible()


def test_it_can_be_read_in_the_dark(dashboard, visit, study: str) -> None:
    page = visit(dashboard.url, "dark", 1920)
    for address in ("", "?s_view=A+study+of+your+own", f"?run={study}&s_show=findings"):
        page.goto(f"{dashboard.url}/Studies{address}")
        words = page.get_by_text(re.compile("Start the study|Train and test error")).first
        expect(words).to_be_visible()
        assert_readable(page, 11)


@pytest.mark.parametrize("width", [900, 1280])
def test_no_choice_is_cut_off(dashboard, visit, width: int) -> None:
    page = visit(f"{dashboard.url}/Studies", width=width)
    for size in ("Quick", "Paper n", "Full"):
        expect(page.get_by_role("radio", name=size, exact=True)).to_be_visible()
    assert cut_off(page) == []
