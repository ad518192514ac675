"""The first minutes in a real browser, by the stopwatch: seconds from a click to what it was clicked for.

A server that nobody has visited yet, Chromium at 1280 x 800, and a store that is empty until the buttons fill it.
With `--busy` all of it once more while another process keeps one core busy.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch
from playwright.sync_api import Page

from benchmarks import time_left
from benchmarks.browsers import START_SECONDS, chromium, dashboard
from recon_core.config import TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.store import RunState, RunStore
from ui.shared.pages import HOME
from ui.shared.pages import PAGES as PAGES_OF_APP

SIZE = {"width": 1280, "height": 800}
IMAGES, CANDIDATES_EACH = 500, 4
PATIENCE = 600.0
PAGES = (*(page.title for page in PAGES_OF_APP if page is not HOME), "Home")
MOVES = 5
STEP = 0.1  # of a slider's track, in one move of the mouse

# Components stand in shadow roots; `find` looks into all of them.
FIND = """const find = (selector, root = document) => root.querySelector(selector)
  ?? [...root.querySelectorAll('*')].reduce(
    (found, e) => found ?? (e.shadowRoot && find(selector, e.shadowRoot)), null);"""
# When the grid had been painted at what the slider says, after the mouse moved, by the browser's own clock.
WATCH = f"""({{shows, label}}) => {{ {FIND}
  const board = find('.board'), slider = document.querySelector(`input[aria-label="${{label}}"]`);
  const before = slider.value;
  window.moved = window.painted = null;
  const once = {{capture: true, once: true}};
  document.addEventListener('pointermove', () => {{ window.moved = performance.now(); }}, once);
  const watcher = new MutationObserver(() => {{
    if (window.moved === null || slider.value === before || board.dataset[shows] !== slider.value) return;
    watcher.disconnect();
    requestAnimationFrame(() => setTimeout(() => {{ window.painted = performance.now(); }})); // that frame is out
  }});
  watcher.observe(board, {{attributes: true}});
}}"""


def measure(busy: bool = False) -> dict[str, float]:
    """Seconds, by name; with `busy` those of a machine with one core taken too, and the worst ratio of the two."""
    found = _round()
    if busy:
        with _one_core_busy():
            beside = _round()
        found |= {f"busy_{name}": value for name, value in beside.items()}
        ratios = {name: seconds / found[name] for name, seconds in beside.items()}
        found["busy_over_quiet_worst"] = max(ratios.values())
        found |= {f"busy_over_quiet_{name}": ratio for name, ratio in ratios.items()}
    return {**found, **time_left.of_made_runs(), "match_images": IMAGES}


def _round() -> dict[str, float]:
    found: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="afterimage-") as folder,
        dashboard(Path(folder) / "runs") as url,
        chromium() as browser,
    ):
        store = RunStore(Path(folder) / "runs")
        for part in (_circle, _cifar, _pages, _match):
            context = browser.new_context(viewport=SIZE)
            context.set_default_timeout(1000 * PATIENCE)
            try:
                found |= part(context.new_page(), url, store)
            finally:
                context.close()
                _stop_all(store)
    return found


def _circle(page: Page, url: str, store: RunStore) -> dict[str, float]:
    """From the first click anybody makes, on a server that has drawn nothing but the home page."""
    page.goto(url)
    opened = _seconds(page, lambda: _press(page, "Watch the circle"), ".player", "Number(it.dataset.time) > 0")
    _wait(page, ".player", "it.dataset.frame.startsWith('training:')")
    # A run moves once a second picture of it has come.
    live = _seconds(
        page, lambda: _press(page, "Run it live"), ".player", "it.dataset.mode === 'live' && it.dataset.received > 0"
    )
    return {"circle_moves": opened, "circle_live_moves": live}


def _cifar(page: Page, url: str, store: RunStore) -> dict[str, float]:
    page.goto(url)
    began = _press(page, "Reconstruct CIFAR images")
    found = {}
    for name, condition in (
        ("cifar_first_candidates", "it.dataset.candidates > 0"),
        ("cifar_first_good_pair", "it.dataset.good > 0"),
    ):
        _wait(page, ".gallery", condition)
        found[name] = time.perf_counter() - began
    page.get_by_role("button", name="Open in Match").wait_for()
    found["cifar_result"] = time.perf_counter() - began
    shown = datetime.now(UTC)
    [attack] = [
        run for run in store.list("reconstruct") if run.status.state is RunState.DONE and not _is_control(store, run.id)
    ]
    ended = datetime.fromisoformat(attack.status.updated or attack.created)
    found["cifar_attack"] = attack.status.seconds
    found["cifar_result_after_attack"] = (shown - ended).total_seconds()
    page.get_by_text("held-out images …").wait_for(state="detached")
    found["cifar_controls"] = time.perf_counter() - began
    return found


def _pages(page: Page, url: str, store: RunStore) -> dict[str, float]:
    """Every page twice, with one experiment to show; until its heading stands there and its script has ended."""
    page.goto(url)
    _idle(page)
    taken = []
    for name in PAGES * 2:
        link = page.get_by_test_id("stSidebarNavLink").filter(has_text=name if name != "Home" else "app")
        began = time.perf_counter()
        link.click()
        heading = "Afterimage" if name == "Home" else name
        page.get_by_role("heading", name=heading, exact=True, level=1).wait_for()
        _idle(page)
        taken.append(time.perf_counter() - began)
    return {"page_switch": statistics.median(taken), "page_switch_worst": max(taken)}


def _match(page: Page, url: str, store: RunStore) -> dict[str, float]:
    """500 images: from a move of the mouse that holds a slider to the grid as that slider says."""
    attacked = _fill(store)
    page.goto(f"{url}/Match?from={attacked}")
    page.wait_for_url(re.compile("m_runs="))
    # The best first would leave the images at the threshold on another page of the grid.
    page.goto(f"{page.url}&m_sort=as+in+the+training+set")
    _wait(page, ".mosaic", "it.children[1]?.dataset.id === '1'")
    _idle(page)
    return {
        "threshold_drag_to_grid": _drag(page, "Good means SSIM above", "threshold"),
        "b_drag_to_grid": _drag(page, "Merge factor B", "merging"),
    }


def _drag(page: Page, label: str, shows: str) -> float:
    """The median of some moves of one drag; what the board says it `shows` must become what the slider says."""
    handle = page.get_by_role("slider", name=label)
    knob, track = (handle.locator(f"xpath={way}").bounding_box() for way in ("../..", "../../.."))
    if knob is None or track is None:
        raise RuntimeError(f"the slider {label!r} is not on the page")
    x, y = knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    taken = []
    for move in range(1, MOVES + 1):
        page.evaluate(WATCH, {"shows": shows, "label": label})
        page.mouse.move(x + move * STEP * track["width"], y)
        page.wait_for_function("() => window.painted !== null", polling=20)
        taken.append(page.evaluate("() => (window.painted - window.moved) / 1000"))
    page.mouse.up()
    _idle(page)
    return statistics.median(taken)


def _press(page: Page, name: str) -> float:
    """When it was clicked."""
    button = page.get_by_role("button", name=name)
    button.wait_for()
    began = time.perf_counter()
    button.click()
    return began


def _seconds(page: Page, press: Callable[[], float], selector: str, condition: str) -> float:
    began = press()
    _wait(page, selector, condition)
    return time.perf_counter() - began


def _wait(page: Page, selector: str, condition: str) -> None:
    page.wait_for_function(
        f"selector => {{ {FIND} const it = find(selector); return it && ({condition}); }}", arg=selector
    )


def _idle(page: Page) -> None:
    """Until the server has answered all that was asked."""
    page.wait_for_function(
        """() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
          && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]')"""
    )


