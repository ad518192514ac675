"""An attack as a person sees it: started, watched while pictures sharpen, stopped, gone on with, found again."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.attack_request import attack_request, baseline_request
from recon_core.runs.models import model_of
from recon_core.runs.reconstruction import Baseline
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.requests import create_requested
from tests.browser.pages import assert_readable, click, press, slide, type_into
from tests.gates import Gate
from tests.processes import wait_for

OLD_SECONDS = 1.1  # a run takes a new picture of many candidates after 1
TRAINING = {
    "data": {"source": "cifar10", "n": 10, "test_n": 10},
    "model": {"widths": [100, 50]},
    "training": {"recipe": "flow", "target_log_loss": -50.0},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network trained on ten images, an attack on it and two baselines."""
    store = RunStore(tmp_path_factory.mktemp("made") / "runs")
    model = store.create("train", TRAINING, name="ten images")
    assert perform(model, StopFlag()) is RunState.DONE
    weights = model_of(model)
    given = {"m": "40", "iterations": "150"}
    requests = [attack_request(model, weights, "fast", given, False)]
    requests += [baseline_request(model, weights, kind) for kind in (Baseline.WEIGHTS, Baseline.INVERSION)]
    for request in requests:
        assert perform(create_requested(store, weights, request), StopFlag()) is RunState.DONE
    return store.root


@pytest.fixture
def filled(made: Path, dashboard) -> RunStore:
    shutil.copytree(made, dashboard.store)
    return RunStore(dashboard.store)


def candidates(page: Page) -> Locator:
    """The picture of all candidates, not those for comparison."""
    return page.locator(".st-key-r-tiles").get_by_role("group", name=re.compile(r"^(\d+) of \1 candidates$"))


def picture(page: Page) -> str:
    """The picture that their tiles are cut from, byte by byte: its address is one of this window."""
    sheet = "fetch(grid.style.getPropertyValue('--sheet').slice(5, -2)).then(answer => answer.arrayBuffer())"
    return str(candidates(page).evaluate(f"async grid => new Uint8Array(await {sheet}).join()"))


def go_on(run: Run, gate: Gate) -> None:
    """As far as the next report, with a new picture: the last one is old enough by then."""
    wait_for(lambda: time.time() - (run.dir / "snapshots.safetensors").stat().st_mtime > OLD_SECONDS)
    step = gate.wait_one().step
    gate.move(step + 1)
    gate.wait()


def opened(page: Page, store: RunStore) -> Run:
    return store.open(page.url.partition("run=")[2].partition("&")[0])


def test_start_watch_cancel_resume_and_find_again(dashboard, visit, filled: RunStore) -> None:
    page = visit(f"{dashboard.url}/Reconstruct")
    start = page.get_by_role("button", name="Start", exact=True)
    expect(start).to_be_enabled()
    expect(page.get_by_text("For comparison")).to_be_visible()  # the page is whole
    click(page, page.get_by_text("Options: recipe, candidates"))

    # What cannot be done is said, and nothing that was typed is lost.
    type_into(page, "Candidates", "25")
    expect(page.get_by_text("M must be even")).to_be_visible()
    expect(start).to_be_disabled()
    type_into(page, "Candidates", "24")
    type_into(page, "Iterations per seed", "4000")
    expect(page.get_by_text("24 candidates, recipe copies")).to_be_visible()
    expect(page.get_by_text("M must be even")).to_have_count(0)
    gate = dashboard.gates.close("reconstruct")
    press(page, start, "Enter")

    # Pictures change while it runs, and so do steps and the evaluator's count.
    expect(candidates(page)).to_be_visible()
    expect(page).to_have_url(re.compile("run="))
    run = opened(page, filled)
    seen = {picture(page)}
    for _ in range(2):
        go_on(run, gate)
        wait_for(lambda: picture(page) not in seen, what="a picture that is new")
        seen.add(picture(page))
    expect(page.get_by_text("Scored with the training data, which the attack never sees.")).to_be_visible()
    expect(page.get_by_test_id("stMetricValue").filter(has_text=" of 10").first).to_be_visible()
    expect(page.get_by_test_id("stMain").get_by_test_id("stProgress").first).to_contain_text("of 4,000")

    # Stopped where it was; a reload finds it so.
    page.get_by_role("button", name="Cancel", exact=True).click()
    wait_for(lambda: run.status().state is RunState.CANCELLED)
    stopped_at = run.status().step
    assert stopped_at > 0
    gate.forget()
    gate.move(stopped_at + 1)
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    page.reload()
    expect(candidates(page)).to_be_visible()
    expect(page.get_by_text("cancelled").first).to_be_visible()

    # On it goes from there, and the list leads back to it.
    click(page, page.get_by_role("button", name="Resume", exact=True))
    assert gate.wait_one().step > stopped_at
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
    before = picture(page)
    go_on(run, gate)
    wait_for(lambda: picture(page) != before, what="a picture that is new")
    page.get_by_role("button", name="New reconstruction").click()
    expect(start).to_be_visible()
    page.get_by_test_id("stMain").get_by_role("link", name=re.compile(": attack, seed 0")).first.click()
    expect(candidates(page)).to_be_visible()
    expect(page).to_have_url(re.compile(f"run={run.id}"))
    page.get_by_role("button", name="Cancel", exact=True).click()
    wait_for(lambda: run.status().state is RunState.CANCELLED)


def test_settings_of_a_run_fill_the_form_and_survive_a_reload(dashboard, visit, filled: RunStore) -> None:
    run = next(r for r in filled.list("reconstruct") if filled.open(r.id).config["baseline"] is None)
    page = visit(f"{dashboard.url}/Reconstruct?run={run.id}")
    expect(page.get_by_text("For comparison")).to_be_visible()
    click(page, page.get_by_role("button", name="Use these settings"))
    expect(page.get_by_text("40 candidates, recipe fast")).to_be_visible()
    page.reload()
    expect(page.get_by_text("40 candidates, recipe fast")).to_be_visible()
    expect(page.get_by_text("For comparison")).to_be_visible()  # the page is whole
    click(page, page.get_by_text("Options: recipe, candidates"))
    expect(page.get_by_role("textbox", name="Iterations per seed", exact=True)).to_have_value("150")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1920)])
def test_a_finished_attack_is_readable_and_fits(dashboard, visit, filled, scheme: str, width: int) -> None:
    run = next(r for r in filled.list("reconstruct") if filled.open(r.id).config["baseline"] is None)
    page = visit(f"{dashboard.url}/Reconstruct?run={run.id}", scheme=scheme, width=width)
    expect(page.get_by_text("40 of 40 candidates as the run left them")).to_be_visible()
    expect(candidates(page).get_by_role("button", name=re.compile(r"^candidate \d+$"))).to_have_count(40)
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    compared = page.locator("[class*=st-key-r-card-]").get_by_role(
        "group", name=re.compile(r"^\d+ of [\d,]+ candidates$")
    )
    expect(compared).to_have_count(3)
    # Contrast 1 is what is not there to be seen: the ends of a slider until one points at it.
    assert_readable(page, 10, lambda text: text.contrast == 1)

    # The way there, by keyboard.
    end = picture(page)
    slide(page, "Step", "Home")
    expect(page.get_by_text("40 of 40 candidates at step 0")).to_be_visible()
    wait_for(lambda: picture(page) != end, what="a picture that is new")
