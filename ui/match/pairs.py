"""Training images above their reconstructions: a grid to scan, and one pair at a time in full."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import streamlit as st

from recon_core.plots.pair import pair_pictures
from recon_core.plots.sheet import sheet
from recon_core.runs.match_source import MatchConfig
from recon_core.views.live_match import ImagePool, PairDetail, PairFilter, PairOrder, PairView
from ui.match.board import Board, Merging, Pair, follow_merging, show_board
from ui.match.counts import count_texts
from ui.match.settings import PAIR_KEY, THRESHOLD_KEY, merging_setting
from ui.shared.formatting import number, plain
from ui.shared.lecture import is_lecture
from ui.shared.mosaic import Tile, show_mosaic, show_wipe

ORDER_KEY, PAGE_KEY, SIZE_KEY = "m_sort", "m_page", "m_per_page"
_SCROLL = "m-scroll"
PAGE_SIZES = (30, 60, 120, 500)
_WIPE, _LARGE, _SMALL = 352, 160, 64  # pixels of a picture's width
_LECTURE_WIPE, _LECTURE_SIDE = 336, 140
_CANDIDATES = 520  # and of all candidates together
_ORDERS = {
    PairOrder.SSIM: "best SSIM first",
    PairOrder.DISTANCE: "nearest candidate first",
    PairOrder.CLASS: "by class, best first",
    PairOrder.INDEX: "as in the training set",
}


def chosen_pair(pairs: int) -> int | None:
    """The pair in the address; else, back from another page, the one last looked at."""
    text = st.query_params.get(PAIR_KEY, st.session_state.get(PAIR_KEY))
    if text is None:
        return None
    if not (str(text).isdecimal() and int(text) < pairs):
        choose_pair(None)
        return None
    choose_pair(int(text))
    return int(text)


def choose_pair(sample: int | None) -> None:
    if sample is None:
        st.session_state.pop(PAIR_KEY, None)
        st.query_params.pop(PAIR_KEY, None)
        return
    st.session_state[PAIR_KEY] = str(sample)
    if st.query_params.get(PAIR_KEY) != str(sample):
        st.query_params[PAIR_KEY] = str(sample)


def _pick_pair(sample: int) -> None:
    choose_pair(sample)
    st.session_state[_SCROLL] = True


def show_pair(pool: ImagePool, view: PairView, sample: int, order: Sequence[int], threshold: float) -> None:
    """One pair in full, with links to its neighbours in the grid."""
    detail = pool.pair(view, sample)
    place = list(order).index(sample) if sample in order else None  # a filter may leave it out
    with st.container(border=True, key="m-pair-view"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"##### {plain(_heading(view, sample, threshold))}", width="stretch")
            _step("Previous", ":material/chevron_left:", order[place - 1] if place else None)
            _step(
                "Next",
                ":material/chevron_right:",
                None if place is None or place + 1 == len(order) else order[place + 1],
            )
            _step("Close", ":material/close:", None, always=True)
        if not is_lecture():
            st.caption(plain(_facts(view, sample)))
        wipe, side = (_WIPE, _LARGE) if not is_lecture() else (_LECTURE_WIPE, _LECTURE_SIDE)
        with st.container(horizontal=True, gap="medium"):
            with st.container(width=wipe + 10):
                both = sheet(np.stack([detail.image, detail.reconstruction]))
                names = ("training image", "reconstruction")
                # After a click far down in the grid, scroll up to what it opened.
                show_wipe(both, names, key="m-wipe", tile_pixels=wipe, scroll=st.session_state.pop(_SCROLL, False))
            with st.container(width=2 * side + 36):
                _show_sides(detail, side)
            if not is_lecture():
                with st.container(width=_CANDIDATES):
                    _show_candidates(detail)


def _step(label: str, icon: str, sample: int | None, always: bool = False) -> None:
    st.button(
        label,
        key=f"m-{label.lower()}",
        icon=icon,
        type="tertiary",
        shortcut="Esc" if always else None,
        on_click=choose_pair,
        args=(sample,),
        disabled=sample is None and not always,
    )


def _heading(view: PairView, sample: int, threshold: float) -> str:
    if np.isnan(view.ssim[sample]):
        return _title(view, sample)
    return f"{_title(view, sample)}, {'✓ good' if view.good(threshold)[sample] else 'not good'}"


def _title(view: PairView, sample: int) -> str:
    score = view.ssim[sample]
    said = "no candidate" if np.isnan(score) else f"SSIM {score:.3f}"
    return f"{_name(view, sample)}, {said}"


def _name(view: PairView, sample: int) -> str:
    return f"Training image {sample}: {view.samples.class_of(sample)}"


def _facts(view: PairView, sample: int) -> str:
    merged, settings = int(view.merged[sample]), view.settings
    if not merged:
        return f"Number {view.samples.ids[sample]} in its data set. No candidate was left for it."
    average = "one candidate alone" if merged == 1 else f"{merged:,} candidates merged by their {settings.vote}"
    return (
        f"Number {view.samples.ids[sample]} in its data set · {average} (C = {merged:,}), the nearest at distance "
        f"{number(float(view.distances[sample]))} · SSIM {settings.ssim}, protocol {settings.protocol}"
        + (f", B = {settings.merge_factor:g}" if settings.protocol == "buzaglo" else "")
    )


def _show_sides(detail: PairDetail, pixels: int) -> None:
    names = (
        ("training image", "What the network was trained on"),
        ("reconstruction", "What came out of its weights"),
        ("difference", "Reconstruction minus image: grey where they agree"),
        ("SSIM map", "Local SSIM: yellow where equal, dark blue where different, grey where the window does not fit"),
    )
    pictures = pair_pictures(detail.image, detail.reconstruction, detail.difference, detail.similarity)
    tiles = [Tile(place, name, f"{name}: {what}") for place, (name, what) in enumerate(names)]
    show_mosaic(sheet(pictures), tiles, key="m-sides", name="The pair in detail", tile_pixels=pixels)
    if not is_lecture():
        st.caption("Difference: grey where both agree. SSIM map: yellow where both are alike, dark blue where not.")


def _show_candidates(detail: PairDetail) -> None:
    shown = len(detail.origins)
    if not shown:
        return
    rest = f", the nearest {shown} of them" if detail.merged > shown else ""
    st.markdown(f"**What was merged: C = {detail.merged:,}{rest}**")
    tiles = [
        Tile(
            place,
            f"d = {number(float(distance))}",
            f"candidate {origin.candidate} of run {origin.run}, distance {number(float(distance))}, "
            f"multiplier {number(float(multiplier))}",
        )
        for place, (origin, distance, multiplier) in enumerate(
            zip(detail.origins, detail.distances, detail.multipliers, strict=True)
        )
    ]
    show_mosaic(sheet(detail.candidates), tiles, key="m-merged", name="The candidates behind it", tile_pixels=_SMALL)
    runs = ", ".join(dict.fromkeys(origin.run for origin in detail.origins))
    st.caption(plain(f"d is the distance of Buzaglo et al. 2023, Eq. 16. From {runs}."))


def choose_order(view: PairView, asked: PairFilter) -> list[int]:
    """Training images that pass the filter, in the order of the grid."""
    chosen = st.selectbox(
        "Sort",
        list(_ORDERS),
        format_func=lambda order: _ORDERS[order],
        key=ORDER_KEY,
        width=215,
        label_visibility="collapsed",
        bind="query-params",
        persist_state="session",
    )
    kept = view.passing(asked)
    return [sample for sample in view.order(PairOrder(chosen)).tolist() if kept[sample]]


def choose_page(order: Sequence[int]) -> list[int]:
    """The part of the order that one page of the grid shows."""
    size = st.selectbox(
        "Pairs on a page",
        PAGE_SIZES,
        index=1,
        format_func=lambda size: f"{size} a page",
        key=SIZE_KEY,
        width=130,
        label_visibility="collapsed",
        bind="query-params",
        persist_state="session",
    )
    pages = math.ceil(len(order) / size)
    page = st.pagination(pages, key=PAGE_KEY, bind="query-params", persist_state="session") if pages > 1 else 1
    return list(order[(page - 1) * size : page * size])


def show_pairs(pool: ImagePool, view: PairView, shown: Sequence[int], config: MatchConfig, chosen: int | None) -> None:
    """Counts, histogram and the grid of pairs, to be clicked."""
    setting = merging_setting(config.protocol, pool.source.default_factor)
    merging = Merging(setting.slider, getattr(view.settings, setting.name))
    picked = np.asarray(shown, dtype=np.int64)
    board = Board(
        scores=view.scores(),
        texts=count_texts(view),
        sheet=sheet(view.images[picked], view.reconstructions[picked]),
        pairs=[Pair(i, _name(view, i), float(view.ssim[i])) for i in shown],
        chosen=chosen,
        nothing="No training image passes the filter.",
        merging=merging,
    )
    show_board(
        board, config.threshold, key="m-grid", slider=THRESHOLD_KEY, on_threshold=_move_threshold, on_pick=_pick_pair
    )
    if shown:
        follow_merging(
            lambda value: pool.merged(config.model_copy(update={setting.name: setting.within(value)})),
            shown,
            key="m-follow",
            slider=setting.slider,
        )


def _move_threshold(value: float) -> None:
    st.session_state[THRESHOLD_KEY] = value
