"""The way into an attack: a model, a button, and behind an expander every number there is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from recon_core.attacks import SEARCH_RANGES, AttackSettings
from recon_core.config import TrainConfig, parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.runs.attack_request import PRESETS, attack_request
from recon_core.runs.models import MODEL_KINDS, AttackModel
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.scheduling import Places, queue, usual_places
from recon_core.scheduling.estimates import estimate_reconstruction
from recon_core.store import RunStore, RunSummary, default_root
from recon_core.studies.requests import Request, attack_of, queue_request, search_request, warning
from recon_core.studies.search import SearchConfig
from recon_core.studies.trials import SearchSettings
from ui.reconstruct.baselines import show_baselines
from ui.reconstruct.cached import attack_model, open_run
from ui.reconstruct.view import show_model_runs
from ui.shared.faults import told
from ui.shared.formatting import duration, plain, sentence
from ui.shared.forms import config_form, field_paths, fill_form
from ui.shared.pick import pick_run, run_words, runs_of, show_nothing_yet
from ui.shared.places import FIELDS as PLACE_FIELDS
from ui.shared.places import choose_places
from ui.shared.store import forget

TEXT_WIDTH = 860
MODEL, KIND, PRESET, KNOWN_INIT = "r_model", "r_kind", "r_start", "r_known"
SEARCH_RECIPE = "rs_recipe"
FORM, SEARCH_FORM, SEARCH_PLACES = "r", "rs", "rp"
_NOTE = "r-note"

KINDS = {"attack": "One attack", "search": "Search over hyper-parameters"}
PRESET_WORDS = {
    "fast": "fast: ours, a few seconds to a minute",
    "paper": "paper: the papers' own recipe in double precision, hours",
}
GROUPS = {
    "Candidates and time": ("m", "seeds", "iterations", "max_seconds", "seed", "labels"),
    "Steps": ("lr_x", "lr_lam", "momentum", "x_init_scale", "alpha", "alpha_end", "lam_min", "lam_scale"),
    "Loss": (
        "weight_stationarity",
        "weight_floor",
        "weight_prior",
        "floor",
        "prior",
        "box_low",
        "box_high",
        "layer_weights",
        "objective",
    ),
    "Fast recipe": ("pace", "pace_lam", "search_share", "lr_refine", "ridge", "weight_upper", "input_norm"),
}
REST = "Computing"  # whatever setting has no place above
SEARCH_FIELDS = ("trials", "sampler", "ranges", "seed")


@dataclass(frozen=True)
class Target:
    """The model chosen, and the run that holds it."""

    summary: RunSummary
    model: AttackModel


def show_form() -> None:
    """Choose, start; then what was started before."""
    st.title("Reconstruct", anchor=False)
    st.markdown(
        "Draw training samples out of a network's weights. The attack gets the weights and nothing else: it looks for "
        "inputs whose gradients add up to the weights, which is what training left behind.",
        width=TEXT_WIDTH,
    )
    _take_up_address()
    summary = pick_run(
        "Model to attack",
        kinds=MODEL_KINDS,
        key=MODEL,
        help="Networks trained here, and models brought along from elsewhere.",
    )
    if summary is None:
        show_nothing_yet(
            "There is no model to attack yet.",
            "Train one, which takes seconds, or bring a checkpoint of your own; both are done on the Train page.",
            "pages/1_Train.py",
            "Train a network or import a model",
        )
        return
    target = Target(summary, attack_model(summary.id))
    st.caption(_facts(target))
    start = st.container()
    with st.expander("Options: recipe, candidates, seeds, hyper-parameters, search", icon=":material/tune:"):
        request = _options(target)
    with start:
        _offer_start(target, request)
    show_model_runs(summary.id)
    show_baselines(summary.id)


def _facts(target: Target) -> str:
    model = target.model
    words = [f"Network {model.architecture}", f"{model.task} task"]
    training = model.training
    if training is None:
        words.append("imported: how it was trained is not known")
    else:
        n = (open_run(target.summary.id).result() or {}).get("n")
        words.append(f"trained here on {n} samples of {training.data.source}, which the attack is not told")
    return plain(" · ".join(words))


def _offer_start(target: Target, request: Request | None) -> None:
    """The button, what it will take, and why it may be no use."""
    searching = isinstance(request, SearchConfig)
    if request is not None and (doubt := warning(target.model, request)) is not None:
        st.warning(plain(sentence(doubt)), icon=":material/warning:")
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button(
            "Start the search" if searching else "Start",
            key="r-begin",
            type="primary",
            icon=":material/play_arrow:",
            disabled=request is None,
        )
        if request is not None:
            st.markdown(_expectation(target, request))
    if pressed and request is not None:
        with told():
            run = queue_request(RunStore(default_root()), target.model, request)
            queue.submit(run)
            forget()
            st.query_params["run"] = run.id
            st.rerun()


def _expectation(target: Target, request: Request) -> str:
    """What pressing the button means: how much, how long, and who is before."""
    settings = attack_of(request)
    words = [f"{settings.m:,} candidates, recipe {settings.recipe}"]
    times = settings.seeds
    if isinstance(request, SearchConfig):
        times = request.settings.trials
        words = [f"{times:,} attacks with {words[0]}"]
    elif times > 1:
        words.append(f"{times} seeds")
    seconds = _seconds(target, settings)
    if seconds is not None:
        whole = seconds * times if isinstance(request, SearchConfig) else seconds
        elsewhere = isinstance(request, SearchConfig) and request.cluster is not None
        words.append(f"about {duration(whole)} {'of work for the cluster' if elsewhere else 'on this machine'}")
    before = len(queue.waiting(RunStore(default_root())))
    if before:
        words.append(f"{before} in line before it")
    return " · ".join(words)


def _seconds(target: Target, settings: AttackSettings) -> float | None:
    training = target.model.training
    if training is None:
        return settings.max_seconds
    return _estimate(str(default_root()), training.model_dump_json(), settings.model_dump_json())


# New runs make the estimate better, so it is not kept for ever.
@st.cache_data(ttl=120, max_entries=64, show_spinner="Looking how fast this machine is …")
def _estimate(root: str, training: str, settings: str) -> float | None:
    return estimate_reconstruction(
        TrainConfig.model_validate_json(training),
        AttackSettings.model_validate_json(settings),
        RunStore(Path(root)),
    )


def _options(target: Target) -> Request | None:
    """All that can be set; None, with a sentence, where it cannot be done."""
    kind = st.segmented_control(
        "What to do",
        list(KINDS),
        default="attack",
        required=True,
        format_func=KINDS.get,
        key=KIND,
        bind="query-params",
        persist_state="session",
    )
    imported = target.model.training is None
    known_init = st.toggle(
        "The start of training is known",
        key=KNOWN_INIT,
        disabled=imported,
        bind="query-params",
        persist_state="session",
        help="Only the change since the start is explained, drawn again from its seed. It helps networks that started "
        "from large weights. Imported models do not tell how they started.",
    )
    known_init = bool(known_init) and not imported
    return _search_options(target, known_init) if kind == "search" else _attack_options(target, known_init)


def preset_words(name: str) -> str:
    return PRESET_WORDS.get(name, f"{name}: hyper-parameters the authors released")


def search_recipe_words(name: str) -> str:
    return "paper: in closed form and single precision" if name == "paper" else name


def _attack_options(target: Target, known_init: bool) -> Request | None:
    preset = st.selectbox(
        "Start from",
        list(PRESETS),
        format_func=preset_words,
        key=PRESET,
        bind="query-params",
        persist_state="session",
        help="A field left empty below takes its value from here; it shows which.",
    )
    base = attack_request(open_run(target.summary.id), target.model, preset, {}, False).settings
    given = _attack_fields(base, frozenset())
    with told():
        return attack_request(open_run(target.summary.id), target.model, preset, given, known_init)
    return None


def _search_options(target: Target, known_init: bool) -> Request | None:
    st.markdown(
        "Both papers make a hundred attacks with numbers drawn at random, and pool what all of them find. Attacks are "
        "judged by the residual they end with: no training image is looked at.",
        width=TEXT_WIDTH,
    )
    run = open_run(target.summary.id)
    search = config_form(SearchSettings, SearchSettings().model_dump(mode="json"), SEARCH_FIELDS, prefix=SEARCH_FORM)
    recipe = st.selectbox(
        "Recipe of each attack",
        ["paper", "fast"],
        format_func=search_recipe_words,
        key=SEARCH_RECIPE,
        bind="query-params",
        persist_state="session",
    )
    with st.popover("Where it runs", icon=":material/lan:"):
        places = choose_places(SEARCH_PLACES)
    base = search_request(run, target.model, recipe, {}, {}, False).settings.attack
    drawn = SEARCH_RANGES.get(search.get("ranges", "haim2022"), {})
    given = _attack_fields(base, frozenset(drawn))
    with told():
        return search_request(run, target.model, recipe, given, search, known_init, places)
    return None


def _attack_fields(base: AttackSettings, drawn: frozenset[str]) -> dict[str, Any]:
    """The numbers of an attack on tabs; those that a search draws by itself are left out."""
    placed = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, REST: tuple(n for n in field_paths(AttackSettings) if n not in placed and n != "recipe")}
    if base.recipe != "fast":
        del groups["Fast recipe"]
    values = base.model_dump(mode="json")
    given: dict[str, Any] = {}
    for tab, names in zip(st.tabs(list(groups)), groups.values(), strict=True):
        with tab:
            shown = [name for name in names if name not in drawn]
            given |= config_form(AttackSettings, values, shown, prefix=FORM)
    return given


def _take_up_address() -> None:
    """`?from=<run>` fills the form with that run's settings, `?model=<run>` chooses the model."""
    source, model = st.query_params.get("from"), st.query_params.get("model")
    if source is not None or model is not None:
        kind = st.session_state.get(KIND)
        try:
            if source is not None:
                kind = _fill_from(source)
            elif model is not None:
                _choose_model(model)
        except AfterimageError as error:
            st.session_state[_NOTE] = str(error)
        # Into the address as well, where Streamlit itself puts only what somebody types. The kind of attack goes
        # there alone: a widget with a default does not like to be told otherwise behind its back.
        st.session_state.pop(KIND, None)
        st.switch_page("pages/2_Reconstruct.py", query_params=_address(kind))
    if note := st.session_state.pop(_NOTE, None):
        st.warning(plain(note) + ".", icon=":material/warning:")


