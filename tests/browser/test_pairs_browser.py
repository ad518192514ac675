"""The pair view from every page with images, in a browser: a click, arrow keys, Escape, and the link to Match."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from recon_core.kinds import perform
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.signals import StopFlag
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.study import StudyConfig, create_study
from tests.browser.pages import click, click_marker, settle
from tests.runs.match_runs import MNIST, leaking_run, train_run
from tests.studies.tiny_studies import do_study, tiny_plan


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A network, a matching that found four of its six images, and a small study."""
    store = RunStore(tmp_path_factory.mktemp("done") / "runs")
    study = create_study(store, StudyConfig(plan=tiny_plan()))
    do_study(study)
    model = train_run(store, MNIST)
    attack = leaking_run(store, model)
    match = create_match(store, MatchConfig(runs=(attack.id,)))
    assert perform(match, StopFlag()) is RunState.DONE
    return {"study": study, "model": model, "attack": attack, "match": match}


@pytest.fixture
def made(dashboard, done: dict[str, Run]) -> Iterator[dict[str, Run]]:
    shutil.copytree(done["match"].dir.parent, dashboard.store)
    yield done
    assert Path(dashboard.store).is_dir()


def large(page: Page) -> Locator:
    return page.locator("dialog.pair-view[open]")


def walk_and_close(page: Page) -> str:
    """Arrow keys to the next pair and back, Escape; the first pair's title."""
    title = large(page).get_by_role("heading")
    expect(title).not_to_be_empty()
    first = title.inner_text()
    place = large(page).locator(".place")
    expect(place).to_have_text(re.compile("^1 of "))
    page.keyboard.press("ArrowRight")
    expect(place).to_have_text(re.compile("^2 of "))
    expect(large(page).locator(".difference")).to_be_visible()
    expect(large(page).get_by_text("SSIM", exact=False).first).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(place).to_have_text(re.compile("^1 of "))
    page.keyboard.press("Escape")
    expect(large(page)).to_have_count(0)
    return first


def test_a_card_opens_its_pairs_and_the_link_leads_to_match(dashboard, visit, made: dict[str, Run]) -> None:
    page = visit(f"{dashboard.url}/Experiments")
    card = page.locator(f".st-key-card-{made['model'].id}")
    click(page, card.get_by_role("button", name=re.compile("^training image")).first)
    walk_and_close(page)
    click(page, card.get_by_role("button", name=re.compile("^training image")).first)
    link = large(page).get_by_role("link", name="Open in Match")
    expect(link).to_have_attribute("href", re.compile(rf"^Match\?from={made['match'].id}&m_pair=\d$"))
    number = str(link.get_attribute("href")).rpartition("=")[2]
    link.click()
    expect(page.locator(".st-key-m-pair-view").get_by_text(f"Training image {number}:")).to_be_visible()
    expect(page).to_have_url(re.compile(rf"/Match\?.*m_runs={made['attack'].id}.*m_pair={number}\b"))
    # Back leads to the cards, and Escape closes the large view of Match.
    page.keyboard.press("Escape")
    expect(page.locator(".st-key-m-pair-view")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("m_pair"))


def test_images_of_a_study_and_points_of_its_models_open(dashboard, visit, made: dict[str, Run]) -> None:
    page = visit(f"{dashboard.url}/Studies?run={made['study'].id}&s_show=images", height=1200)
    row = page.get_by_role("group", name="Reconstructions at small start")
    click(page, row.get_by_role("button").first)
    assert walk_and_close(page).endswith("at small start")
    page.goto(f"{dashboard.url}/Studies?run={made['study'].id}&s_model=/0.001/0")
    tiles = page.get_by_role("group", name="Training images above their reconstructions").get_by_role("button")
    click(page, tiles.first)
    walk_and_close(page)
    # A point of the plot below opens the pair of its image.
    page.set_viewport_size({"width": 1280, "height": 2200})
    click_marker(page, ".st-key-s_scatter", "3")
    expect(large(page)).to_have_attribute("data-pair", "3")


def test_a_pair_of_analyze_opens_by_a_button_and_by_two_clicks(dashboard, visit, made: dict[str, Run]) -> None:
    page = visit(f"{dashboard.url}/Analyze?a_run={made['match'].id}")
    tiles = page.get_by_role("group", name="Training images above their reconstructions").get_by_role("button")
    click(page, tiles.first)
    expect(tiles.first).to_have_attribute("aria-pressed", "true")
    click(page, page.get_by_role("button", name="Open the pair"))
    walk_and_close(page)
    settle(page)
    tiles.nth(2).dblclick()
    expect(large(page)).to_have_attribute("data-pair", str(tiles.nth(2).get_attribute("data-id")))
    expect(tiles.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(large(page)).to_have_count(1)


def test_candidates_open_beside_the_image_they_resemble(dashboard, visit, made: dict[str, Run]) -> None:
    """On the page of the attack, to which an old address and the name in the list lead."""
    page = visit(f"{dashboard.url}/?run={made['attack'].id}")
    expect(page).to_have_url(re.compile(rf"/Reconstruct\?run={made['attack'].id}$"))
    tiles = page.get_by_role("group", name="9 of 9 candidates").first.get_by_role("button")
    click(page, tiles.nth(5))  # after five of noise comes training image 0
    expect(large(page).get_by_role("heading")).to_have_text(re.compile("^Candidate 6, beside training image 0: "))
    expect(large(page).locator("dd").first).to_have_text("1.000")


def test_every_name_leads_to_the_one_page_of_a_run(dashboard, visit, made: dict[str, Run]) -> None:
    page = visit(dashboard.url)
    name = page.get_by_test_id("stMain").get_by_role("link", name=re.compile("^MNIST, 6 images, width 8: matching"))
    click(page, name)
    expect(page).to_have_url(re.compile(rf"/Match\?run={made['match'].id}$"))
    expect(page.get_by_role("heading", name=re.compile("matching"))).to_be_visible()
    click(page, page.get_by_role("button", name=re.compile("^training image")).first)
    walk_and_close(page)
    click(page, page.get_by_role("link", name=re.compile("attack, seed 0")))
    expect(page).to_have_url(re.compile(rf"/Reconstruct\?run={made['attack'].id}$"))
    settle(page)
    page.go_back()
    expect(page).to_have_url(re.compile(rf"/Match\?run={made['match'].id}$"))
    expect(page.get_by_role("heading", name=re.compile("matching"))).to_be_visible()
    RunStore(dashboard.store).delete(made["match"].id)
    page.reload()
    settle(page)  # while it is drawn, two could be seen
    expect(page.get_by_role("alert")).to_contain_text("it may have been deleted")
