"""Numbers and times as words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ui.shared.formatting import duration, number, plain, shortened, signed, when

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.02, "under 0.1 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (100 * 3600, "4 d 4 h"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(seconds=59), "just now"),
        (timedelta(seconds=-30), "just now"),
        (timedelta(minutes=5, seconds=59), "5 min ago"),
        (timedelta(hours=23), "23 h ago"),
        (timedelta(days=2, hours=5), "2 d ago"),
        (timedelta(days=30), "17 Oct 2026"),
        (timedelta(days=-400), "21 Dec 2027"),
    ],
)
def test_when(ago: timedelta, words: str) -> None:
    assert when(NOW - ago, NOW) == words


@pytest.mark.parametrize(
    ("value", "words"), [(50000, "50,000"), (3.14159e-66, "3.142e-66"), (0.0, "0"), (float("nan"), "nan")]
)
def test_number(value: float, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(("value", "words"), [(-434.29, "−434.3"), (0.04, "0.0"), (float("nan"), "–")])
def test_signed(value: float, words: str) -> None:
    assert signed(value) == words


def test_plain_escapes_what_markdown_would_read() -> None:
    assert plain("a *b*\n:red[c] <d> $e$") == r"a \*b\* \:red\[c\] \<d\> \$e\$"
    assert plain("Zürich 2026, n = 5") == r"Zürich 2026\, n \= 5"


def test_what_is_too_long_ends_with_a_whole_word() -> None:
    assert shortened("the disk is full", 16) == "the disk is full"
    assert shortened("the disk is full", 12) == "the disk is …"
    assert shortened("x" * 30, 10) == "x" * 10 + " …"
