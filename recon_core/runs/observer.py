"""The observer that writes what a loop reports into the store and passes it on to a listener."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recon_core.observing import Listener, Resume
from recon_core.runs.signals import StopFlag
from recon_core.store import RunWriter

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT_SECONDS = 5.0
# A live view looks no more often than this, and every picture is a write to the disk: points in the plane
# move on a screen while one watches, thousands of images need not.
SNAPSHOT_SECONDS = 1.0
_SMALL_SNAPSHOT_SECONDS = 0.4
_SMALL_SNAPSHOT_BYTES = 2**16
_SNAPSHOT_BYTES_PER_SECOND = 4 * 2**20  # ten thousand images twice a minute


def last_checkpoint(writer: RunWriter) -> Resume | None:
    """The checkpoint from which an interrupted run is resumed."""
    found = writer.latest_checkpoint()
    return None if found is None else Resume(found.step, found.tensors, found.meta)


class StoreObserver:
    """The `Observer` of trainings and attacks that are runs. Live pictures go into the file `pictures`."""

    def __init__(
        self,
        writer: RunWriter,
        stop: StopFlag,
        listener: Listener,
        pictures: str = "snapshots",
        *,
        total_known: bool = True,
    ) -> None:
        self._total_known = total_known
        self._writer, self._stop, self._listener, self._pictures = writer, stop, listener, pictures
        self._last_checkpoint = time.monotonic()
        self._last_snapshot = -float("inf")

    def metrics(self, row: Mapping[str, Any]) -> None:
        self._writer.metrics(row)

    def progress(self, step: int, fraction: float, message: str) -> None:
        # A limit in time may end an attack before its steps; one towards a loss has no total at all.
        total = round(step / fraction) if fraction > 0 and self._total_known else None
        self._writer.progress(step, message, total=total)
        self._listener(fraction, message)

    def snapshot(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """While the run goes on its file of pictures holds the newest one, in the layout of the whole: (1, m, ...)."""
        import torch

        size = sum(tensor.nbytes for tensor in tensors.values())
        usual = _SMALL_SNAPSHOT_SECONDS if size <= _SMALL_SNAPSHOT_BYTES else SNAPSHOT_SECONDS
        if time.monotonic() - self._last_snapshot < max(usual, size / _SNAPSHOT_BYTES_PER_SECOND):
            return
        newest = {name: tensor[None] for name, tensor in tensors.items()}
        self._writer.save_tensors(self._pictures, {"steps": torch.tensor([step]), **newest})
        self._last_snapshot = time.monotonic()

    def log(self, sentence: str) -> None:
        self._writer.log(sentence)

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        self._writer.checkpoint(step, tensors, meta)
        self._last_checkpoint = time.monotonic()

    def checkpoint_due(self) -> bool:
        return time.monotonic() - self._last_checkpoint >= CHECKPOINT_SECONDS

    def stop_requested(self) -> bool:
        return self._stop.raised or self._writer.cancel_requested()
