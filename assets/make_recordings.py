"""`python -m assets.make_recordings`: the circle that the dashboard opens with, recorded from a real run made here.

Trains the default circle, attacks its weights, runs both baselines, and keeps what the player shows in `circle.npz`.
About half a minute on two cores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from recon_core.attacks.circle import PAPER_DISTANCE, PAPER_THRESHOLD
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.circle import CircleSettings
from recon_core.store import RunState, RunStore
from recon_core.views.circle_frames import RADII, SHIPPED, ShippedCircle
from recon_core.views.circle_recording import (
    candidate_frames,
    clean_up,
    field_frames,
    first_layer_points,
    left_points,
    neuron_lines,
    training_points,
)


def recorded(store: RunStore, settings: CircleSettings) -> ShippedCircle:
    """The circle with these settings, done here and now."""
    runs = settings.queue(store)
    for run in runs:
        if perform(run, StopFlag()) is not RunState.DONE:
            raise SystemExit(f"{run.id} is {run.status().state}: {run.status().message}")
    train, attack, inversion, untrained = runs
    truth = training_points(settings.training())
    fields, candidates = field_frames(train), candidate_frames(attack)
    assert fields is not None
    assert candidates is not None
    paper = {"threshold": PAPER_THRESHOLD, "distance": PAPER_DISTANCE}
    everything = {"threshold": 0.0, "distance": 0.0}
    controls = {
        "inversion": clean_up(inversion, truth, **everything),  # it has no multipliers to go by
        "untrained": clean_up(untrained, truth, **paper),
    }
    return ShippedCircle(
        truth=truth,
        fields=fields,
        candidates=candidates,
        attack=left_points(attack),
        inversion=left_points(inversion),
        untrained=left_points(untrained),
        weights=first_layer_points(train),
        neurons=neuron_lines(train),
        train_error=float((train.result() or {})["train_error"]),
        seconds=round(train.status().seconds + attack.status().seconds, 1),
        seed=settings.seed,
        **paper,
        cleaned=clean_up(attack, truth, **paper),
        settled=clean_up(attack, truth, **everything).settled[RADII[0]],
        controls={name: tuple(left.found(radius) for radius in RADII) for name, left in controls.items()},
    )


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="afterimage-") as folder:
        circle = recorded(RunStore(Path(folder)), CircleSettings())
    circle.save(SHIPPED)
    found = ", ".join(f"{circle.cleaned.found(radius)} within {radius:g}" for radius in RADII)
    sys.stdout.write(f"{SHIPPED.name}: {found}; controls {circle.controls}; {SHIPPED.stat().st_size / 1024:.0f} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
