"""Where samples come from, by name, as far as settings need to know it; `recon_core.data` reads them.

Those of this project stand here. Another one is one call of `recon_core.data.register_source`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recon_core.names import RegisteredName


@dataclass(frozen=True)
class SourceKind:
    """What a source asks of the settings that go with it."""

    name: str
    planar: bool = False
    """Points in the plane rather than images."""
    needs_path: bool = False
    """The user's own images."""
    partition: str | None = None
    """How its classes become two sides, unless the settings say otherwise."""
    larger: str | None = None
    """The source to go to for more of the same images."""


SOURCES: dict[str, SourceKind] = {}


class Source(RegisteredName):
    """A registered source by its name."""

    CIRCLE: ClassVar[Source]
    SPIRAL: ClassVar[Source]
    CHESSBOARD: ClassVar[Source]
    MNIST: ClassVar[Source]
    CIFAR10: ClassVar[Source]
    FACES: ClassVar[Source]
    MNIST_FULL: ClassVar[Source]
    FASHION_MNIST: ClassVar[Source]
    CIFAR10_FULL: ClassVar[Source]
    CIFAR100: ClassVar[Source]
    FOLDER: ClassVar[Source]
    NPZ: ClassVar[Source]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(SOURCES)

    @property
    def kind(self) -> SourceKind:
        return SOURCES[self]

    @property
    def planar(self) -> bool:
        return self.kind.planar

    @property
    def needs_path(self) -> bool:
        return self.kind.needs_path


def add_source(kind: SourceKind) -> Source:
    """Make the name known to settings; `recon_core.data.register_source` says as well how it is read."""
    if kind.name in SOURCES:
        raise ValueError(f"there is a source {kind.name!r} already; choose another name")
    SOURCES[kind.name] = kind
    return Source(kind.name)


Source.CIRCLE = add_source(SourceKind("circle", planar=True))
Source.SPIRAL = add_source(SourceKind("spiral", planar=True))
Source.CHESSBOARD = add_source(SourceKind("chessboard", planar=True))
Source.MNIST = add_source(SourceKind("mnist", partition="odd-even", larger="mnist-full"))
Source.CIFAR10 = add_source(SourceKind("cifar10", partition="animals-vehicles", larger="cifar10-full"))
Source.FACES = add_source(SourceKind("faces", partition="faces"))
Source.MNIST_FULL = add_source(SourceKind("mnist-full", partition="odd-even"))
Source.FASHION_MNIST = add_source(SourceKind("fashion-mnist"))
Source.CIFAR10_FULL = add_source(SourceKind("cifar10-full", partition="animals-vehicles"))
Source.CIFAR100 = add_source(SourceKind("cifar100"))
Source.FOLDER = add_source(SourceKind("folder", needs_path=True))
Source.NPZ = add_source(SourceKind("npz", needs_path=True))