def _address(kind: str | None) -> dict[str, str]:
    """What the form holds, as the widgets write it into the address: choices by the words they are shown with."""
    models = {run.id: run_words(run) for run in runs_of(MODEL_KINDS)}
    words = {
        MODEL: models.get,
        PRESET: preset_words,
        SEARCH_RECIPE: search_recipe_words,
        KNOWN_INIT: lambda known: "true" if known else None,
    }
    keys = [f"{FORM}_{name}" for name in field_paths(AttackSettings) if name != "recipe"]
    keys += [f"{SEARCH_FORM}_{name}" for name in SEARCH_FIELDS]
    keys += [f"{SEARCH_PLACES}_{name}" for name in PLACE_FIELDS]
    held = {key: st.session_state.get(key) for key in (*words, *keys)}
    found = {key: words.get(key, str)(value) for key, value in held.items() if value is not None}
    return {key: text for key, text in {KIND: KINDS.get(kind or ""), **found}.items() if text}


def _choose_model(run_id: str) -> None:
    if run_id not in {run.id for run in runs_of(MODEL_KINDS)}:
        run = open_run(run_id)
        raise InputError(
            f"run {run.id} is of kind {run.kind} and {run.status().state}, and cannot be attacked; choose another model"
        )
    st.session_state[MODEL] = run_id


