"""One module for each kind of run: its config, how it is created, performed and read back."""

from recon_core.observing import Listener
from recon_core.runs.signals import StopFlag, stopping_on_signals

__all__ = ["Listener", "StopFlag", "stopping_on_signals"]
