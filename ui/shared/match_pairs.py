"""The best pairs of a finished match run as small pictures, each of which opens large."""

from __future__ import annotations

from recon_core.analysis.pairs import BestPairs, best_pairs
from recon_core.matching.protocol import GOOD_SSIM
from recon_core.plots.sheet import sheet
from recon_core.store import Run
from ui.shared.cached import run_read
from ui.shared.mosaic import Tile, show_mosaic
from ui.shared.pair_view import Pair, PairSet, match_link, score_facts


@run_read(keep=256, shared=True)
def pairs_of(match: Run, count: int) -> BestPairs | None:
    """The best pairs of a match run; None of points."""
    tensors = match.tensors("match")
    if "reconstructions" not in tensors:
        return None
    threshold = match.config.get("threshold", GOOD_SSIM)
    return best_pairs(tensors["images"], tensors["reconstructions"], tensors["ssim"], count, threshold)


def show_match_pairs(match_id: str, count: int, *, key: str, name: str, labelled: bool = True) -> None:
    """Training images above their reconstructions, as wide as there is room for; nothing for points."""
    found = pairs_of(match_id, count)
    if found is None or not len(found.ssim):
        return
    scores, samples = found.ssim.tolist(), found.samples.tolist()
    show_mosaic(
        sheet(found.images, found.reconstructions),
        [
            Tile(sample, f"{score:.2f}" if labelled else "", f"training image {sample}, SSIM {score:.3f}", bool(good))
            for sample, score, good in zip(samples, scores, found.good, strict=True)
        ],
        key=key,
        name=name,
        across=count,
        pairs=PairSet(
            [
                Pair(
                    sample,
                    f"Training image {sample}",
                    place,
                    place,
                    score_facts(score, found.threshold),
                    match_link(match_id, sample),
                )
                for place, (sample, score) in enumerate(zip(samples, scores, strict=True))
            ]
        ),
    )
