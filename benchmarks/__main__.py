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
    "time_left": "whether the time left that runs of the default store showed was right",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    listed = "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items())
    parser.add_argument("name", choices=BENCHMARKS, help=listed)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else")
    parser.add_argument("--busy", action="store_true", help="first_minutes: once more with one core kept busy")
    chosen = parser.parse_args(arguments)
    if chosen.busy and chosen.name != "first_minutes":
        parser.error(f"--busy is for first_minutes, got {chosen.name}")
    module = importlib.import_module(f"benchmarks.{chosen.name}")
    found = module.measure(busy=True) if chosen.busy else module.measure()
    if chosen.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        for key, value in found.items():
            sys.stdout.write(f"{key:<34} {value:.4g}\n" if isinstance(value, float) else f"{key:<34} {value}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
