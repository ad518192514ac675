"""Which tests are more than a call of a function, and the order in which files of tests are taken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).resolve().parent.parent
# By the start of their path.
TIERS = {
    "tests/browser/": "browser",
    "tests/scheduling/test_cluster.py": "cluster",
    "tests/faults/": "processes",
    "tests/library/test_command_line.py": "slow",
    "tests/library/test_examples.py": "slow",
    "tests/library/test_package.py": "processes",
    "tests/runs/test_kills.py": "processes",
    "tests/runs/test_queue.py": "processes",
    "tests/runs/test_search.py": "processes",
    "tests/scheduling/": "processes",
    "tests/studies/test_study_runs.py": "processes",
    "tests/test_serving.py": "processes",
    "tests/fuzz/": "slow",
    "tests/store/test_store_faults.py": "slow",
}
# A file is done by one process, so a long one that is begun last is waited for alone.
_LONGEST_FIRST = ("cluster", "processes", "browser", "slow", None)


def tier_of(path: Path) -> str | None:
    name = path.relative_to(_PROJECT).as_posix()
    return next((tier for start, tier in TIERS.items() if name.startswith(start)), None)


def file_places(paths: Sequence[Path], shuffle: int | None = None) -> dict[Path, int]:
    """The place of each file in line: by tier, the longest first, or at random with a seed."""
    files = sorted(set(paths), key=lambda path: (_LONGEST_FIRST.index(tier_of(path)), path))
    if shuffle is not None:
        random.Random(shuffle).shuffle(files)
    return {path: place for place, path in enumerate(files)}
