"""A study's figures, pictures and verdicts as slides, in the order of the study."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from functools import partial

import pandas as pd
import plotly.graph_objects as go

from recon_core.plots.sheet import png
from recon_core.plots.style import literal
from recon_core.studies.claims import verdicts
from recon_core.studies.figures import StudyFigure
from recon_core.studies.findings import overview
from recon_core.studies.results import StudyResults
from ui.shared.presenter import Slide, SlideTable

CLAIMS = "claims"
AGREEMENT = {True: "✓ agrees", False: "✗ does not agree", None: "? not decided yet"}
_LABEL_GAP = 1.0  # pixels
_FIRST_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")


def study_slides(results: StudyResults, shown: Sequence[StudyFigure]) -> list[Slide]:
    slides = [Slide(item.name, partial(_slide, item)) for item in shown]
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
        figure, caption = _strips_figure(item), literal(item.finding)
    figure.update_layout(title={"text": literal(item.heading), "subtitle": {"text": caption}})
    return figure


def _strips_figure(item: StudyFigure) -> go.Figure:
    figure, centres, top = go.Figure(), [], 0.0
    width = max(strip.picture.shape[1] for strip in item.strips)
    for strip in item.strips:
        high, wide = strip.picture.shape[:2]
        source = f"data:image/png;base64,{base64.b64encode(png(strip.picture)).decode('ascii')}"
        figure.add_layout_image(
            source=source, xref="x", yref="y", x=0, y=top, sizex=wide, sizey=high, sizing="stretch", layer="above"
        )
        centres.append(top + high / 2)
        top += high + _LABEL_GAP
    # Without a point there would be no axes to place the pictures by.
    figure.add_scatter(x=[0, width], y=[0, top], mode="markers", opacity=0, hoverinfo="skip", showlegend=False)
    figure.update_xaxes(range=[0, width], visible=False, constrain="domain")
    figure.update_yaxes(
        range=[top, 0],
        tickvals=centres,
        ticktext=[literal(strip.label) for strip in item.strips],
        showgrid=False,
        zeroline=False,
        scaleanchor="x",
        constrain="domain",
        automargin=True,
    )
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