def _fill_from(run_id: str) -> str:
    """A run's settings into the form, as far as they differ from what would stand there anyway; gives its kind."""
    run = open_run(run_id)
    if run.kind not in ("reconstruct", "search"):
        raise InputError(f"run {run.id} is of kind {run.kind} and has no settings of an attack; choose another run")
    kind = SearchConfig if run.kind == "search" else ReconstructConfig
    config = parse_config(kind, run.config)
    _choose_model(config.model)
    model_run, model = open_run(config.model), attack_model(config.model)
    st.session_state[KNOWN_INIT] = config.known_init
    settings = attack_of(config)
    if isinstance(config, SearchConfig):
        st.session_state[SEARCH_RECIPE] = str(settings.recipe)
        base = search_request(model_run, model, settings.recipe, {}, {}, False).settings.attack
        asked = config.settings.model_dump(mode="json", exclude={"attack"})
        usual = SearchSettings().model_dump(mode="json")
        for name in SEARCH_FIELDS:
            _fill(f"{SEARCH_FORM}_{name}", asked[name], usual[name])
        fill_form(Places, usual_places().model_dump(mode="json"), config.model_dump(mode="json"), prefix=SEARCH_PLACES)
    else:
        st.session_state[PRESET] = str(settings.recipe)
        base = attack_request(model_run, model, str(settings.recipe), {}, False).settings
    fill_form(AttackSettings, base.model_dump(mode="json"), settings.model_dump(mode="json"), prefix=FORM)
    return "search" if isinstance(config, SearchConfig) else "attack"


def _fill(key: str, value: Any, usual: Any) -> None:
    if value == usual:
        st.session_state.pop(key, None)
    else:
        st.session_state[key] = str(value)
