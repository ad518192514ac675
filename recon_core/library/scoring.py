"""`match`: candidates scored against the training samples, with the chance level beside the count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import torch
from torch import Tensor

from recon_core.analysis.pairs import best_pairs
from recon_core.analysis.points import PointTable, point_table
from recon_core.analysis.table import match_table
from recon_core.config import parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.kinds import perform
from recon_core.library.data import Data
from recon_core.library.pictures import COLUMNS, SHOWN, inline_png, table_html
from recon_core.library.reconstruction import Reconstruction
from recon_core.library.running import INSIST, Progress, Store, interruptible, refuse_unknown, showing, store_of
from recon_core.matching.certainty import Certainty, judge_certain
from recon_core.matching.controls import Evidence, LeakCount
from recon_core.matching.pool import pool
from recon_core.plots.mosaic import pairs_mosaic
from recon_core.plots.pairs import plot_pairs
from recon_core.plots.points import plot_points
from recon_core.plots.sheet import png
from recon_core.runs.match_cache import MatchCache
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import CONVOLUTION_FACTOR, DENSE_FACTOR, MatchConfig, MatchInput, load_source
from recon_core.runs.scoring import RADII, PlanarEvidence, PointCount
from recon_core.runs.scoring import score as score_candidates
from recon_core.scheduling.memory import matching_memory, refuse_shortage
from recon_core.store import Run, RunState, RunStore

_NO_RUN = "candidates"


@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """What came back of each training sample."""

    evidence: Evidence | PlanarEvidence
    data: Data
    found: Reconstruction
    config: MatchConfig
    run: Run | None = None

    @property
    def threshold(self) -> float:
        """SSIM above which a reconstruction is good; of points in the plane, the radius."""
        return RADII[0] if isinstance(self.evidence, PlanarEvidence) else self.config.threshold

    @property
    def ssim(self) -> Tensor:
        """(n,) in [-1, 1], the SSIM of each training image with its reconstruction; NaN without one."""
        if isinstance(self.evidence, PlanarEvidence):
            raise InputError("points have no SSIM; see table() for their distances")
        return self.evidence.matching.ssim

    @property
    def other_ssim(self) -> Tensor | None:
        """(n,), as `ssim`, with the other window: the papers' code has 3x3, Wang et al. 11x11; None where too small."""
        if isinstance(self.evidence, PlanarEvidence):
            raise InputError("points have no SSIM; see table() for their distances")
        return self.evidence.matching.other_ssim

    @property
    def reconstructions(self) -> Tensor:
        """(n, C, H, W) in [0, 1], in the order of the training images; all zeros without a candidate."""
        if isinstance(self.evidence, PlanarEvidence):
            raise InputError("points have no pictures; see table() for their distances")
        return self.evidence.matching.reconstructions

    def count(self, threshold: float | None = None) -> LeakCount | PointCount:
        """The count and all its controls at one SSIM threshold, or within one radius for points."""
        return self.evidence.at(self.threshold if threshold is None else threshold)

    def good(self, threshold: float | None = None) -> int:
        """Training images whose SSIM is above `threshold` (0.4 unless set); points found within that radius."""
        count = self.count(threshold)
        return count.recovered if isinstance(count, PointCount) else count.good

    def chance_at(self, threshold: float | None = None) -> int:
        """The chance level: what would count as good although nothing leaked; see `matching.controls.chance_level`."""
        return self.count(threshold).chance

    @property
    def chance(self) -> int:
        """The chance level at `threshold`; see `chance_at`."""
        return self.chance_at()

    def certainty(self, threshold: float | None = None) -> Certainty:
        """Precision and recall of the candidates that the attack itself calls certain."""
        if isinstance(self.evidence, PlanarEvidence):
            raise InputError("points have no confidence; see table() for their distances")
        samples, settings = self.data.samples, self.evidence.matching.settings
        chosen = self.found.candidates[self.found.certain]
        level = self.threshold if threshold is None else threshold
        return judge_certain(samples.train_x, samples.mean, chosen, settings, level)

    def table(self, threshold: float | None = None) -> pd.DataFrame:
        """One row for each training sample: class, SSIM, PSNR, distance, candidates merged, output of the network."""
        if isinstance(self.evidence, PlanarEvidence):
            return self._points(self.evidence).to_frame()
        matching, samples = self.evidence.matching, self.data.samples
        parameter = next(self.found.network.parameters())
        with torch.no_grad():
            outputs = self.found.network(samples.train_x.to(parameter))
        return match_table(
            matching.images.cpu(),
            matching.reconstructions.cpu(),
            matching.ssim.cpu(),
            matching.distances.cpu(),
            matching.merged_counts.cpu(),
            matching.capped.cpu(),
            matching.nearest.cpu(),
            ids=samples.train_ids.tolist(),
            labels=samples.train_labels,
            class_names=samples.class_names,
            runs=(self.found.run.id if self.found.run else "",),
            run_starts=(0,),
            outputs=outputs,
            threshold=self.threshold if threshold is None else threshold,
        ).to_frame()

    def plot(self, threshold: float | None = None, k: int = SHOWN) -> go.Figure:
        """The k best pairs, training image above reconstruction; of points, where they were found."""
        level = self.threshold if threshold is None else threshold
        if isinstance(self.evidence, PlanarEvidence):
            return plot_points(self._points(self.evidence), level)
        matching = self.evidence.matching
        pairs = best_pairs(matching.images, matching.reconstructions, matching.ssim, k, level)
        return plot_pairs(pairs, matching.settings, self.good(level), len(matching.ssim), COLUMNS)

    def _points(self, evidence: PlanarEvidence) -> PointTable:
        samples, found = self.data.samples, self.found
        return point_table(
            samples.train_x,
            samples.train_labels,
            evidence.members.distances,
            evidence.nearest,
            found.candidates,
            found.labels,
            evidence.kept,
        )

    def __repr__(self) -> str:
        what = "points within" if isinstance(self.evidence, PlanarEvidence) else "images with SSIM above"
        count = self.count()
        other = f"; {count.other}" if isinstance(count, LeakCount) and count.other is not None else ""
        return (
            f"Score({self.good()} of {self.data.n} training {what} {self.threshold:g}, chance level {self.chance}"
            f"{other}, {len(self.found)} candidates)"
        )

    def _repr_html_(self) -> str:
        if isinstance(self.evidence, PlanarEvidence):
            found = {f"within {radius:g}": f"{self.good(radius)} of {self.data.n}" for radius in RADII}
            return table_html({**found, "chance level": self.chance}, repr(self))
        matching = self.evidence.matching
        pairs = best_pairs(matching.images, matching.reconstructions, matching.ssim, SHOWN, self.threshold)
        return inline_png(png(pairs_mosaic(pairs, COLUMNS, scale=1)), repr(self))


