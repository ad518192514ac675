"""`python -m assets.make_pictures`: the picture on the home page, out of a real run made on the spot.

Trains the default network, attacks its weights, and puts the best reconstructions below the images they are of.
About a minute on two cores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from recon_core.analysis.pairs import BestPairs, best_pairs
from recon_core.kinds import perform
from recon_core.presets import DEFAULT_PRESET, find_preset
from recon_core.runs import StopFlag
from recon_core.runs.chains import create_attack_chain
from recon_core.store import Run, RunState, RunStore

FOLDER = Path(__file__).parent
HOME_PICTURE = FOLDER / "home.png"
PAIRS = 8
SCALE = 3  # whole pixels, so that nothing is smoothed
GAP = 10
_DOWN = 26  # between an image and what came back of it


def matched_run(store: RunStore) -> Run:
    """The default experiment, done here and now."""
    chain = create_attack_chain(store, find_preset(DEFAULT_PRESET).config())
    for run in chain.runs:
        state = perform(run, StopFlag())
        if state is not RunState.DONE:
            raise SystemExit(f"{run.id} is {state}: {run.status().message}")
    assert chain.match is not None
    return chain.match


def home_picture(pairs: BestPairs) -> Image.Image:
    """Two rows on a transparent ground, for light and dark pages: training images, reconstructions."""
    side = pairs.images.shape[-1] * SCALE
    width = len(pairs.images) * (side + GAP) - GAP
    sheet = np.zeros((2 * side + _DOWN, width, 4), dtype=np.uint8)
    for column, (image, reconstruction) in enumerate(zip(pairs.images, pairs.reconstructions, strict=True)):
        left = column * (side + GAP)
        for top, picture in ((0, image), (side + _DOWN, reconstruction)):
            sheet[top : top + side, left : left + side] = _pixels(picture)
    return Image.fromarray(sheet)


def _pixels(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(C, H, W) in [0, 1] -> (H, W, 4), enlarged, opaque."""
    colours = (np.nan_to_num(image).clip(0.0, 1.0) * 255).round().astype(np.uint8).transpose(1, 2, 0)
    opaque = np.full((*colours.shape[:2], 1), 255, dtype=np.uint8)
    return np.concatenate([colours, opaque], axis=2).repeat(SCALE, axis=0).repeat(SCALE, axis=1)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        found = matched_run(RunStore(Path(folder))).tensors("match")
    pairs = best_pairs(found["images"], found["reconstructions"], found["ssim"], PAIRS, threshold=0.4)
    home_picture(pairs).save(HOME_PICTURE, format="PNG", optimize=True)
    sys.stdout.write(f"{HOME_PICTURE.name}: SSIM {pairs.ssim.min():.2f} to {pairs.ssim.max():.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
