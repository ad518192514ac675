"""`match`: which training images came back, and what would match although nothing leaked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from recon_core.cli.console import complain, out, progress_bar
from recon_core.cli.places import AnywayOption
from recon_core.cli.stores import store_of
from recon_core.errors import InputError
from recon_core.runs.stored_names import with_current_names
from recon_core.store import RunState, RunStore

_EXIT_CODES = {RunState.DONE: 0, RunState.CANCELLED: 130}


def match(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Reconstruct or search runs of one model; or one match run, to match again with other settings.",
        ),
    ],
    untrained: Annotated[
        str | None, typer.Option(metavar="RUN", help="A run of [b]baseline --kind untrained[/b], for the chance level.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="SSIM above which a reconstruction is good.", show_default="0.4")
    ] = None,
    merge_factor: Annotated[
        float | None,
        typer.Option(
            "--merge-factor",
            "-B",
            help="Merge factor B: candidates up to B times as far as the nearest are merged.",
            show_default="1.1, convolutional models 1.5",
        ),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Matching protocol: buzaglo or haim.", show_default="buzaglo")
    ] = None,
    ssim: Annotated[
        str | None, typer.Option(help="SSIM window: wang (11x11) or authors (3x3).", show_default="wang")
    ] = None,
    vote: Annotated[
        str | None, typer.Option(help="How merged candidates are combined: mean, median or best.", show_default="mean")
    ] = None,
    assignment: Annotated[
        str | None, typer.Option(help="Who may share a candidate: free, exclusive or one-to-one.", show_default="free")
    ] = None,
    search_size: Annotated[
        str | None, typer.Option(help="Image size for the search: full, half or quarter.", show_default="full")
    ] = None,
    ncc_share: Annotated[
        float | None,
        typer.Option(
            help="Protocol haim: merge candidates above this share of the best correlation.", show_default="0.9"
        ),
    ] = None,
    max_merged: Annotated[int | None, typer.Option(help="Largest number of candidates merged into one.")] = None,
    multiplier_share: Annotated[
        float | None,
        typer.Option(help="Points: drop candidates below this part of the largest multiplier.", show_default="0.05"),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device: auto, cpu, cuda or mps.", show_default="auto")] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Export the table, the grid and the figures into this folder.")
    ] = None,
    pairs: Annotated[int, typer.Option(help="Pairs in the exported grid, best first.")] = 40,
    static: Annotated[
        bool, typer.Option(help="Export figures as PNG, SVG and PDF as well; takes a browser and some seconds.")
    ] = True,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Name of the run.")] = None,
    anyway: AnywayOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id of the run.")] = False,
) -> None:
    """Match candidates with the training images and count what leaked, with the chance level beside the count.

    Nearest neighbours are cached: matching again with another threshold or merge factor is fast.
    """
    given = {
        "untrained": untrained,
        "threshold": threshold,
        "merge_factor": merge_factor,
        "protocol": protocol,
        "ssim": ssim,
        "vote": vote,
        "assignment": assignment,
        "search_size": search_size,
        "ncc_share": ncc_share,
        "max_merged": max_merged,
        "multiplier_share": multiplier_share,
        "device": device,
    }
    store = store_of(context)
    if pairs < 1:
        raise InputError(f"--pairs must be at least 1, got {pairs}")
    values = {**_base(store, runs), **{key: value for key, value in given.items() if value is not None}}
    from recon_core.config import parse_config
    from recon_core.kinds import perform
    from recon_core.runs import stopping_on_signals
    from recon_core.runs.match_request import create_match
    from recon_core.runs.match_source import MatchConfig, load_source
    from recon_core.scheduling.memory import refuse_shortage
    from recon_core.studies.needs import memory_of

    config = parse_config(MatchConfig, values)
    refuse_shortage(memory_of(store, "match", values), anyway=anyway)
    # Before anything is written: a request that cannot be met leaves no run behind.
    with progress_bar("data", quiet) as listener:
        data = load_source(store, config, progress=listener).data
    if export is not None:
        _check_folder(export)
    run = create_match(store, config, name)
    with stopping_on_signals() as stop, progress_bar("match", quiet) as listener:
        state = perform(run, stop, listener, data)
    status = run.status()
    if state is not RunState.DONE:
        complain(f"{run.id} is {state}: {status.message}")
        raise typer.Exit(_EXIT_CODES.get(state, 1))
    out().print(run.id)
    if not quiet:
        for line in findings(run.result() or {}):
            out().print(f"  {line}", markup=False)
    if export is not None:
        _export(store, run.id, export, pairs, static, quiet)


def findings(result: Mapping[str, Any]) -> list[str]:
    """A match run's result in plain words: the count, its chance level, membership, seeds."""
    lines = _image_findings(result) if result["kind"] == "images" else _point_findings(result)
    if result["auc"] is not None:
        lines.append(
            f"membership test: AUC {result['auc']:.3f}, "
            f"{result['tpr_at_1_percent_fpr']:.1%} true-positive rate at 1% false positives"
        )
    if (seeds := result["seeds"]) is not None:
        lines.append(
            f"{seeds['seeds']} seeds, each alone: {seeds['mean']:.1f} on average, "
            f"95% interval {seeds['low']:.1f} to {seeds['high']:.1f}"
        )
    if result["non_finite"]:
        lines.append(f"{result['non_finite']} candidates hold NaN or infinite values and were left out")
    return lines


