"""Who does the runs of a study or a search: places here, or on a cluster, behind the same five methods."""

from recon_core.executors.protocol import CLUSTER_VARIABLE, NOWHERE, Ended, Executor, Places, usual_places
from recon_core.executors.where import executor_for, move

__all__ = ["CLUSTER_VARIABLE", "NOWHERE", "Ended", "Executor", "Places", "executor_for", "move", "usual_places"]
