"""Run one benchmark by name and print what it measured."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence

# Name -> module with `measure() -> dict`, and what it answers.
BENCHMARKS = {
    "train": "how much sooner flow reaches the papers' loss, and what a step costs",
    "reconstruct": "good reconstructions beside the chance level, and how much sooner than the papers' recipe",
    "match": "matching 500 images with 100,000 candidates",
    "match_page": "what a move of a slider costs on the Match page, with as many",
    "scaling": "runs per minute of a search at 1, 2 and 4 workers, and of a Ray cluster",
    "first_minutes": "seconds from a click in a real browser to what it was for; --busy: beside a busy core too",
    "load": "200 queued runs, a store of 2,000, 20 visitors at once, 200 runs pooled in Match",
    "audit": "seconds and counts of audits of three models trained by somebody's own loop",
    "many_runs": "a store of 10,000 runs: the command `runs list` and every page",
    "soak": "minutes of random submits, cancels, kills, visits and full disks; --minutes, --seed",
    "time_left": "whether the time left that runs of the default store showed was right",
}
OPTIONS = {"busy": "first_minutes", "minutes": "soak", "seed": "soak", "only": "reconstruct"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    listed = "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items())
    parser.add_argument("name", choices=BENCHMARKS, help=listed)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else")
    parser.add_argument("--busy", action="store_true", help="first_minutes: once more with one core kept busy")
    parser.add_argument("--minutes", type=float, help="soak: how long things are done at random; 3 if left out")
    parser.add_argument("--seed", type=int, help="soak: which things those are; drawn, and printed, if left out")
    parser.add_argument("--only", help="reconstruct: parts of it, with commas between them; all if left out")
    chosen = parser.parse_args(arguments)
    options = {}
    for option, owner in OPTIONS.items():
        value = getattr(chosen, option)
        if value is not None and value is not False:
            if chosen.name != owner:
                parser.error(f"--{option} is for {owner}, got {chosen.name}")
            options[option] = value
    module = importlib.import_module(f"benchmarks.{chosen.name}")
    found = module.measure(**options)
    if chosen.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        for key, value in found.items():
            sys.stdout.write(f"{key:<34} {value:.4g}\n" if isinstance(value, float) else f"{key:<34} {value}\n")
    return 1 if found.get("failures") else 0


if __name__ == "__main__":
    sys.exit(main())
