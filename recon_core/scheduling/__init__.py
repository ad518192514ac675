"""Who performs runs, where and when: the queue and its scheduler; local processes or Ray behind one protocol."""

from recon_core.scheduling.placement import executor_for, move
from recon_core.scheduling.protocol import (
    CLUSTER_VARIABLE,
    NOWHERE,
    Ended,
    Executor,
    Places,
    place_arguments,
    usual_places,
)

__all__ = [
    "CLUSTER_VARIABLE",
    "NOWHERE",
    "Ended",
    "Executor",
    "Places",
    "executor_for",
    "move",
    "place_arguments",
    "usual_places",
]
