"""Times, numbers and other people's text, as words for the screen."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_DAY = 86_400


def plain(text: str) -> str:
    """Somebody's text for a place that reads markdown: shown exactly as typed, markup and all, on one line."""
    return _PUNCTUATION.sub(r"\\\1", " ".join(text.split()))


def shortened(text: str, most: int) -> str:
    """The beginning, up to a whole word, of what is too long for its place."""
    return text if len(text) <= most else f"{text[:most].rpartition(' ')[0] or text[:most]} …"


def sentence(text: str) -> str:
    """What the engine says, which begins small and ends open, as a sentence."""
    whole = text.rstrip(".")
    return f"{whole[:1].upper()}{whole[1:]}{'' if whole.endswith(('?', '!')) else '.'}"


def duration(seconds: float) -> str:
    """'under 0.1 s', '0.4 s', '12 s', '3 min 20 s', '2 h 5 min', '3 d 4 h'."""
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < _DAY:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // _DAY} d {whole % _DAY // 3600} h"


def when(moment: datetime, now: datetime) -> str:
    """'just now', '5 min ago', '3 h ago', '2 d ago', then the date."""
    seconds = (now - moment).total_seconds()
    if moment - now > timedelta(minutes=1) or seconds > 7 * _DAY:
        return f"{moment.day} {moment:%b %Y}"
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < _DAY:
        return f"{seconds // 3600:.0f} h ago"
    return f"{seconds // _DAY:.0f} d ago"


def signed(value: float) -> str:
    """A logarithm to one decimal, with a real minus sign; a dash where there is no number."""
    return f"{value:.1f}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "–"


def number(value: float) -> str:
    """Four significant digits for measurements, every digit of a count."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
