"""The form of an attack: a model, a button, and all settings in an expander."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from recon_core.attacks import ATTACKS, SEARCH_RANGES, AttackSettings, Hinge, LabelPolicy, find_attack
from recon_core.attacks.registry import all_setting_names
from recon_core.config import TrainConfig, parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.runs.attack_request import attack_request, starting_points
from recon_core.runs.models import MODEL_KINDS, AttackModel
from recon_core.runs.reconstruction import ReconstructConfig, default_attack
from recon_core.runs.titles import data_label
from recon_core.scheduling import Places, queue, usual_places
from recon_core.scheduling.estimates import estimate_reconstruction
from recon_core.store import RunStore, RunSummary, default_root
from recon_core.studies.requests import Request, attack_of, create_requested, search_request, warning
from recon_core.studies.search import SEARCHED_ATTACK, SearchConfig
from recon_core.studies.trials import SearchSettings
from ui.reconstruct.baselines import show_baselines
from ui.reconstruct.cached import attack_model
from ui.reconstruct.view import show_model_runs
from ui.shared.cached import open_run, store_read
from ui.shared.faults import errors_shown
from ui.shared.formatting import duration, plain, sentence
from ui.shared.forms import config_form, field_paths, fill_form, typed_values
from ui.shared.memory import may_start
from ui.shared.pages import RECONSTRUCT, TRAIN
from ui.shared.pick import pick_run, runs_of, show_nothing_yet
from ui.shared.places import FIELDS as PLACE_FIELDS
from ui.shared.places import choose_places
from ui.shared.store import forget

TEXT_WIDTH = 860
MODEL, KIND, PRESET, KNOWN_INIT = "r_model", "r_kind", "r_start", "r_known"
SEARCH_RECIPE = "rs_recipe"
FORM, SEARCH_FORM, SEARCH_PLACES = "r", "rs", "rp"
_NOTE = "r-note"

KINDS = {"attack": "One attack", "search": "Search over hyper-parameters"}
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
}
COMPUTING = "Computing"  # what all attacks have and is not above
SEARCH_FIELDS = ("trials", "sampler", "ranges", "seed")
NATURAL_ONLY = ("rho", "unmix_share", "unmix_starts", "confirm_share", "rounds")
"""What only an attack with knowledge of images does."""
DECIDING = ("labels", "floor", "prior")
"""Settings that decide which others apply."""


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
        help="Networks trained here, and imported models.",
    )
    if summary is None:
        show_nothing_yet(
            "There is no model to attack yet.",
            "Train one, which takes seconds, or bring a checkpoint of your own; both are done on the Train page.",
            TRAIN,
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
    facts = [f"Network {model.architecture}", f"{model.task} task"]
    training = model.training
    if training is None:
        facts.append("imported: how it was trained is not known")
    else:
        n = (open_run(target.summary.id).result() or {}).get("n")
        where = data_label(training.model_dump(mode="json"))
        facts.append(f"trained here on {n} samples of {where} (hidden from the attack)")
    return plain(" · ".join(facts))


def _offer_start(target: Target, request: Request | None) -> None:
    """The start button, the estimated duration, and warnings."""
    searching = isinstance(request, SearchConfig)
    if request is not None and (doubt := warning(target.model, request)) is not None:
        st.warning(plain(sentence(doubt)), icon=":material/warning:")
    ready = request is not None and may_start("search" if searching else "reconstruct", request, "r-begin")
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button(
            "Start the search" if searching else "Start",
            key="r-begin",
            type="primary",
            icon=":material/play_arrow:",
            disabled=not ready,
        )
        if request is not None:
            st.markdown(_expectation(target, request))
    if pressed and request is not None:
        with errors_shown():
            run = create_requested(RunStore(default_root()), target.model, request)
            queue.submit(run)
            forget()
            st.query_params["run"] = run.id
            st.rerun()


def _expectation(target: Target, request: Request) -> str:
    """What the button will start: how many runs, for how long, and how many are queued before them."""
    settings = attack_of(request)
    facts = [f"{settings.m:,} candidates, recipe {settings.recipe}"]
    times = settings.seeds
    if isinstance(request, SearchConfig):
        times = request.settings.trials
        facts = [f"{times:,} attacks with {facts[0]}"]
    elif times > 1:
        facts.append(f"{times} seeds")
    seconds = _seconds(target, settings)
    if seconds is not None:
        whole = seconds * times if isinstance(request, SearchConfig) else seconds
        elsewhere = isinstance(request, SearchConfig) and request.cluster is not None
        facts.append(f"about {duration(whole)} {'of work for the cluster' if elsewhere else 'on this machine'}")
    before = len(queue.waiting(RunStore(default_root())))
    if before:
        facts.append(f"{before} queued before it")
    return " · ".join(facts)


def _seconds(target: Target, settings: AttackSettings) -> float | None:
    training = target.model.training
    if training is None:
        return settings.max_seconds
    return _estimate(training.model_dump_json(), settings.model_dump_json())


# New runs make the estimate better, so it is not kept for ever.
@store_read(keep=64, seconds=120, spinner="Estimating the time …")
def _estimate(store: RunStore, training: str, settings: str) -> float | None:
    return estimate_reconstruction(
        TrainConfig.model_validate_json(training),
        AttackSettings.model_validate_json(settings),
        store,
    )


def _options(target: Target) -> Request | None:
    """All settings; where they are not valid, shows why and returns None."""
    kind = st.segmented_control(
        "What to do",
        list(KINDS),
        default="attack",
        required=True,
        format_func=lambda kind: KINDS[kind],
        key=KIND,
        bind="query-params",
        persist_state="session",
    )
    imported = target.model.training is None
    known_init = st.toggle(
        "Known initialisation",
        key=KNOWN_INIT,
        disabled=imported,
        bind="query-params",
        persist_state="session",
        help="The attack explains only the change since initialisation, which is drawn again from its seed. It helps "
        "networks with a large initialisation. Imported models do not include their initialisation.",
    )
    known_init = bool(known_init) and not imported
    return _search_options(target, known_init) if kind == "search" else _attack_options(target, known_init)


def preset_label(name: str) -> str:
    known = ATTACKS.get(name)
    return f"{name}: {'hyper-parameters the authors released' if known is None else known.description}"


def search_recipe_label(name: str) -> str:
    if name == SEARCHED_ATTACK:
        return f"{name}: in closed form and single precision"
    return f"{name}: {find_attack(name).description}"


def _attack_options(target: Target, known_init: bool) -> Request | None:
    names = list(starting_points())
    preset = st.selectbox(
        "Start from",
        names,
        index=names.index(default_attack(target.model)),
        format_func=preset_label,
        key=PRESET,
        bind="query-params",
        persist_state="session",
        help="A field left empty below takes its value from here; it shows which.",
    )
    base = attack_request(open_run(target.summary.id), target.model, preset, {}, False).settings
    given = _attack_fields(target.model, base)
    with errors_shown():
        return attack_request(open_run(target.summary.id), target.model, preset, given, known_init)
    return None


def _search_options(target: Target, known_init: bool) -> Request | None:
    st.markdown(
        "Both papers make a hundred attacks with numbers drawn at random, and pool what all of them find. Attacks are "
        "ranked by their final residual: no training image is looked at.",
        width=TEXT_WIDTH,
    )
    run = open_run(target.summary.id)
    search = config_form(SearchSettings, SearchSettings().model_dump(mode="json"), SEARCH_FIELDS, prefix=SEARCH_FORM)
    recipe = st.selectbox(
        "Recipe of each attack",
        sorted(ATTACKS, key=lambda name: name != SEARCHED_ATTACK),
        format_func=search_recipe_label,
        key=SEARCH_RECIPE,
        bind="query-params",
        persist_state="session",
    )
    with st.popover("Where it runs", icon=":material/lan:"):
        places = choose_places(SEARCH_PLACES)
    base = search_request(run, target.model, recipe, {}, {}, False).settings.attack
    drawn = SEARCH_RANGES.get(search.get("ranges", "haim2022"), {})
    given = _attack_fields(target.model, base, frozenset(drawn))
    with errors_shown():
        return search_request(run, target.model, recipe, given, search, known_init, places)
    return None


def _attack_fields(model: AttackModel, base: AttackSettings, drawn: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The settings of an attack on tabs, without those that a search draws by itself or that have no effect."""
    values = base.model_dump(mode="json")
    now = {**values, **typed_values(DECIDING, prefix=FORM)}
    names = [name for name in field_paths(type(base)) if name not in drawn and applies(name, now, planar=model.planar)]
    groups = _groups(base, names)
    given: dict[str, Any] = {}
    for tab, shown in zip(st.tabs(list(groups)), groups.values(), strict=True):
        with tab:
            given |= config_form(type(base), values, shown, prefix=FORM)
    return given


