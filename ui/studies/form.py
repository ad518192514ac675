"""The form for the built-in studies: which one, how large, how many seeds."""

from __future__ import annotations

import streamlit as st

from recon_core.studies.catalogue import CATALOGUE, SIZE_NOTES, StudySize
from recon_core.studies.plan import StudyPlan
from ui.shared.address import recall, record
from ui.shared.faults import errors_shown
from ui.shared.formatting import plain
from ui.studies.cached import built_in_plan, catalogue_costs
from ui.studies.start import offer_start, show_plan

STUDY, SIZE, SEEDS = "s_study", "s_size", "s_seeds"
_SIZES = {StudySize.QUICK: "Quick", StudySize.PAPER_N: "Paper n", StudySize.FULL: "Full"}
_MOST_SEEDS = 20
_NO_BREAK = "\N{NO-BREAK SPACE}"


def show_built_in() -> None:
    listing, chosen = st.columns([1.15, 1], gap="large")
    with listing:
        name = _choose_study()
    with chosen, errors_shown():
        _show_chosen(name)


def fill_built_in(plan: StudyPlan) -> bool:
    """Take a study run's plan into the form, where it is one of the built-in ones; whether it was."""
    if plan.name not in CATALOGUE or plan.size not in list(StudySize):
        return False
    known = CATALOGUE[plan.name]
    size, seeds = StudySize(plan.size), len(plan.seeds)
    same = size in known.sizes and known.plan(size).restricted(seeds=seeds).trains_like(plan.restricted(seeds=seeds))
    if not same:
        return False
    st.session_state[STUDY], st.session_state[SIZE] = plan.name, StudySize(plan.size)
    st.session_state[SEEDS] = len(plan.seeds)
    return True


def _choose_study() -> str:
    costs = catalogue_costs()

    def caption(name: str) -> str:
        study = CATALOGUE[name]
        times = [
            plain(f"{_SIZES[size].lower()} {costs[name, str(size)].text}").replace(" ", _NO_BREAK)
            for size in study.sizes
        ]
        where = "Our own study" if study.where == "ours" else study.where
        return f"{plain(where)} · {', '.join(times)}"

    names = list(CATALOGUE)
    recall(STUDY, names)
    name = st.radio(
        "Study",
        names,
        format_func=lambda name: plain(CATALOGUE[name].title),
        captions=[caption(name) for name in names],
        key=STUDY,
        help="Times are estimates for this machine as it is. A study that shares models with an earlier one takes "
        "less: nothing is computed twice.",
        persist_state="session",
    )
    record(STUDY, [name] if name and name != names[0] else [])
    return name or names[0]


def _show_chosen(name: str) -> None:
    study = CATALOGUE[name]
    st.markdown(f"**{plain(study.title)}**  \n{plain(study.about)}")
    with st.container(horizontal=True, gap="medium"):  # below each other where the column is narrow
        size = st.segmented_control(
            "Size",
            list(StudySize),
            default=StudySize.QUICK,
            required=True,
            format_func=lambda size: _SIZES[size],
            key=SIZE,
            help="\n".join(f"- **{_SIZES[size]}**: {note}." for size, note in SIZE_NOTES.items()),
            bind="query-params",
            persist_state="session",
        )
        seeds = st.number_input(
            "Seeds",
            min_value=1,
            max_value=_MOST_SEEDS,
            value=None,
            placeholder="as set",
            key=SEEDS,
            help="How many of each model. From two on, curves have a 95% interval.",
            width=140,
            bind="query-params",
            persist_state="session",
        )
    chosen = StudySize(size or StudySize.QUICK)
    if chosen not in study.sizes:
        offered = " or ".join(_SIZES[size] for size in study.sizes)
        st.info(f"This study has no size {_SIZES[chosen]}; choose {offered}.", icon=":material/info:")
        return
    plan = built_in_plan(name, str(chosen))
    arguments = [name, "--size", str(chosen)]
    if seeds is not None:
        plan, arguments = plan.restricted(seeds=int(seeds)), [*arguments, "--seeds", str(int(seeds))]
    offer_start(plan, arguments, "s_start")
    show_plan(plan)
    if study.claims:
        st.markdown("**Claims that are tested**")
        st.markdown("\n".join(f"- {plain(claim.text)}" for claim in study.claims))
