"""The model behind a mark of a study's curve: its count, its images, its points, and the way to its runs."""

from __future__ import annotations

import math

import streamlit as st

from recon_core.analysis.leakage import LeakAxis, LeakPanel
from recon_core.analysis.studies import AlignedGrid, AlignedRow, StudyRow
from recon_core.matching.controls import WindowCount
from recon_core.matching.ssim import SsimKind
from recon_core.plots.leakage import frame_of, plot_leakage
from recon_core.plots.sheet import sheet
from recon_core.plots.style import conditions
from recon_core.store import default_root
from recon_core.studies.results import StudyResults, threshold_of
from ui.shared.figures import show_figure
from ui.shared.formatting import plain
from ui.shared.mosaic import Tile, show_mosaic
from ui.shared.pages import ANALYZE, MATCH
from ui.shared.pair_view import Pair, PairSet, match_link, score_facts
from ui.shared.runs import go_to_run
from ui.studies.cached import pictures_of

_TILE, _HEIGHT = 64, 400  # pixels
SCATTER = "s_scatter"
_FEW_PAIRS = 14  # more are shown in a box that scrolls
_STEPS = {"train": "Training", "attack": "Attack", "untrained": "Untrained network", "match": "Matching"}


def model_label(row: StudyRow) -> str:
    return ", ".join([*filter(None, (row.panel, row.point)), f"seed {row.seed}"])


def show_model(results: StudyResults, cell: str) -> None:
    row = results.row(cell)
    pictures, threshold = pictures_of(results, cell), threshold_of(results)
    st.subheader(plain(model_label(row)), anchor=False)
    st.markdown(_count_text(row))
    st.caption(_facts(row, pictures.panel, threshold))
    _show_links(row)
    if pictures.grid is None and pictures.panel is None:
        st.info("Its runs are gone from the store, or have no images; the numbers stay.", icon=":material/info:")
        return
    if pictures.grid is not None:
        _show_pairs(pictures.grid)
    if pictures.panel is not None:
        _show_points(row, pictures.panel, threshold)


def _count_text(row: StudyRow) -> str:
    numbers = row.numbers
    if "good" not in numbers:
        return "It was not counted."
    controls = [
        f"{text} {numbers[name]}"
        for name, text in (
            ("control_mean_image", "the mean image alone matches"),
            ("control_untrained", "an untrained network"),
            ("non_members", "held-out images"),
        )
        if name in numbers
    ]
    said = f" For comparison: {', '.join(controls)}." if controls else ""
    other = ""
    if "other_good" in numbers:
        window = WindowCount(SsimKind(numbers["other_ssim_kind"]), numbers["other_good"], numbers["other_chance"])
        other = f" Good are {window}."
    return f"**{numbers['good']} of {numbers['of']} training images reconstructed.**{said}{other}"


def _facts(row: StudyRow, panel: LeakPanel | None, threshold: float) -> str:
    facts = [] if panel is None else [conditions(panel.settings, threshold)]
    for name, text in (("train_error", "train error"), ("test_error", "test error")):
        if name in row.numbers:
            facts.append(f"{text} {row.numbers[name]:.1%}")
    if "on_margin" in row.numbers:
        facts.append(f"{row.numbers['on_margin']} samples on the margin")
    return plain("; ".join(facts))


def _show_links(row: StudyRow) -> None:
    """To the pages of its runs, of those that are still there."""
    there = {step: run_id for step, run_id in row.runs.items() if (default_root() / run_id).is_dir()}
    with st.container(horizontal=True, gap="small"):
        if "match" in there:
            if st.button("Analyze", key="s_to_analyze", icon=":material/analytics:", type="tertiary"):
                st.session_state["a_run"], st.session_state["a_view"] = there["match"], "One model"
                st.switch_page(ANALYZE.file)
            if st.button("Match", key="s_to_match", icon=":material/compare:", type="tertiary"):
                st.switch_page(MATCH.file, query_params={"from": there["match"]})
        for step, label in _STEPS.items():
            if step in there and st.button(label, key=f"s_run_{step}", type="tertiary"):
                go_to_run(there[step])


def _show_pairs(grid: AlignedGrid) -> None:
    st.caption("Training image above its reconstruction, best first; ticked where good. A click opens the pair.")
    row = grid.rows[0]
    with st.container(height="content" if len(grid.ids) <= _FEW_PAIRS else _HEIGHT, border=False):
        show_mosaic(
            sheet(grid.originals, row.images),
            [
                Tile(sample, "–" if math.isnan(score) else f"{score:.2f}", title, bool(good))
                for sample, score, title, good in zip(
                    row.samples.tolist(), row.ssim.tolist(), titles(grid, row), grid.good(row), strict=True
                )
            ],
            key="s_pairs",
            name="Training images above their reconstructions",
            tile_pixels=_TILE,
            pairs=row_pairs(grid, row),
            chart=SCATTER,
        )


def titles(grid: AlignedGrid, row: AlignedRow) -> list[str]:
    """What is said of each picture of a row."""
    return [
        f"image {image}, " + ("no candidate" if math.isnan(score) else f"SSIM {score:.3f}")
        for image, score in zip(grid.ids.tolist(), row.ssim.tolist(), strict=True)
    ]


def row_pairs(grid: AlignedGrid, row: AlignedRow) -> PairSet:
    """What the pictures of a row open, by the model's own number of each training image."""
    return PairSet(
        [
            Pair(
                sample,
                f"Image {image}" + (f" at {row.label}" if len(grid.rows) > 1 else ""),
                place,
                place,
                score_facts(score, grid.threshold),
                match_link(row.run_id, sample),
            )
            for place, (sample, image, score) in enumerate(
                zip(row.samples.tolist(), grid.ids.tolist(), row.ssim.tolist(), strict=True)
            )
            if sample >= 0
        ]
    )


def _show_points(row: StudyRow, panel: LeakPanel, threshold: float) -> None:
    show_figure(
        plot_leakage(panel.scatter, LeakAxis.MARGIN, panel.class_names, panel.settings, threshold),
        name=f"scatter-{row.runs['match']}",
        key=SCATTER,
        table=frame_of(panel.scatter, panel.class_names),
        height=_HEIGHT,
        show_title=False,
    )
