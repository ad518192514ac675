"""Options that say where the runs of a search or a study are done, and `cluster`: what a cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from recon_core.cli.console import note, out
from recon_core.errors import InputError

if TYPE_CHECKING:
    from recon_core.scheduling import Places

WorkersOption = Annotated[
    int | None, typer.Option("--workers", help="Number of runs at once.", show_default="one for each core or GPU")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        envvar="AFTERIMAGE_CLUSTER",
        help="A Ray cluster: auto, host:6379 or ray://host:10001; none for this machine.",
    ),
]
CpusOption = Annotated[
    float | None, typer.Option("--cpus-per-run", help="Cores for each run on a cluster.", show_default="1")
]
GpusOption = Annotated[
    float | None,
    typer.Option("--gpus-per-run", help="GPUs for each run on a cluster; 0.25 lets four share one.", show_default="0"),
]


def _anyway(what: str) -> Any:
    return typer.Option("--anyway", help=what)


AnywayOption = Annotated[bool, _anyway("Start even if this machine may not have enough memory.")]
AuditAnywayOption = Annotated[
    bool,
    _anyway("Count even if the images do not look like the training set; start even if memory may run out."),
]


def used(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that were used."""
    return {name: value for name, value in options.items() if value is not None}


def check_cluster(places: Places) -> None:
    """Before a run is made that nobody could do."""
    if places.cluster is None and places.gpus:
        raise InputError(
            f"--gpus-per-run is for runs on a cluster, got {places.gpus:g} without one; name it by --cluster, or "
            "leave it out: on this machine there is a run for each GPU"
        )
    if places.cluster is not None:
        from recon_core.scheduling.connection import knock

        knock(places.cluster)


def cluster(
    address: Annotated[
        str,
        typer.Argument(
            envvar="AFTERIMAGE_CLUSTER", help="Address of the cluster: auto, host:6379 or ray://host:10001."
        ),
    ] = "auto",
) -> None:
    """List the nodes of a Ray cluster and check that each of them can perform runs."""
    from recon_core.kinds import load_all
    from recon_core.scheduling.nodes import look_at

    nodes = look_at(address, load_all)
    table = Table("node", "cores", "GPUs", "Python", "torch", "fit for runs", box=None, pad_edge=False)
    for node in nodes:
        fit = "yes" if node.trouble is None else node.trouble
        table.add_row(node.host, f"{node.cpus:g}", f"{node.gpus:g}", node.python, node.torch, fit)
    out().print(table)
    fit_nodes = [node for node in nodes if node.trouble is None]
    note(f"{len(fit_nodes)} of {len(nodes)} nodes can do runs, {sum(node.cpus for node in fit_nodes):g} cores in all")
    if len(fit_nodes) < len(nodes):
        raise typer.Exit(1)
