"""Untrusted text on a terminal: escape sequences and control characters are shown, never obeyed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Control characters of both sets but for tab and new line; what turns the direction of writing or ends a line in
# disguise; halves of characters, which no terminal can be sent.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHOWN_AS = "\N{REPLACEMENT CHARACTER}"


def visible(text: str) -> str:
    """`text` with a mark for every character that a terminal would obey instead of showing it."""
    return _CONTROLS.sub(_SHOWN_AS, text)


def one_line(text: str) -> str:
    """`text` in one line, so that no part of it can pass for a line of our own output."""
    return visible(" ".join(text.split()))


class PlainConsole(Console):
    """A console that sends its own styles to the terminal, and no other sequence."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
