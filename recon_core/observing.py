"""How training and attack report to an observer, and the state from which they resume after a stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # the command line imports this module, and is to be there at once
    from torch import Tensor

Listener = Callable[[float | None, str], None]
"""Called with the fraction done, None where it cannot be known, and a message."""


def ignore(fraction: float | None, message: str) -> None:
    """A listener that does nothing."""


class Observer(Protocol):
    """Receives what a training or an attack reports."""

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
    """The state to resume from, as it was passed to `Observer.checkpoint`."""

    step: int
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]
