"""The first minutes in a real browser: something moves from the first click, and the result comes before its controls.

The circle's part is in test_circle_browser.py; how long all of it takes is measured by `benchmarks/first_minutes.py`.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from recon_core.config import TrainConfig, parse_config
from recon_core.runs.chains import Chain, create_attack_chain
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore
from tests.browser.pages import assert_readable, click
from tests.processes import wait_for

SMALL = {
    "data": {"source": "cifar10", "n": 4},
    "model": {"widths": [20]},
    "training": {"recipe": "flow", "target_log_loss": -40.0},
}


@pytest.fixture
def chain(dashboard, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """An experiment on four images in line; whoever opens the app sets it going."""
    made = create_attack_chain(RunStore(dashboard.store), parse_config(TrainConfig, SMALL), attack={"iterations": 60})
    with monkeypatch.context() as patch:
        patch.setattr(queue, "ensure_scheduler", lambda root: None)
        for run in made.runs:
            queue.submit(run, queue.Priority.CONTROL if run is made.match else None)
    return made


def gallery_of(page: Page) -> Locator:
    gallery = page.locator(".gallery")
    expect(gallery).to_be_visible()
    return gallery


def test_the_button_shows_images_at_once_and_margins_as_they_grow(dashboard, visit) -> None:
    page = visit(dashboard.url)
    training = dashboard.gates.close("train", step=100)
    click(page, page.get_by_role("button", name="Reconstruct CIFAR images"))
    gallery = gallery_of(page)
    expect(gallery.locator(".pair")).to_have_count(20)
    expect(gallery).to_have_attribute("data-pairs", "0")
    training.wait()
    margins = page.locator(".margins")
    expect(margins).to_have_attribute("data-points", re.compile(r"^\d{2,}$"))  # one every ten steps
    expect(page.get_by_test_id("stMain").get_by_text("on its way to -434")).to_be_visible()
    before = float(margins.get_attribute("data-highest") or "nan")
    expect(page.get_by_role("progressbar")).to_have_count(0)
    training.move(200)
    wait_for(lambda: float(margins.get_attribute("data-highest") or "nan") > before, what="margins that grow")


def test_candidates_pairs_result_and_controls_in_that_order(dashboard, visit, chain: Chain) -> None:
    attack, controls = (
        dashboard.gates.close("reconstruct", step=20, words=(run.id,))
        for run in (chain.attack, *chain.baselines.values())
    )
    page = visit(f"{dashboard.url}/?chain={chain.runs[-1].id}")
    gallery = gallery_of(page)
    expect(gallery).to_have_attribute("data-candidates", str(chain.attack.config["settings"]["m"]))
    expect(gallery).to_have_attribute("data-pairs", "4")
    attack.wait()
    expect(page.get_by_text("Good reconstructions")).to_be_visible()
    expect(page.get_by_text("Chance level")).to_be_visible()
    expect(page.get_by_role("button", name="Open in Match")).to_have_count(0)
    early = gallery.get_attribute("data-version") or ""
    assert_order(gallery)

    attack.open()
    # The result is there while the controls, which nobody waits for, are held.
    expect(page.get_by_role("button", name="Open in Match")).to_be_visible()
    expect(gallery).not_to_have_attribute("data-version", early)
    controls.wait()
    assert [run.status().state for run in chain.baselines.values()] == [RunState.RUNNING]
    expect(page.get_by_text("untrained network …")).to_be_visible()
    assert_order(gallery)

    controls.open()
    expect(page.get_by_text(re.compile(r"untrained network \d+; held-out images \d+ of \d+"))).to_be_visible()
    expect(page.get_by_text("untrained network …")).to_have_count(0)
    assert_readable(page, 8)
    click(page, page.get_by_role("button", name="Open in Match"))
    expect(page).to_have_url(re.compile("/Match"))


def assert_order(gallery: Locator) -> None:
    """On the screen, from left to right, pairs get worse."""

    def scores() -> list[float]:
        places = gallery.locator(".pair").evaluate_all(
            "pairs => pairs.map(pair => [new DOMMatrix(pair.style.transform).m41, pair.innerText])"
        )
        return [float(re.sub(r"[^\d.-]", "", text)) for _, text in sorted(places)]

    wait_for(lambda: len(scores()) == 4 and scores() == sorted(scores(), reverse=True), what="pairs in order")
