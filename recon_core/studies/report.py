"""A study as one HTML file that needs nothing else: figures to explore, images inside, settings and versions listed."""

from __future__ import annotations

import base64
import html
import io
import json
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import plotly.io
from plotly.offline import get_plotlyjs

from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.plots.studies import Strip
from recon_core.plots.style import without_title
from recon_core.runs.commands import offered_command
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.catalogue import CATALOGUE
from recon_core.studies.claims import Verdict, verdicts
from recon_core.studies.figures import StudyFigure, study_figures
from recon_core.studies.findings import overview
from recon_core.studies.model_table import readable
from recon_core.studies.results import StudyResults, attack_text, study_results
from recon_core.studies.study import StudyConfig

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from recon_core.plots.mosaic import Mosaic

# Nothing may be fetched, whatever a script in here might try.
_POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_MARKS = {True: "✓", False: "✗", None: "?"}
_STYLE = """
:root { color-scheme: light; }
body { font: 17px/1.55 Helvetica, Arial, sans-serif; color: #222; }
body { max-width: 1160px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 2rem; margin-bottom: 0.2rem; } h2 { font-size: 1.35rem; margin-top: 2.6rem; }
.where, .small { color: #555; } .small { font-size: 0.85rem; }
.figure { overflow-x: auto; } .strips { overflow-x: auto; } .strips td { padding: 1px 8px 1px 0; }
.strips td.label { text-align: right; white-space: nowrap; font-size: 0.9rem; } img { display: block; max-width: none; }
table.numbers { border-collapse: collapse; font-size: 0.85rem; } .scroll { overflow: auto; max-height: 34rem; }
table.numbers td { white-space: nowrap; }
table.numbers th, table.numbers td { border-bottom: 1px solid #ddd; padding: 3px 9px; text-align: right; }
table.numbers th { position: sticky; top: 0; background: #fff; } table.numbers td:first-child { text-align: left; }
li.verdict { margin-bottom: 0.5rem; }
pre { white-space: pre-wrap; font-size: 0.8rem; background: #f5f5f5; padding: 1rem; }
"""


def write_report(store: RunStore, run_id: str, target: Path) -> Path:
    """The report of a study run as a file."""
    page = report_html(store, run_id)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot write {str(target)!r}: {error.strerror or error}; choose another file with --to"
        ) from None
    return target


def report_html(store: RunStore, run_id: str) -> str:
    """One page, whole."""
    run = store.open(run_id)
    results = study_results(store, run_id)
    if not results.table.finished:
        raise InputError(
            f"study {run_id} has no finished model yet; go on with: python -m recon_core runs resume {run_id}"
        )
    parts = [
        _head(store, run, results),
        _verdicts(verdicts(results)),
        *(_section(item) for item in study_figures(store, results)),
        _table(results),
        _settings(run, results),
    ]
    title = html.escape(results.plan.title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} · Afterimage</title><style>{_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body>{''.join(parts)}</body></html>\n"
    )


def newest_study(store: RunStore, text: str) -> str:
    """A study by its run's id or by its name; of several of one name the newest that is done, else the newest."""
    if (store.root / text).is_dir():
        return store.open(text).id
    named = [
        summary
        for summary in store.list("study")
        if text in (summary.name, parse_config(StudyConfig, store.open(summary.id).config).plan.name)
    ]
    if not named:
        hint = f"start it with: python -m recon_core study {text}" if text in CATALOGUE else "use the id of a study run"
        raise InputError(f"there is no study {text!r} in {store.root}; {hint}")
    return next((summary for summary in named if summary.status.state is RunState.DONE), named[0]).id


def _head(store: RunStore, run: Run, results: StudyResults) -> str:
    plan = results.plan
    state = "" if run.status().state is RunState.DONE else f" This study is {run.status().state}: more may follow."
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = " · ".join((plan.where, f"size {plan.size}", run.id, made, attack_text(store, results)))
    return (
        f"<h1>{html.escape(plan.title)}</h1>"
        f'<p class="where">{html.escape(facts)}</p>'
        f"<p>{html.escape(plan.about)} {html.escape(overview(results) + state)}</p>"
    )


def _verdicts(found: Sequence[Verdict]) -> str:
    """Each claim once, with what was found in every panel."""
    if not found:
        return ""
    items = ""
    for claim in dict.fromkeys(verdict.claim for verdict in found):
        findings = "".join(
            f"<br>{_MARKS[verdict.agrees]} {html.escape(verdict.text)}." for verdict in found if verdict.claim == claim
        )
        items += f'<li class="verdict"><b>{html.escape(claim.text)}</b>{findings}</li>'
    return f"<h2>What was claimed, and what was found</h2><ul>{items}</ul>"


def _section(item: StudyFigure) -> str:
    shown = "" if item.figure is None else _figure(item.figure, item.name)
    table = "" if item.shown is None else f'<div class="scroll">{_numbers(item.shown)}</div>'
    notes = "" if not item.notes else f"<h3>What was not tried, and what this cannot tell</h3>{_listed(item.notes)}"
    return (
        f'<section id="{item.name}"><h2>{html.escape(item.heading)}</h2>'
        f"<p>{html.escape(item.finding)}</p>{shown}{table}{_listed(item.points)}{notes}"
        f"{_strips(item.strips)}</section>"
    )


def _listed(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(one)}</li>' for one in sentences)}</ul>" if sentences else ""


def _figure(figure: go.Figure, name: str) -> str:
    """The section has its title, so the figure goes without; what it says below that stands above it."""
    caption = figure.layout.title.subtitle.text or ""
    drawn = plotly.io.to_html(
        without_title(figure),
        include_plotlyjs=False,
        full_html=False,
        div_id=f"figure-{name}",
        config={"displaylogo": False, "responsive": False},
    )
    # The caption is plotly's text, which is escaped already.
    return f'<p class="small">{caption}</p><div class="figure">{drawn}</div>'


def _strips(strips: Iterable[Strip]) -> str:
    rows = "".join(
        f'<tr><td class="label">{html.escape(strip.label)}</td><td>{_image(strip.picture, strip.label)}</td></tr>'
        for strip in strips
    )
    return f'<div class="strips"><table>{rows}</table></div>' if rows else ""


def _image(picture: Mosaic, alt: str) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return f'<img alt="{html.escape(alt, quote=True)}" src="data:image/png;base64,{data}">'


def _table(results: StudyResults) -> str:
    return f'<h2>Every model</h2><div class="scroll">{_numbers(readable(results.table.to_frame()))}</div>'


def _numbers(shown: pd.DataFrame) -> str:
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in shown)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in shown.itertuples(index=False)
    )
    return f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _settings(run: Run, results: StudyResults) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in {**run.versions}.items())
    config = json.dumps(results.plan.model_dump(mode="json"), indent=1, ensure_ascii=False)
    return (
        f'<h2>Settings and versions</h2><p class="small">{html.escape(versions)}; {html.escape(platform.machine())}. '
        f"Repeat with: <code>{html.escape(' '.join(offered_command(run)))}</code></p>"
        f"<details><summary>All settings of this study</summary><pre>{html.escape(config)}</pre></details>"
    )
