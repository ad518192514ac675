"""Train to the margin: recipes, losses, and how close a network came to its KKT point."""

from recon_core.training.session import Observer, Resume, StopReason, TrainOutcome, train

__all__ = ["Observer", "Resume", "StopReason", "TrainOutcome", "train"]