def _fill(store: RunStore) -> str:
    """A network nobody trained and candidates that are its images under noise; the id of the attack's run."""
    config = parse_config(
        TrainConfig,
        {"data": {"source": "cifar10", "n": IMAGES}, "model": {"widths": [8]}, "training": {"epochs": 1}},
    )
    data = load_task(config.data)
    model = store.create("train", config.model_dump(mode="json"), name="500 images")
    with model.writer() as writer:
        writer.start(1)
        writer.save_tensors("samples", {"outputs": torch.ones(IMAGES, 1)})
        writer.finish(RunState.DONE, {"data": {"fingerprint": data.fingerprint}})
    noise = torch.Generator().manual_seed(0)
    # Good and bad ones mixed, so that every page of the grid holds some at any threshold.
    spread = torch.linspace(0.02, 0.4, IMAGES)[torch.randperm(IMAGES, generator=noise)].reshape(-1, 1, 1, 1)
    copies = [data.train_x + spread * torch.randn(data.train_x.shape, generator=noise) for _ in range(CANDIDATES_EACH)]
    candidates = torch.cat(copies)
    count = len(candidates)
    run = store.create("reconstruct", {"model": model.id, "settings": {"m": count}}, parents=[model.id])
    with run.writer() as writer:
        writer.start(1)
        numbers = torch.zeros(count, dtype=torch.long)
        writer.save_tensors(
            "candidates",
            {"candidates": candidates, "multipliers": torch.ones(count), "labels": numbers, "seeds": numbers + 0},
        )
        writer.finish(RunState.DONE, {"candidates": count})
    return run.id


def _is_control(store: RunStore, run_id: str) -> bool:
    return bool(store.open(run_id).config.get("baseline"))


def _stop_all(store: RunStore) -> None:
    """Nothing of one part is left at work in the next."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        active = [run for run in store.list() if run.status.state in (RunState.QUEUED, RunState.RUNNING)]
        if not active:
            return
        for run in active:
            store.open(run.id).request_cancel()
        time.sleep(0.2)
    raise RuntimeError(f"{len(active)} runs did not stop within {START_SECONDS:g} s")


@contextlib.contextmanager
def _one_core_busy() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
