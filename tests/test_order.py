"""Files of tests in line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.order import TIERS, file_places, tier_of

PROJECT = Path(__file__).resolve().parents[1]
FILES = sorted((PROJECT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("start", TIERS)
def test_every_tier_has_files(start: str) -> None:
    found = [path for path in FILES if path.relative_to(PROJECT).as_posix().startswith(start)]
    assert found
    assert TIERS[start] in {tier_of(path) for path in found}


def test_files_that_take_long_are_begun_first() -> None:
    places = file_places(FILES)
    assert sorted(places.values()) == list(range(len(FILES)))
    tiers = [tier_of(path) for path in sorted(places, key=places.__getitem__)]
    assert list(dict.fromkeys(tiers)) == ["cluster", "processes", "browser", "slow", None]
    assert len(tiers) - tiers.index(None) == tiers.count(None)


def test_a_seed_is_an_order_whichever_way_the_files_were_found() -> None:
    first, again, other = file_places(FILES, 1), file_places(FILES[::-1], 1), file_places(FILES, 2)
    assert first == again
    assert first != other
    assert first.keys() == other.keys() == set(FILES)
    assert sorted(first.values()) == list(range(len(FILES)))
