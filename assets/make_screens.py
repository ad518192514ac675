"""`python -m assets.make_screens`: the README's pictures, taken from the running app in a real browser.

Makes the runs they show first, then starts the dashboard on them: one picture of each page, and the circle's recording
as a moving one. `--store FOLDER` keeps the runs there and makes only those it lacks. Needs Chromium and the packages of
requirements-dev.txt; some five minutes on two cores.
"""

from __future__ import annotations

import argparse
import base64
import io
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from benchmarks.browsers import chromium, dashboard
from recon_core.kinds import perform
from recon_core.presets import find_preset
from recon_core.runs import StopFlag
from recon_core.runs.chain_search import find_attack_chain
from recon_core.runs.chains import create_attack_chain
from recon_core.runs.circle import CircleSettings
from recon_core.store import Run, RunState, RunStore

FOLDER = Path(__file__).parent / "screens"
SIZE = {"width": 1280, "height": 800}
FRAMES = 50
FRAME_MILLISECONDS = 150
GIF_SIDE = 320
COLOURS = 48
PATIENCE = 300_000
FINISHED = """() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
  && !document.querySelector('[data-stale=true], [data-testid=stSkeleton], [data-testid=stSpinner]')
  && ![...document.querySelectorAll('[data-testid=stAlert]')].some(e => e.innerText.includes('Opening'))"""


def do(*runs: Run) -> None:
    for run in runs:
        if perform(run, StopFlag()) is not RunState.DONE:
            raise SystemExit(f"{run.id} is {run.status().state}: {run.status().message}")


def make_runs(store: RunStore) -> dict[str, str]:
    """The default experiment, one with weight decay, and a circle; the addresses that show them."""
    for name in ("cifar10-50-decay", "cifar10-50"):
        if find_attack_chain(store, find_preset(name).config()) is None:
            do(*create_attack_chain(store, find_preset(name).config()).runs)
    if not any(run.kind == "train" and run.name == CircleSettings().title() for run in store.list()):
        do(*CircleSettings().queue(store))
    found = find_attack_chain(store, find_preset("cifar10-50").config())
    if found is None:
        raise SystemExit("the store has no finished experiment of preset cifar10-50")
    train, attack = found.train, found.attack
    return {
        "home": "",
        "circle": "?view=circle",
        "train": f"Train?run={train.id}",
        "reconstruct": f"Reconstruct?run={attack.id}",
        "match": f"Match?from={attack.id}",
        "analyze": "Analyze",
        "studies": "Studies",
        "experiments": "Experiments",
        "audit": "Audit",
        "how": "How_it_works",
        "results": "Results",
    }


def settle(page: Page) -> None:
    """Until the server has answered, nothing is still being opened, and nothing has been drawn for two seconds."""
    page.locator("h1, h2").first.wait_for(timeout=PATIENCE)
    page.wait_for_function(FINISHED, timeout=PATIENCE)
    seen, since = "", time.monotonic()
    deadline = since + PATIENCE / 1000
    while time.monotonic() - since < 2.0 and time.monotonic() < deadline:
        now = page.locator('[data-testid="stMain"]').inner_html()
        if now != seen:
            seen, since = now, time.monotonic()
        page.wait_for_timeout(250)


def take_pages(page: Page, address: str, views: Mapping[str, str]) -> None:
    for name, view in views.items():
        page.goto(address + view)
        settle(page)
        page.screenshot(path=FOLDER / f"{name}.png")
        sys.stdout.write(f"{name}.png\n")


def take_circle(page: Page, address: str) -> None:
    """The recording from its first moment to its last, read off the canvas itself."""
    page.goto(f"{address}?view=circle")
    settle(page)
    player = page.locator(".player")
    scrub = player.locator("input[type=range]").first
    low, high = (float(scrub.get_attribute(name) or 0) for name in ("min", "max"))
    frames = []
    for number in range(FRAMES):
        value = low + (high - low) * number / (FRAMES - 1)
        scrub.evaluate(
            "(bar, value) => { bar.value = value; bar.dispatchEvent(new Event('input', {bubbles: true})); }", value
        )
        page.wait_for_timeout(60)
        url = player.evaluate("root => root.querySelector('.screen canvas').toDataURL()")
        image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGBA")
        ground = Image.new("RGBA", image.size, "white")
        frame = Image.alpha_composite(ground, image).convert("RGB")
        frame.thumbnail((GIF_SIDE, GIF_SIDE), Image.Resampling.LANCZOS)
        frames.append(frame.quantize(COLOURS, dither=Image.Dither.NONE))
    times = [FRAME_MILLISECONDS] * (FRAMES - 1) + [3000]
    frames[0].save(
        FOLDER / "circle.gif", save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True
    )
    sys.stdout.write(f"circle.gif, {(FOLDER / 'circle.gif').stat().st_size / 2**20:.1f} MiB\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Take the README's pictures.")
    parser.add_argument("--store", type=Path, help="keep the runs in this folder, and use those it has")
    asked = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    # The browser first: where there is none, the runs are not made in vain.
    with chromium() as browser, tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        root = asked.store or Path(folder)
        views = make_runs(RunStore(root))
        with dashboard(root) as url:
            page = browser.new_page(viewport=SIZE)
            take_pages(page, f"{url}/", views)
            take_circle(page, f"{url}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
