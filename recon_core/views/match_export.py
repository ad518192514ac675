"""What a page shows of a matching, as files: the grid, the table, and a zip of both with every pair."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from recon_core.analysis.frames import csv_text
from recon_core.analysis.pairs import BestPairs
from recon_core.plots.mosaic import pairs_mosaic, pixels
from recon_core.plots.sheet import png
from recon_core.runs.match_source import MatchConfig
from recon_core.views.live_match import ImagePool, PairView


def grid_png(view: PairView, samples: Sequence[int], threshold: float, columns: int = 10) -> bytes:
    """The pairs of those training images in that order: image above reconstruction, framed by whether it is good."""
    chosen = np.asarray(samples, dtype=np.int64)
    shown = BestPairs(view.images[chosen], view.reconstructions[chosen], view.ssim[chosen], chosen, threshold)
    return png(pairs_mosaic(shown, columns))


def pairs_csv(pool: ImagePool, view: PairView, samples: Sequence[int], threshold: float) -> bytes:
    """One row for each of those training images, in that order."""
    frame = pool.table(view, threshold).to_frame().iloc[list(samples)]
    return csv_text(frame).encode()


def pairs_zip(pool: ImagePool, view: PairView, samples: Sequence[int], config: MatchConfig) -> bytes:
    """`pairs.csv`, `grid.png`, `settings.json` and for every training image `pairs/<number>.png`, pixel for pixel."""
    file = io.BytesIO()
    images, reconstructions = pixels(view.images), pixels(view.reconstructions)
    settings = {
        "model": pool.source.model_run.id,
        "request": config.model_dump(mode="json"),
        "settings": view.settings.model_dump(mode="json"),
        "count": asdict(view.count(config.threshold)),
        "auc": view.auc,
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("settings.json", json.dumps(settings, indent=2) + "\n")
        archive.writestr("pairs.csv", pairs_csv(pool, view, samples, config.threshold))
        archive.writestr("grid.png", grid_png(view, samples, config.threshold))
        for sample in samples:
            pair = np.concatenate([images[sample], reconstructions[sample]])
            archive.writestr(f"pairs/{sample:05d}.png", png(pair))
    return file.getvalue()
