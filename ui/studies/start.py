"""Starting a study: what it comes to before, and its place in the queue."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from recon_core.config import parse_config
from recon_core.data.torchvision_sets import FULL_SETS
from recon_core.errors import AfterimageError
from recon_core.scheduling import NOWHERE, move, place_arguments, queue
from recon_core.store import RunState, RunStore, default_root
from recon_core.studies.plan import StudyPlan
from recon_core.studies.starting import begun_before, check_data
from recon_core.studies.study import StudyConfig, create_study
from ui.shared.faults import errors_shown
from ui.shared.formatting import plain
from ui.shared.memory import may_start
from ui.shared.places import choose_places
from ui.shared.runs import is_active
from ui.shared.store import forget
from ui.studies.cached import cost_of

_NAMED = 14  # values that a line lists
_POWER = re.compile(r"(?<=\d)e(-?)\+?0+(\d)")  # 1e-05 is 1e-5


def show_plan(plan: StudyPlan) -> None:
    """What varies, how many models that makes, and how long they take."""
    cost = cost_of(plan)
    time = "No time estimate" if cost.seconds is None else f"About {cost.text} on this machine"
    facts = [f"**{time}**", f"{cost.models} {'model' if cost.models == 1 else 'models'}"]
    facts.append(f"{cost.places} at a time" if cost.places > 1 else "one at a time")
    ahead = len(queue.waiting(RunStore(default_root())))
    if ahead:
        facts.append(f"{ahead} queued before it")
    st.markdown(" · ".join(facts))
    lines = [f"**{plain(plan.axis[:1].upper() + plan.axis[1:])}:** {_listed([point.label for point in plan.points])}"]
    panels = [panel.label for panel in plan.panels if panel.label]
    if panels:
        lines.append(f"**Each for:** {_listed(panels)}")
    if plan.references:
        lines.append(f"**Dashed lines:** {_listed([reference.label for reference in plan.references], '; ')}")
    lines.append(f"**Seeds:** {len(plan.seeds)}" + ("" if len(plan.seeds) > 1 else ", so no intervals"))
    st.markdown("  \n".join(lines))
    settings = [plan.base, *(variant.settings for variant in (*plan.points, *plan.panels, *plan.references))]
    if any(part.get("data.source") in FULL_SETS for part in settings):
        st.caption("The full set of images is downloaded first, unless it is here already.")


def offer_start(plan: StudyPlan, arguments: Sequence[str], key: str) -> None:
    """The button. `arguments` follow `study` in the command that repeats it."""
    cost_of(plan)  # one that cannot be done is a sentence instead of a button
    with st.popover("Where it runs", icon=":material/lan:"):
        places = choose_places(f"{key}_p")
    ready = True
    with contextlib.suppress(AfterimageError):  # places that make no sense are a sentence when it is to start
        ready = may_start("study", parse_config(StudyConfig, {"plan": plan, **places}), key)
    if st.button("Start the study", type="primary", icon=":material/play_arrow:", key=key, disabled=not ready):
        with errors_shown():
            _start(parse_config(StudyConfig, {"plan": plan, **places}), arguments, places)


def _start(config: StudyConfig, arguments: Sequence[str], places: Mapping[str, Any]) -> None:
    """A study that was begun before goes on, or is shown: nothing is computed twice."""
    store, plan = RunStore(default_root()), config.plan
    with st.spinner("Checking the images …"):
        check_data(plan)
    run = begun_before(store, plan)
    if run is None:
        run = create_study(store, config, [*arguments, *place_arguments(config)])
        queue.submit(run)
    elif run.status().state is RunState.DONE:
        st.toast("This study has already been run; here it is.", icon=":material/history:")
    elif not is_active(run.status()):
        move(run, {**places, "cluster": config.cluster or NOWHERE})
        queue.resume(run)
        st.toast("This study was started before and continues.", icon=":material/history:")
    forget()
    st.query_params.from_dict({"run": run.id})
    st.rerun()


def _listed(labels: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    shown = [_POWER.sub(r"e\1\2", label) for label in labels[:_NAMED]]
    return plain(between.join(shown) + more)
