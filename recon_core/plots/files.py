"""Figures in files: always as a page to explore, and for papers as PNG, SVG and PDF where a browser can draw them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

STATIC_FORMATS = ("png", "svg", "pdf")
_SCALE = 2  # PNG pixels per figure pixel
_NO_BROWSER = "PNG, SVG and PDF need Chrome or Chromium; install one, or use the .html files"


@dataclass(frozen=True)
class WrittenFigures:
    """The files that were written, and why others were not."""

    paths: tuple[Path, ...]
    missing: str | None
    """A sentence if PNG, SVG and PDF could not be made."""


def write_figures(
    figures: Mapping[str, go.Figure], folder: Path, formats: Sequence[str] = STATIC_FORMATS
) -> WrittenFigures:
    """`<name>.html` for each figure, needing no network, and `<name>.<format>` for each static format."""
    paths = []
    for name, drawn in figures.items():
        path = folder / f"{name}.html"
        # Next to the pages, once: the library is 4 MB.
        drawn.write_html(path, include_plotlyjs="directory", full_html=True)
        paths.append(path)
    if not formats or not figures:
        return WrittenFigures(tuple(paths), None)
    wanted = [(drawn, folder / f"{name}.{kind}") for name, drawn in figures.items() for kind in formats]
    missing = _write_static(wanted)
    return WrittenFigures((*paths, *(path for _, path in wanted if missing is None)), missing)


def write_pngs(figures: Mapping[Path, go.Figure], scale: float = 1.0) -> str | None:
    """One PNG for each figure; a sentence where they could not be made."""
    return _write_static([(drawn, path) for path, drawn in figures.items()], scale) if figures else None


def figure_html(drawn: go.Figure) -> bytes:
    """One page to explore, needing no network and no other file."""
    page: str = drawn.to_html(include_plotlyjs=True, full_html=True)
    return page.encode()


def figure_png(drawn: go.Figure) -> bytes:
    """A figure as PNG, for slides and papers; needs a browser, see `can_draw_png`."""
    picture: bytes = drawn.to_image("png", width=drawn.layout.width, height=drawn.layout.height, scale=_SCALE)
    return picture


def can_draw_png() -> bool:
    """Whether kaleido and a browser for it are there."""
    if importlib.util.find_spec("kaleido") is None:
        return False
    chromium = importlib.import_module("choreographer.browsers.chromium").Chromium
    return chromium.find_browser(skip_local=False) is not None


def _write_static(wanted: Sequence[tuple[go.Figure, Path]], scale: float = _SCALE) -> str | None:
    """All at once, since starting the browser is what takes time; a sentence where it cannot be started."""
    if importlib.util.find_spec("kaleido") is None:
        return "PNG, SVG and PDF need the package kaleido; install the requirements again, or use the .html files"
    errors = importlib.import_module("choreographer.errors")
    try:
        plotly.io.write_images(
            fig=[drawn for drawn, _ in wanted],
            file=[str(path) for _, path in wanted],
            width=[drawn.layout.width for drawn, _ in wanted],
            height=[drawn.layout.height for drawn, _ in wanted],
            scale=scale,
        )
    except (errors.ChromeNotFoundError, errors.BrowserFailedError, errors.BrowserDepsError):
        return _NO_BROWSER
    except RuntimeError as error:
        if "Chrome" in str(error):  # how plotly words that there is none
            return _NO_BROWSER
        raise
    return None
