"""One model on the Analyze page: every training image as a point, and the pictures behind the points."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import plotly.graph_objects as go
import streamlit as st

from recon_core.analysis.leakage import LeakPanel, usual_scale
from recon_core.plots.leakage import frame_of, plot_leakage
from recon_core.plots.sheet import sheet
from recon_core.plots.style import conditions
from recon_core.views.leak_view import AnalysedRun
from recon_core.views.live_match import PairOrder, PointPool
from ui.analyze.cached import Leakage, Request, leakage_of
from ui.analyze.choice import Choice, choose, current_choice, toggle_ring
from ui.analyze.controls import Settings
from ui.analyze.hover import show_thumbnails
from ui.match.points import show_points
from ui.match.pool import pool_for, view_of
from ui.shared.figures import show_figure
from ui.shared.formatting import number, plain
from ui.shared.mosaic import Tile, show_mosaic
from ui.shared.pair_view import Pair, PairSet, match_link, score_facts

SCATTER, GRID, GRID_PAGE = "a_scatter", "a_grid", "a_page"
PAIRS_ON_A_PAGE = 60
_HEIGHT = 430  # pixels, of the plot and of the grid beside it: its axis is in sight at 1280 x 800
_FEW, _SMALL, _LARGE = 6, 64, 128  # up to so many pictures are shown large; pixels of a picture


def show_one(run: AnalysedRun, request: Request, settings: Settings) -> None:
    pool = pool_for(request.config, request.facts)
    if pool is None:  # it shows itself what it waits for
        return
    if isinstance(pool, PointPool):
        show_points(pool)
        return
    found = leakage_of(request, pool, view_of(pool, request.at(settings.merge_factor)))
    _show_count(found, settings.threshold)
    choice = current_choice(run.run, len(found.view.ssim))
    plot, pictures = st.columns([1.2, 1], gap="medium")
    with plot:
        _show_scatter(found, settings, choice)
    with pictures:
        _show_pictures(found, settings, choice)


def _show_count(found: Leakage, threshold: float) -> None:
    """The count and its conditions in two lines, to leave room for the plot."""
    count, view = found.view.count(threshold), found.view
    st.subheader(f"{count.good} of {count.of} training images reconstructed", anchor=False)
    controls = [f"the mean image alone matches {count.control_mean_image}"]
    if count.control_untrained is not None:
        controls.append(f"an untrained network {count.control_untrained}")
    if count.non_members is not None:
        controls.append(f"{count.non_members} of {count.non_members_of} held-out images match")
    if count.other is not None:
        controls.append(f"good are {count.other}")
    if count.capped:
        controls.append(f"{count.capped} merges reached their limit and may be overstated")
    scatter = found.panel.scatter
    errors = [
        f"{name} error {error:.1%}"
        for name, error in (("train", scatter.train_error), ("test", scatter.test_error))
        if error is not None
    ]
    st.caption(
        plain(f"For comparison: {', '.join(controls)}. {'; '.join([conditions(view.settings, threshold), *errors])}.")
    )


def scatter_figure(panel: LeakPanel, settings: Settings, choice: Choice | None = None) -> go.Figure:
    return plot_leakage(
        panel.scatter,
        settings.axis,
        panel.class_names,
        panel.settings,
        settings.threshold,
        chosen=choice.samples if choice else None,
        ringed=choice.ringed if choice else None,
        show_controls=settings.controls,
        scale=settings.scale or usual_scale(panel.scatter.along(settings.axis)),
    )


def _show_scatter(found: Leakage, settings: Settings, choice: Choice) -> None:
    panel = found.panel
    figure = scatter_figure(panel, settings, choice)
    mouse = _choose_mouse()
    figure.update_layout(dragmode=mouse.drag)

    def picked() -> None:
        choose(choice_after(choice, st.session_state[SCATTER]))

    show_figure(
        figure,
        name=f"ssim-by-{settings.axis}",
        key=SCATTER,
        table=frame_of(panel.scatter, panel.class_names),
        caption=f"{mouse.hint} {_tendency(panel)}",
        height=_HEIGHT,
        on_select=picked,
        show_title=False,
    )
    show_thumbnails(found.view, SCATTER, key="a-thumbnails")


class _Mouse(NamedTuple):
    """The mouse mode of the plot: a chart that takes a lasso takes no clicks, so it is one or the other."""

    drag: str
    hint: str


_MICE = {
    "click": _Mouse("pan", "Click a point to see the image behind it, and again to see all."),
    "lasso": _Mouse("lasso", "Draw a line around points to see the images behind them."),
}


def _choose_mouse() -> _Mouse:
    chosen = st.segmented_control(
        "Choose points by",
        list(_MICE),
        default="click",
        required=True,
        key="a_mouse",
        label_visibility="collapsed",
        bind="query-params",
        persist_state="session",
    )
    return _MICE[chosen or "click"]


def choice_after(choice: Choice, state: Any) -> Choice:
    """What is chosen once a chart has this selection."""
    samples = selected_samples(state)
    # A second click on the same point; a chart that is drawn anew may send the line around its points once more.
    if samples == choice.samples and not state["selection"].get("lasso"):
        samples = frozenset()
    return Choice(choice.run, samples, min(samples) if len(samples) == 1 else None)


def selected_samples(state: Any) -> frozenset[int]:
    """Sample numbers of the points in a chart's selection; each point's customdata begins with its own."""
    carried = [point.get("customdata") for point in state["selection"]["points"]]
    return frozenset(int(data["0"] if isinstance(data, dict) else data[0]) for data in carried if data)


def _tendency(panel: LeakPanel) -> str:
    correlation = panel.scatter.rank_correlation
    if math.isnan(correlation):
        return ""
    if abs(correlation) < 0.2:
        text = "hardly any"
    else:
        text = f"images {'near' if correlation < 0 else 'far from'} the margin leak more"
    return f"Rank correlation of SSIM with the distance to the margin: {correlation:+.2f} ({text})."


def _show_pictures(found: Leakage, settings: Settings, choice: Choice) -> None:
    view = found.view
    order = [sample for sample in view.order(PairOrder.SSIM).tolist() if not choice.samples or sample in choice.samples]
    # What comes and goes has a place of its own: the grid stays where it is, and with it a pair that is open.
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        whose = f"{len(order)} chosen" if choice.samples else f"All {len(order)}"
        st.markdown(f"**{whose} {'image' if len(order) == 1 else 'images, best first'}**", width="content")
        if choice.samples or choice.ringed is not None:
            st.button("Show all", key="a_all", icon=":material/close:", on_click=choose, args=(Choice(choice.run),))
    st.caption(
        "Training image above its reconstruction; ticked where good. A click finds the pair's point, a double click "
        "opens the pair."
    )
    about = st.container()
    if choice.ringed is not None:
        about.markdown(_about(found, choice.ringed))
    pages = math.ceil(len(order) / PAIRS_ON_A_PAGE)
    with st.container():
        page = st.pagination(pages, key=GRID_PAGE, bind="query-params", persist_state="session") if pages > 1 else 1
    shown = order[(page - 1) * PAIRS_ON_A_PAGE : page * PAIRS_ON_A_PAGE]
    good = view.good(settings.threshold)
    with st.container(height="content" if len(shown) <= _FEW else _HEIGHT, border=False):
        show_mosaic(
            sheet(view.images[shown], view.reconstructions[shown]),
            [_tile(found, sample, bool(good[sample])) for sample in shown],
            key=GRID,
            name="Training images above their reconstructions",
            chosen=choice.ringed,
            on_pick=lambda sample: toggle_ring(choice, sample),
            tile_pixels=_LARGE if len(shown) <= _FEW else _SMALL,
            pairs=PairSet([_pair(found, choice.run, sample, place, settings) for place, sample in enumerate(shown)]),
        )


def _pair(found: Leakage, run_id: str, sample: int, place: int, settings: Settings) -> Pair:
    view, scatter = found.view, found.panel.scatter
    return Pair(
        sample,
        f"Image {view.samples.ids[sample]}: {view.samples.class_of(sample)}",
        place,
        place,
        (
            *score_facts(float(view.ssim[sample]), settings.threshold),
            ("distance to the margin", number(float(scatter.margin_distances[sample]))),
            ("output", number(float(scatter.outputs[sample]))),
            ("candidates merged", str(int(view.merged[sample]))),
        ),
        match_link(run_id, sample),
    )


def _tile(found: Leakage, sample: int, good: bool) -> Tile:
    samples, scatter = found.view.samples, found.panel.scatter
    score = float(scatter.ssim[sample])
    text = "no candidate" if math.isnan(score) else f"SSIM {score:.3f}"
    title = f"image {samples.ids[sample]}, {samples.class_of(sample)}, {text}, distance to the margin " + number(
        float(scatter.margin_distances[sample])
    )
    return Tile(sample, "–" if math.isnan(score) else f"{score:.2f}", title, good)


def _about(found: Leakage, sample: int) -> str:
    view, scatter = found.view, found.panel.scatter
    merged = int(view.merged[sample])
    facts = [
        f"**Image {view.samples.ids[sample]}**",
        plain(view.samples.class_of(sample)),
        f"SSIM {view.ssim[sample]:.3f}",
        f"distance to the margin {number(float(scatter.margin_distances[sample]))}",
        f"output {number(float(scatter.outputs[sample]))}",
        f"{merged} candidate{'' if merged == 1 else 's'} merged",
    ]
    return " · ".join(facts)
