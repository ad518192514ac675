"""A study's figures, pictures and verdicts as slides, in the order of the study."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import pandas as pd
import plotly.graph_objects as go

from recon_core.plots.style import literal
from recon_core.studies.claims import verdicts
from recon_core.studies.figures import StudyFigure
from recon_core.studies.findings import overview
from recon_core.studies.results import StudyResults
from ui.shared.picture_slides import best_pairs_figure, strips_figure
from ui.shared.presenter import Slide, SlideTable
from ui.studies.cached import best_pictures

CLAIMS = "claims"
AGREEMENT = {True: "✓ agrees", False: "✗ does not agree", None: "? not decided yet"}
_FIRST_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")


def study_slides(results: StudyResults, shown: Sequence[StudyFigure]) -> list[Slide]:
    slides = [Slide(item.name, partial(_slide, item)) for item in shown]
    best = best_pictures(results) if shown else None
    if best is not None:
        label, grid = best
        title = f"The best pairs of the model that gives most away: {label}"
        slides.append(Slide("best-pairs", partial(best_pairs_figure, grid, title)))
    if shown and results.plan.claims:
        slides.append(Slide(CLAIMS, lambda: claims_table(results)))
    return slides


def _slide(item: StudyFigure) -> go.Figure | SlideTable:
    return slide_figure(item) if item.shown is None else SlideTable(item.heading, item.finding, item.shown)


def slide_figure(item: StudyFigure) -> go.Figure:
    """The figure with the first thing it says as its caption; strips become one, with their labels as an axis."""
    if item.figure is not None:
        figure = go.Figure(item.figure)
        said = figure.layout.title.subtitle.text or ""
        caption = literal(_FIRST_SENTENCE.split(item.finding)[0]) + (f" ({said})" if said else "")
    else:
        figure, caption = strips_figure(item.strips), literal(item.finding)
    figure.update_layout(title={"text": literal(item.heading), "subtitle": {"text": caption}})
    return figure


def claims_table(results: StudyResults) -> SlideTable:
    found = verdicts(results)
    frame = pd.DataFrame(
        {
            "claim": [verdict.claim.text for verdict in found],
            **({"for": [verdict.panel for verdict in found]} if any(verdict.panel for verdict in found) else {}),
            "": [AGREEMENT[verdict.agrees] for verdict in found],
            "found here": [verdict.sentence for verdict in found],
        }
    )
    return SlideTable("What was claimed, and what was found", overview(results), frame)
