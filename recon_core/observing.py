"""What long work tells whoever listens, and where it goes on after a stop: the same for training and attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class Observer(Protocol):
    """Who listens."""

    def metrics(self, row: Mapping[str, Any]) -> None: ...

    def progress(self, step: int, fraction: float, message: str) -> None: ...

    def snapshot(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """For live views, float32. To be used at once: the work goes on with these very tensors.

        Of an attack candidates (m, *input_shape), multipliers (m,) and labels (m,), told at every measurement as
        well as when a picture is kept; of a planar training fields (side, side), the network's output, on the CPU.
        """
        ...

    def log(self, sentence: str) -> None: ...

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None: ...

    def checkpoint_due(self) -> bool: ...

    def stop_requested(self) -> bool: ...


@dataclass(frozen=True)
class Resume:
    """Where to go on: what `Observer.checkpoint` was given."""

    step: int
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]
