"""Candidates as pictures, each of which opens beside the training image it resembles most."""

from __future__ import annotations

from recon_core.matching.protocol import GOOD_SSIM
from recon_core.views.live_reconstruction import TileOrder, Truth
from ui.reconstruct.cached import PictureKey, Tiles, tile_pairs, tiles, truth
from ui.shared.mosaic import Tile, show_mosaic
from ui.shared.pair_view import Pair, PairSet, match_link, score_facts


def show_tiles(
    newest: PictureKey, order: TileOrder, most: int, across: int, *, model_id: str | None, opens: bool, key: str
) -> Tiles | None:
    """What is shown. A run at work does not open its candidates, which move: `opens` is false."""
    found = tiles(newest, order, most)
    if found is None:
        return None
    shown = [Tile(place, "", f"candidate {row}") for place, row in enumerate(found.rows)]
    pairs = _pairs(newest, order, most, model_id) if model_id is not None and opens else None
    name = f"{len(shown):,} of {found.total:,} candidates"
    show_mosaic(found.sheet, shown, key=key, name=name, across=min(across, max(1, len(shown))), pairs=pairs)
    return found


def _pairs(newest: PictureKey, order: TileOrder, most: int, model_id: str) -> PairSet | None:
    """Scored with the training images, where they are at hand."""
    beside = tile_pairs(model_id, newest, order, most) if truth(model_id) is Truth.AT_HAND else None
    if beside is None:
        return None
    found = beside.found
    return PairSet(
        [
            Pair(
                place,
                f"Candidate {place + 1}, beside training image {sample}: {name}",
                sample,
                place,
                score_facts(ssim, GOOD_SSIM, "SSIM of this candidate alone"),
                match_link(newest.run.run_id, sample),
            )
            for place, (sample, ssim, name) in enumerate(
                zip(found.samples.tolist(), found.ssim.tolist(), found.classes, strict=True)
            )
        ],
        beside.images,
        beside.candidates,
    )
