"""The library in five calls: load_data, train, reconstruct, match, audit, and results that show themselves."""

from recon_core.library.auditing import audit
from recon_core.library.data import Data, load_data
from recon_core.library.reconstruction import Reconstruction, reconstruct
from recon_core.library.scoring import Score, match
from recon_core.library.training import TrainedModel, train
from recon_core.views.audits import Audit

__all__ = [
    "Audit",
    "Data",
    "Reconstruction",
    "Score",
    "TrainedModel",
    "audit",
    "load_data",
    "match",
    "reconstruct",
    "train",
]
