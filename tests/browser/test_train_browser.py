"""Training as a person does it, in a real browser: start, watch, cancel, resume, survive a kill, come back."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, expect

from recon_core.config import TrainConfig, parse_config
from recon_core.kinds import perform
from recon_core.runs.requests import create_training
from recon_core.runs.signals import StopFlag
from recon_core.store import RunState, RunStore
from tests.browser.pages import assert_readable, click, press, settle, type_into
from tests.processes import wait_for

ICONS = {"add"}  # Streamlit's plus sign beside the word Upload
# 10^9 epochs of a small network: nobody waits for its end, and gates hold it where it is looked at.
ENDLESS = (
    "t_preset=circle&t_data.n=6&t_model.widths=30,30&t_training.recipe=paper&t_training.epochs=1000000000"
    "&t_training.target_log_loss=none&t_name=endless"
)


def badge(page: Page, state: str) -> Any:
    return page.locator(".stMarkdownBadge", has_text=state)


def run_in_address(page: Page) -> str:
    expect(page).to_have_url(re.compile(r"[?&]run="))
    match = re.search(r"[?&]run=([a-z0-9_-]+)", page.url)
    assert match
    return match[1]


def field(page: Page, label: str) -> Any:
    return page.get_by_role("textbox", name=label, exact=True)


def choose(page: Page, label: str, words: str) -> None:
    """Pick from a list by typing, as the keyboard does."""
    box = page.get_by_role("combobox", name=label).first
    click(page, box)
    box.fill(words)
    page.get_by_role("option", name=re.compile(re.escape(words))).first.click()


def charts(page: Page) -> Any:
    return page.locator(".js-plotly-plot .main-svg:first-child")


def small_run(store: RunStore, name: str, n: int) -> None:
    values = {
        "data": {"source": "circle", "n": n},
        "model": {"widths": [20, 10], "init_scale": 0.3},
        "training": {"recipe": "flow", "target_loss": 1e-2},
    }
    assert perform(create_training(store, parse_config(TrainConfig, values), name), StopFlag()) is RunState.DONE


def test_a_small_training_from_the_form_to_its_curves(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Train")
    expect(page.get_by_role("heading", name="Train")).to_be_visible()
    choose(page, "What to train on", "20 points on the unit circle")
    expect(page.get_by_text("20 training points")).to_be_visible()
    expect(page.get_by_text("on this machine")).to_be_visible()

    click(page, page.get_by_text("All settings"))
    type_into(page, "Training samples", "7", "Tab")
    expect(page.get_by_role("alert")).to_contain_text("=7 cannot be split evenly")
    expect(page.get_by_role("button", name="Start training")).to_be_disabled()
    type_into(page, "Training samples", "8", "Tab")
    type_into(page, "Hidden layer widths (neurons)", "40,20", "Tab")
    type_into(page, "Initialisation scale (std. dev.)", "0.3", "Tab")
    type_into(page, "Name", "small one", "Tab")
    expect(page.get_by_text("8 training points")).to_be_visible()
    expect(page).to_have_url(re.compile("t_model.widths=40"))
    click(page, page.get_by_role("button", name="Start training"))

    expect(page.get_by_role("heading", name="small one")).to_be_visible()
    expect(badge(page, "done")).to_be_visible()
    expect(page.get_by_text("explained by the training samples")).to_be_visible()
    expect(charts(page)).to_have_count(5)
    run = RunStore(dashboard.store).open(run_in_address(page))
    assert (run.config["data"]["n"], run.config["model"]["widths"]) == (8, [40, 20])

    page.reload()
    expect(page.get_by_role("heading", name="small one")).to_be_visible()
    expect(charts(page)).to_have_count(5)
    click(page, page.get_by_text("Epochs of gradient descent"))
    expect(page.locator(".xtitle").first).to_have_text("epochs of gradient descent")
    page.reload()
    expect(page.locator(".xtitle").first).to_have_text("epochs of gradient descent")

    click(page, page.get_by_role("button", name="Use these settings"))
    expect(page.get_by_text("Changed:")).to_contain_text("Hidden layer widths (neurons) = 40,20")
    expect(page.get_by_role("button", name="Train it again")).to_be_enabled()
    expect(page).not_to_have_url(re.compile("run="))
    click(page, page.get_by_role("button", name="Open it"))
    expect(page.get_by_role("heading", name="small one")).to_be_visible()


def test_cancel_resume_and_a_killed_worker(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Train?{ENDLESS}")
    gate = dashboard.gates.close("train")
    click(page, page.get_by_role("button", name="Start training"))
    expect(badge(page, "running")).to_be_visible()
    run = RunStore(dashboard.store).open(run_in_address(page))
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_text("steps/s")).to_be_visible()
    expect(charts(page).first).to_be_visible()
    first = gate.wait_one().step
    wait_for(lambda: progress_step(page) == first)
    gate.move(first + 1)
    wait_for(lambda: progress_step(page) > first)

    other = visit(f"{dashboard.url}/?run={run.id}")  # somebody else, looking at the same run
    expect(badge(other, "running")).to_be_visible()

    page.get_by_role("button", name="Cancel").click()
    wait_for(lambda: run.status().state is RunState.CANCELLED)
    expect(badge(page, "cancelled")).to_be_visible()
    expect(badge(other, "cancelled")).to_be_visible()
    reached = run.status().step
    assert reached > first
    gate.forget()
    gate.move(reached + 1)

    click(page, page.get_by_role("button", name="Resume"))
    expect(badge(page, "running")).to_be_visible()
    arrival = gate.wait_one()
    assert arrival.step > reached
    os.kill(arrival.pid, signal.SIGKILL)
    expect(badge(page, "interrupted")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("ended unexpectedly")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(badge(other, "interrupted")).to_be_visible()

    page.reload()
    expect(badge(page, "interrupted")).to_be_visible()
    expect(charts(page).first).to_be_visible()
    click(page, page.get_by_role("button", name="Resume"))
    expect(badge(page, "running")).to_be_visible()


def test_settings_survive_page_switches_and_reloads(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Train?t_preset=circle&t_data.n=12")
    expect(page.get_by_text("12 training points")).to_be_visible()
    click(page, page.get_by_test_id("stSidebarNav").get_by_role("link", name="Match"))
    expect(page).to_have_title(re.compile("Match"))
    click(page, page.get_by_test_id("stSidebarNav").get_by_role("link", name="Train"))
    expect(page.get_by_text("12 training points")).to_be_visible()
    page.reload()
    expect(page.get_by_text("12 training points")).to_be_visible()
    click(page, page.get_by_role("button", name="Reset to the preset"))
    expect(page.get_by_text("20 training points")).to_be_visible()
    expect(page).not_to_have_url(re.compile("t_data"))
    expect(page).to_have_url(re.compile("t_preset=circle"))


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1920)])
def test_every_view_is_readable(dashboard, visit, tmp_path: Path, scheme: str, width: int) -> None:
    store = RunStore(dashboard.store)
    small_run(store, "six", 6)
    small_run(store, "eight", 8)
    ids = [run.id for run in store.list()]

    page = visit(f"{dashboard.url}/Train", scheme, width)
    click(page, page.get_by_text("All settings"))
    expect(field(page, "Hidden layer widths (neurons)")).to_be_visible()
    expect(page.get_by_text("on this machine")).to_be_visible()
    assert_readable(page, 5, lambda text: text.text in ICONS)

    page.goto(f"{dashboard.url}/Train?t_view=Trained+networks&t_cmp={ids[0]}&t_cmp={ids[1]}")
    expect(page.get_by_text("Side by side")).to_be_visible()
    expect(charts(page)).to_have_count(4)
    expect(page.locator(".legendtext").first).to_have_text(re.compile("six|eight"))
    assert_readable(page, 5, lambda text: text.text in ICONS)
    click(page, page.get_by_role("button", name="Open six"))
    expect(page.get_by_role("heading", name="six")).to_be_visible()
    expect(charts(page)).to_have_count(5)
    assert_readable(page, 5, lambda text: text.text in ICONS)

    checkpoint = tmp_path / "theirs.pth"
    layers = (torch.nn.Linear(192, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1, bias=False))
    torch.save(torch.nn.Sequential(*layers).state_dict(), checkpoint)
    page.goto(f"{dashboard.url}/Train?t_view=Import")
    settle(page)
    page.get_by_test_id("stFileUploaderDropzoneInput").first.set_input_files(checkpoint)
    expect(page.get_by_text("What was inferred")).to_be_visible()
    assert_readable(page, 5, lambda text: text.text in ICONS)
    click(page, page.get_by_role("button", name="Import it"))
    expect(page.get_by_role("heading", name="theirs.pth")).to_be_visible()
    assert [run.name for run in store.list("model")] == ["theirs.pth"]


def test_a_preset_is_chosen_by_its_picture(dashboard, visit) -> None:
    page = visit(f"{dashboard.url}/Train")
    click(page, page.get_by_role("button", name="Choose by figure"))
    dialog = page.get_by_role("dialog")
    groups = dialog.get_by_role("group")
    expect(groups).to_have_count(8)
    chosen = dialog.get_by_role("button", name="25 animals and 25 vehicles (cifar10-50)")
    expect(chosen).to_have_attribute("aria-pressed", "true")
    click(page, dialog.get_by_role("button", name="10 classes, 5 images each"))
    expect(dialog).to_have_count(0)
    expect(page).to_have_url(re.compile("t_preset=cifar10-multiclass"))
    expect(page.get_by_text("50 training images")).to_be_visible()
    # The keyboard is seen where it is.
    press(page, page.get_by_role("button", name="Choose by figure"), "Tab")
    focused = page.locator(":focus")
    assert focused.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"


def progress_step(page: Page) -> int:
    match = re.search(
        r"step ([\d,]+) of", page.get_by_test_id("stMain").get_by_test_id("stProgress").first.inner_text()
    )
    return int(match[1].replace(",", "")) if match else 0
