"""What a run does, whoever starts it: the command line, the dashboard's worker, a cluster."""

from recon_core.jobs.perform import Listener, perform
from recon_core.jobs.signals import StopFlag, stopping_on_signals

__all__ = ["Listener", "StopFlag", "perform", "stopping_on_signals"]
