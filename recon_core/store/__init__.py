"""Runs on disk: a folder each, readable by a person, safe to kill at any moment."""

from recon_core.store.archive import ZipLimits
from recon_core.store.check import Problem
from recon_core.store.notes import Notes
from recon_core.store.record import RunState, RunSummary, Status
from recon_core.store.run import Run
from recon_core.store.store import RunStore, default_root, dependents_among
from recon_core.store.writer import Checkpoint, RunWriter

__all__ = [
    "Checkpoint",
    "Notes",
    "Problem",
    "Run",
    "RunState",
    "RunStore",
    "RunSummary",
    "RunWriter",
    "Status",
    "ZipLimits",
    "default_root",
    "dependents_among",
]
