"""What matching claims to cost, measured against its own yardsticks in the same process and on the same threads."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch
from skimage.metrics import structural_similarity

from benchmarks.timing import interleaved
from recon_core.matching.protocol import MatchSettings, match, neighbours_for, prepare
from recon_core.matching.scaling import stretch
from recon_core.matching.ssim import ssim

IMAGES, CANDIDATES, SHAPE = 500, 100_000, (3, 32, 32)
DIMENSION = 3 * 32 * 32
PAIRS, LOOPED_PAIRS = 10_000, 300
MERGE_FACTORS = (1.0, 1.05, 1.1, 1.2, 1.5, 2.0)
BLOCK = 8192  # candidates a plain product takes at a time
THREADS = 2


def measure() -> dict[str, float]:
    """All numbers of `python -m benchmarks match`: seconds, rates and their ratios."""
    # First, in a process of its own: a child would inherit this one's peak.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as child:
        peak_gib = child.submit(_peak_of_one_matching).result()
    torch.set_num_threads(THREADS)
    return {**_matching(), **_ssim(), "peak_gib": peak_gib, "threads": THREADS}


def _matching() -> dict[str, float]:
    """The search against the plain matrix product in it; merging again against the whole first matching."""
    task = SyntheticTask()
    settings = MatchSettings()
    x = task.x.flatten(1)
    product = torch.empty(IMAGES, CANDIDATES)

    def multiply() -> None:
        for part in range(0, CANDIDATES, BLOCK):
            torch.mm(x, task.candidates[part : part + BLOCK].flatten(1).T, out=product[:, part : part + BLOCK])

    took = interleaved(
        {"product": multiply, "search": lambda: neighbours_for(task.x, task.candidates, settings)}, turns=5
    )
    first = interleaved({"first": lambda: match(task.x, task.mean, task.candidates, settings)}, turns=3)["first"]
    prepared = prepare(task.x, task.mean, task.candidates, settings)
    matching = prepared.merge()
    merging = interleaved({str(factor): partial(prepared.merge, factor) for factor in MERGE_FACTORS}, turns=5)
    slowest = max(merging.values())
    threshold = interleaved({"threshold": lambda: matching.good(0.4)}, turns=5)["threshold"]
    return {
        "matmul_gflops": 2 * IMAGES * CANDIDATES * DIMENSION / took["product"] / 1e9,
        "matmul_seconds": took["product"],
        "search_seconds": took["search"],
        "matmul_fraction": took["product"] / took["search"],
        "first_seconds": first,
        "remerge_seconds": slowest,
        "remerge_over_first": slowest / first,
        "threshold_seconds": threshold,
        "threshold_over_remerge": threshold / min(merging.values()),
        "capped_images": int(matching.capped.sum()),
    }


def _ssim() -> dict[str, float]:
    """Batched SSIM against scikit-image called pair by pair."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(PAIRS, *SHAPE, generator=generator)
    y = (x + 0.2 * torch.randn(PAIRS, *SHAPE, generator=generator)).clamp(0, 1)
    few_x, few_y = x[:LOOPED_PAIRS].numpy(), y[:LOOPED_PAIRS].numpy()

    def loop() -> list[float]:
        return [
            structural_similarity(
                a, b, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1, channel_axis=0
            )
            for a, b in zip(few_x, few_y, strict=True)
        ]

    took = interleaved({"batched": lambda: ssim(x, y), "loop": loop}, turns=7)
    whole_loop = took["loop"] * PAIRS / LOOPED_PAIRS
    apart = (ssim(x[:LOOPED_PAIRS], y[:LOOPED_PAIRS]) - torch.tensor(loop())).abs().max()
    return {
        "ssim_seconds": took["batched"],
        "ssim_loop_seconds": whole_loop,
        "ssim_times_faster": whole_loop / took["batched"],
        "ssim_largest_difference": float(apart),
    }


def _peak_of_one_matching() -> float:
    """Peak memory, in GiB, of a process that holds the pool, searches, and merges at every factor."""
    torch.set_num_threads(THREADS)
    task = SyntheticTask()
    prepared = prepare(task.x, task.mean, task.candidates, MatchSettings())
    for factor in MERGE_FACTORS:
        prepared.merge(factor)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


class SyntheticTask:
    """Half of the training images are there to be found, from faint to nearly exact; the other candidates are noise.

    So C is small for the one half and runs to its limit for the other: both ways of merging are timed.
    """

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        coarse = torch.rand(IMAGES, 3, 8, 8, generator=generator)
        images = stretch(torch.nn.functional.interpolate(coarse, size=SHAPE[1:], mode="bicubic"))
        self.mean = images.mean(dim=0)
        self.x = images - self.mean
        self.candidates = torch.empty(CANDIDATES, *SHAPE).normal_(0.0, 0.25, generator=generator)
        shown = torch.randint(IMAGES // 2, (CANDIDATES // 2,), generator=generator)
        strength = torch.rand(CANDIDATES // 2, 1, 1, 1, generator=generator)
        for part in torch.arange(CANDIDATES // 2).split(5000):
            self.candidates[part] += strength[part] * self.x[shown[part]]
