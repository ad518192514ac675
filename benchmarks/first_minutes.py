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
from pathlib import Path

import torch
from playwright.sync_api import Page

from benchmarks.browsers import START_SECONDS, chromium, dashboard
from recon_core.config import TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.scheduling.time_left import replay
from recon_core.store import RunState, RunStore

SIZE = {"width": 1280, "height": 800}
IMAGES, CANDIDATES_EACH = 500, 4
PATIENCE = 240.0
PAGES = ("Analyze", "Match", "Train", "Reconstruct", "Studies", "Home")
MOVES = 5

# Components stand in shadow roots; `find` looks into all of them.
FIND = """const find = (selector, root = document) => root.querySelector(selector)
  ?? [...root.querySelectorAll('*')].reduce(
    (found, e) => found ?? (e.shadowRoot && find(selector, e.shadowRoot)), null);"""
# When the grid changed after a key was pressed, by the browser's own clock.
WATCH = f"""() => {{ {FIND}
  const grid = find('.mosaic');
  window.pressed = window.changed = null;
  document.addEventListener('keydown', () => {{ window.pressed = performance.now(); }}, {{capture: true, once: true}});
  const note = () => {{ if (window.pressed !== null) window.changed ??= performance.now(); }};
  window.watcher?.disconnect();
  window.watcher = new MutationObserver(note);
  window.watcher.observe(grid, {{subtree: true, childList: true, attributes: true, characterData: true}});
}}"""


def measure(busy: bool = False) -> dict[str, float]:
    """Seconds, by name; with `busy` those of a machine with one core taken too, and the worst ratio of the two."""
    found = _round()
    if busy:
        with _one_core_busy():
            beside = _round()
        found |= {f"busy_{name}": value for name, value in beside.items()}
        seconds = [name for name in beside if not name.startswith("time_left")]
        found["busy_over_quiet_worst"] = max(beside[name] / found[name] for name in seconds)
    return {**found, "match_images": IMAGES}


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
        told = replay(store)
    return {**found, **told.figures()}


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
    [attack] = [
        run for run in store.list("reconstruct") if run.status.state is RunState.DONE and not _is_control(store, run.id)
    ]
    found["cifar_attack"] = attack.status.seconds
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
    """500 images: from a key on a slider to the first change of the grid."""
    attacked = _fill(store)
    page.goto(f"{url}/Match?from={attacked}")
    page.wait_for_url(re.compile("m_runs="))
    # The best first would leave the images at the threshold on another page of the grid.
    page.goto(f"{page.url}&m_sort=as+in+the+training+set")
    _wait(page, ".mosaic", "it.children[1]?.dataset.id === '1'")
    _idle(page)
    return {
        "threshold_drag_to_grid": _moves(page, "Good means SSIM above"),
        "b_drag_to_grid": _moves(page, "Merge factor B"),
    }


def _moves(page: Page, label: str) -> float:
    """The median of some moves of a slider, each of which changes the grid."""
    handle = page.get_by_role("slider", name=label)
    taken = []
    for _ in range(MOVES):
        _idle(page)
        page.evaluate(WATCH)
        handle.press("PageUp")
        page.wait_for_function("() => window.changed !== null")
        taken.append(page.evaluate("() => (window.changed - window.pressed) / 1000"))
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
