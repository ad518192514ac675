"""`python -m assets.make_screens`: the README's pictures, taken from the running app in a real browser.

Makes the runs they show first, then starts the dashboard on them: one picture of each page, and the circle's recording
as a moving one. Needs Chromium and the packages of requirements-dev.txt; some five minutes on two cores.
"""

from __future__ import annotations

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
from recon_core.runs.chains import create_attack_chain
from recon_core.runs.circle import CircleSettings
from recon_core.store import Run, RunState, RunStore

FOLDER = Path(__file__).parent / "screens"
SIZE = {"width": 1280, "height": 800}
FRAMES = 90
FRAME_MILLISECONDS = 90
GIF_SIDE = 420
PATIENCE = 120_000


def do(*runs: Run) -> None:
    for run in runs:
        if perform(run, StopFlag()) is not RunState.DONE:
            raise SystemExit(f"{run.id} is {run.status().state}: {run.status().message}")


def make_runs(store: RunStore) -> dict[str, str]:
    """The default experiment, one with weight decay, and a circle; the addresses that show them."""
    chains = [create_attack_chain(store, find_preset(name).config()) for name in ("cifar10-50-decay", "cifar10-50")]
    for chain in chains:
        do(*chain.runs)
    do(*CircleSettings().queue(store))
    train, attack = (next(run for run in chains[-1].runs if run.kind == kind) for kind in ("train", "reconstruct"))
    return {
        "home": "",
        "circle": "?view=circle",
        "train": f"Train?run={train.id}",
        "reconstruct": f"Reconstruct?run={attack.id}",
        "match": f"Match?from={attack.id}",
        "analyze": "Analyze",
        "studies": "Studies",
    }


def settle(page: Page) -> None:
    """Until nothing has been drawn for two seconds."""
    page.locator("h1, h2").first.wait_for(timeout=PATIENCE)
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
        frames.append(frame.quantize(96, dither=Image.Dither.NONE))
    times = [FRAME_MILLISECONDS] * (FRAMES - 1) + [3000]
    frames[0].save(
        FOLDER / "circle.gif", save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True
    )
    sys.stdout.write(f"circle.gif, {(FOLDER / 'circle.gif').stat().st_size / 2**20:.1f} MiB\n")


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    # The browser first: where there is none, the runs are not made in vain.
    with chromium() as browser, tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        views = make_runs(RunStore(Path(folder)))
        with dashboard(Path(folder)) as url:
            page = browser.new_page(viewport=SIZE)
            take_pages(page, f"{url}/", views)
            take_circle(page, f"{url}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