def applies(name: str, settings: Mapping[str, Any], *, planar: bool) -> bool:
    """Whether a setting has any effect: points have no pixels, and multipliers of learnt sign no lower bound."""
    if name in ("prior", "weight_prior", "box_low", "box_high", *NATURAL_ONLY):
        prior = settings.get("prior")
        fits = prior == "natural" if name in NATURAL_ONLY else prior not in ("off", "natural")
        return not planar and (name == "prior" or fits)
    if name in ("floor", "weight_floor"):
        return settings.get("labels") != LabelPolicy.LEARNT and (name == "floor" or settings.get("floor") != Hinge.OFF)
    return name != "recipe"  # chosen above


def _groups(base: AttackSettings, names: Sequence[str]) -> dict[str, list[str]]:
    """`names` of settings of this attack by tab; its very own have one that is called by its name."""
    groups = {title: [name for name in group if name in names] for title, group in GROUPS.items()}
    placed = {name for group in groups.values() for name in group}
    rest = [name for name in names if name not in placed]
    groups[f"Attack {base.recipe}"] = [name for name in rest if name not in AttackSettings.model_fields]
    groups[COMPUTING] = [name for name in rest if name in AttackSettings.model_fields]
    return {title: group for title, group in groups.items() if group}


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
        # there alone: Streamlit warns where a widget has a default and a value in the session.
        st.session_state.pop(KIND, None)
        st.switch_page(RECONSTRUCT.file, query_params=_address(kind))
    if note := st.session_state.pop(_NOTE, None):
        st.warning(plain(note) + ".", icon=":material/warning:")