def _image_findings(result: Mapping[str, Any]) -> list[str]:
    count, settings = with_current_names(result["count"]), result["settings"]
    merging = (
        f"B = {count['merge_factor']:g}"
        if settings["protocol"] == "buzaglo"
        else f"correlations above {settings['ncc_share']:g} of the best"
    )
    lines = [
        f"{count['good']} of {count['of']} training images reconstructed with SSIM ({count['ssim_kind']}) above "
        f"{count['threshold']:g}, from {count['unique']} different candidates of {count['candidates']}",
        *_other_window(count),
        f"protocol {settings['protocol']}, {merging}, vote {settings['vote']}, assignment {settings['assignment']}",
        _chance(count),
    ]
    if count["capped"]:
        lines.append(f"{count['capped']} merges reached their limit; their SSIM may be overstated (see --max-merged)")
    return lines


def _chance(count: Mapping[str, Any]) -> str:
    """The level first, then the controls it is the largest of."""
    from recon_core.matching.controls import chance_level

    level = chance_level(
        count["of"],
        mean_image=count["control_mean_image"],
        untrained=count["control_untrained"],
        held_out=count["non_members"],
        held_out_of=count["non_members_of"],
    )
    controls = [f"the mean image alone matches {count['control_mean_image']}"]
    if count["control_untrained"] is not None:
        controls.append(
            f"{count['untrained_candidates']} candidates of an untrained network match {count['control_untrained']}"
        )
    if count["non_members"] is not None:
        controls.append(
            f"of {count['non_members_of']} held-out images the same candidates match {count['non_members']}"
        )
    return f"chance level {level}: {'; '.join(controls)}"


def _other_window(count: Mapping[str, Any]) -> list[str]:
    """Match runs from before 0.2.0 counted with one window only."""
    from recon_core.matching.controls import WindowCount
    from recon_core.matching.ssim import SsimKind

    other = count.get("other")
    return [] if other is None else [str(WindowCount(**{**other, "ssim_kind": SsimKind(other["ssim_kind"])}))]


def _point_findings(result: Mapping[str, Any]) -> list[str]:
    lines = []
    for count in map(with_current_names, result["counts"]):
        line = f"within {count['radius']:g}: {count['recovered']} of {count['of']} training points found"
        line += f", {count['settled']} of {count['kept']} candidates lie at a training point"
        if count["control_untrained"] is not None:
            line += f"; an untrained network's candidates find {count['control_untrained']}"
        if count["non_members"] is not None:
            line += f"; of {count['non_members_of']} held-out points, {count['non_members']} are found"
        lines.append(line)
    return lines


def _base(store: RunStore, runs: Sequence[str]) -> dict[str, Any]:
    """The settings to start from: those of a match run if one is named, else just the runs."""
    kinds = {run_id: store.open(run_id).kind for run_id in runs}
    matches = [run_id for run_id, kind in kinds.items() if kind == "match"]
    if not matches:
        return {"runs": list(runs)}
    if len(runs) > 1:
        raise InputError(f"run {matches[0]} is a match run and goes alone; name the reconstruct runs, or it only")
    return dict(store.open(matches[0]).config)


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {str(folder)!r}: {error.strerror}; choose another one") from None


def _export(store: RunStore, run_id: str, folder: Path, pairs: int, static: bool, quiet: bool) -> None:
    from recon_core.plots.files import STATIC_FORMATS
    from recon_core.views.match_report import match_report, write_report

    written = write_report(match_report(store, run_id, pairs), folder, STATIC_FORMATS if static else ())
    if written.missing is not None:
        complain(written.missing)
    if not quiet:
        out().print(f"  {len(written.paths)} files in {folder}", markup=False)
