"""Train to the margin: recipes, losses, and how close a network came to its KKT point."""

from recon_core.training.session import StopReason, TrainOutcome, train

__all__ = ["StopReason", "TrainOutcome", "train"]