def _address(kind: str | None) -> dict[str, str]:
    """What the form holds, as the widgets write it into the address: the model by its id, other choices by label."""
    spell: dict[str, Callable[[Any], str | None]] = {
        MODEL: str,
        PRESET: preset_label,
        SEARCH_RECIPE: search_recipe_label,
        KNOWN_INIT: lambda known: "true" if known else None,
    }
    keys = [f"{FORM}_{name}" for name in all_setting_names() if name != "recipe"]
    keys += [f"{SEARCH_FORM}_{name}" for name in SEARCH_FIELDS]
    keys += [f"{SEARCH_PLACES}_{name}" for name in PLACE_FIELDS]
    held = {key: st.session_state.get(key) for key in (*spell, *keys)}
    found = {key: spell.get(key, str)(value) for key, value in held.items() if value is not None}
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
    config: ReconstructConfig | SearchConfig = (
        parse_config(SearchConfig, run.config) if run.kind == "search" else parse_config(ReconstructConfig, run.config)
    )
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
    fill_form(type(base), base.model_dump(mode="json"), settings.model_dump(mode="json"), prefix=FORM)
    return "search" if isinstance(config, SearchConfig) else "attack"


def _fill(key: str, value: Any, usual: Any) -> None:
    if value == usual:
        st.session_state.pop(key, None)
    else:
        st.session_state[key] = str(value)
