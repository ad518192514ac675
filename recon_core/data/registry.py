"""How each source is described and read. A module that brings a new one calls `register_source`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recon_core.config import DataConfig
from recon_core.data.types import ImageSet, SourceInfo, TaskData
from recon_core.observing import Listener
from recon_core.sources import Source, SourceKind, add_source


@dataclass(frozen=True)
class Reader:
    """`images` reads all a source has, and a task is cut out of that; `points` makes a planar task at once."""

    describe: Callable[[str | None], SourceInfo]
    """From the path, where the source needs one. Reads the pixels of one image at most."""
    images: Callable[[DataConfig, Listener | None], ImageSet] | None = None
    points: Callable[[DataConfig], TaskData] | None = None


READERS: dict[str, Reader] = {}


def register_source(kind: SourceKind, reader: Reader) -> Source:
    """A new source of samples, known to settings, the command line, the form and the library from here on."""
    source = add_source(kind)
    READERS[kind.name] = reader
    return source