@dataclass(frozen=True, eq=False)
class _Candidates(MatchInput):
    dense: bool

    @property
    def default_factor(self) -> float:
        return DENSE_FACTOR if self.dense else CONVOLUTION_FACTOR


def match(
    found: Reconstruction,
    data: Data,
    *,
    untrained: Reconstruction | None = None,
    store: Store | None = None,
    name: str | None = None,
    anyway: bool = False,
    progress: Progress = True,
    **settings: Any,
) -> Score:
    """Match candidates with the training samples of `data`, and score them.

    Args:
        found: candidates from `reconstruct`.
        data: the samples that the model was trained on.
        untrained: `reconstruct(model, baseline="untrained")`, one more control for the chance level.
        store: a folder or a RunStore, in which the match is kept as a run; `found` has to be a run of it too.
        name: name of that run.
        anyway: start even if memory may run out.
        progress: True for a progress bar, False for none, or a function of the fraction done and a message.
        **settings: those of `recon_core.runs.match_source.MatchConfig`: threshold (0.4), merge_factor (B), protocol,
            ssim, vote, assignment, ...

    >>> import recon_core as rc
    >>> data = rc.load_data("circle", n=6)
    >>> model = rc.train(data, widths=50, epochs=20, progress=False)
    >>> score = rc.match(rc.reconstruct(model, m=10, iterations=5, progress=False), data)
    >>> 0 <= score.good(0.1) <= data.n
    True
    """
    refuse_unknown(settings, (key for key in MatchConfig.model_fields if key not in ("runs", "untrained")), "match")
    for candidates in (found, *(() if untrained is None else (untrained,))):
        shape = tuple(candidates.candidates.shape[1:])
        if shape != data.samples.input_shape:
            raise InputError(
                f"the candidates have shape {shape} and the data {data.samples.input_shape}; "
                "give the data this model was trained on"
            )
    samples = data.samples
    needed = matching_memory(data.n, len(samples.test_x), math.prod(samples.input_shape), len(found))
    refuse_shortage(needed, anyway=anyway, insist=INSIST)
    run_id = _NO_RUN if found.run is None else found.run.id
    config = parse_config(MatchConfig, {"runs": [run_id], **settings})
    run, cache = None, None if store is None else MatchCache.of_store(store_of(store).root)
    if store is not None:
        run = _as_run(store_of(store), found, untrained, config, data, name, progress)
    source = _Candidates(
        data=data.samples,
        pool=pool({run_id: found.candidates}),
        multipliers=found.multipliers,
        labels=found.labels,
        seeds=found.seeds,
        stages={} if found.kept is None else {run_id: found.kept},
        untrained=None if untrained is None else untrained.candidates,
        untrained_labels=None if untrained is None else untrained.labels,
        dense=found.network.architecture.dense_first,
    )
    return Score(score_candidates(source, config, cache), data, found, config, run)


def _as_run(
    store: RunStore,
    found: Reconstruction,
    untrained: Reconstruction | None,
    config: MatchConfig,
    data: Data,
    name: str | None,
    progress: Progress,
) -> Run:
    for part in (found, *(() if untrained is None else (untrained,))):
        if part.run is None or part.run.dir.parent.resolve() != store.root.resolve():
            raise InputError(f"a match in store {str(store.root)!r} needs reconstruct(..., store=) with the same store")
    control = None if untrained is None or untrained.run is None else untrained.run.id
    config = config.model_copy(update={"untrained": control})
    load_source(store, config, data.samples)  # before anything is written: raises what the run would end with
    run = create_match(store, config, name)
    with interruptible() as stop, showing(progress, "match") as listener:
        state = perform(run, stop, listener, data.samples)
    if state is not RunState.DONE:
        raise AfterimageError(f"run {run.id} {state}: {run.status().message}")
    return run
