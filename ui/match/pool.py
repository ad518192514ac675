"""Pools of candidates kept open between reruns: the slow work happens once, in the background."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from threading import Thread
from typing import TypeVar

import streamlit as st

from recon_core.config import parse_config
from recon_core.errors import AfterimageError
from recon_core.runs.match_request import PoolFacts, create_match, is_quick, size_of
from recon_core.runs.match_source import MatchConfig, MatchSource, load_source
from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore, default_root
from recon_core.views.live_match import ImagePool, PairView, PointPool, open_pool, slow_part
from ui.match.choice import run_config
from ui.shared.cached import store_read
from ui.shared.live import keep_fresh
from ui.shared.memory import may_start
from ui.shared.pick import runs_of
from ui.shared.run_panel import show_live_run
from ui.shared.store import forget

# Seconds a page waits by itself for a pool before it says what it is waiting for.
PATIENCE = 2.0
# A pool of 100,000 colour images is more than a gigabyte, so few are kept; a view is some megabytes.
SOURCES_KEPT, POOLS_KEPT, VIEWS_KEPT = 2, 2, 24

T = TypeVar("T")
Pool = ImagePool | PointPool


def pool_for(config: MatchConfig, facts: PoolFacts) -> Pool | None:
    """The prepared pool; while it is not ready, None, and a message says what is being done."""
    if not _is_quick(config, facts):
        _match_in_background(config, facts)
        return None
    key = _key(config)
    with st.spinner("Opening the candidates", show_time=True):
        opening = _opening(*key)
        try:
            return opening.result(timeout=PATIENCE)
        except TimeoutError:
            pass
        except Exception:
            _opening.clear(*key)  # the next attempt may succeed
            _loading.clear(key[0], _source_of(config))
            raise
    total = sum(facts.sizes.values())

    def say() -> None:
        st.info(
            f"Opening {total:,} candidates. This takes some seconds once; after that the sliders are quick.",
            icon=":material/hourglass:",
        )

    keep_fresh(say, lambda: not opening.done())
    return None


def view_of(pool: ImagePool, config: MatchConfig) -> PairView:
    """The pool merged as the sliders say; another threshold merges nothing."""
    return _view(*_key(config), _without_threshold(config).model_dump_json(), _pool=pool)


@store_read(keep=VIEWS_KEPT, shared=True)
def _view(store: RunStore, versions: tuple[str, ...], layout: str, request: str, *, _pool: ImagePool) -> PairView:
    return _pool.view(MatchConfig.model_validate_json(request))


def matches_like(config: MatchConfig, default_factor: float) -> str | None:
    """The newest match run, finished or on its way, that was asked for exactly this."""
    wanted = _spelt_out(config, default_factor)
    states = (RunState.DONE, RunState.RUNNING, RunState.QUEUED)
    like = _matches(states, config)
    return next((i for i, other in like.items() if _spelt_out(other, default_factor) == wanted), None)


def _spelt_out(config: MatchConfig, default_factor: float) -> MatchConfig:
    factor = default_factor if config.merge_factor is None else config.merge_factor
    return config.model_copy(update={"merge_factor": factor, "device": "auto"})


def _matches(states: tuple[RunState, ...], config: MatchConfig) -> dict[str, MatchConfig]:
    """Match runs of any of the same reconstructions: of thousands, the few that `config` may have in common with."""
    asked = {*config.runs, config.untrained}
    found = {}
    for run in runs_of(("match",), lambda run: not asked.isdisjoint(run.parents), states):
        try:
            found[run.id] = parse_config(MatchConfig, run_config(run.id))
        except AfterimageError:
            continue  # of another version, or damaged: nothing to go by
    return found


def _is_quick(config: MatchConfig, facts: PoolFacts) -> bool:
    sizes = dict(facts.sizes)
    if config.untrained is not None:
        sizes[config.untrained] = size_of(RunStore(default_root()).open(config.untrained))
    return facts.planar or is_quick(config, sizes, _matches((RunState.DONE,), config).values())


def _match_in_background(config: MatchConfig, facts: PoolFacts) -> None:
    """A large pool is searched by a run of its own, which leaves what it found in the cache."""
    total = sum(facts.sizes.values())
    st.info(
        f"These {total:,} candidates have not been matched yet. That takes from seconds to minutes, once, in the "
        "background; after that the sliders are quick.",
        icon=":material/search:",
    )
    others = _matches(tuple(state for state in RunState if state is not RunState.DONE), config)
    at_work = next((run_id for run_id, other in others.items() if slow_part(other) == slow_part(config)), None)
    if at_work is not None:
        show_live_run(at_work)
        return
    ready = may_start("match", config, "m-start")
    if st.button("Match them", key="m-start", type="primary", icon=":material/play_arrow:", disabled=not ready):
        queue.submit(create_match(RunStore(default_root()), config))
        forget()
        st.rerun()


def _key(config: MatchConfig) -> tuple[tuple[str, ...], str]:
    """What a pool depends on: the state of the runs' files, and the slow part of the request."""
    store = RunStore(default_root())
    ids = [*config.runs, *([config.untrained] if config.untrained else [])]
    versions = tuple(store.open(run_id).content_version() for run_id in ids)
    return versions, slow_part(config).model_dump_json()


@store_read(keep=POOLS_KEPT, shared=True)
def _opening(store: RunStore, versions: tuple[str, ...], layout: str) -> Future[Pool]:
    config = MatchConfig.model_validate_json(layout)
    source = _loading(versions, _source_of(config))
    return _beside(lambda: open_pool(store, config, source.result()))


# Kept apart from the layouts, which differ in how candidates are merged and share what is large.
@store_read(keep=SOURCES_KEPT, shared=True)
def _loading(store: RunStore, versions: tuple[str, ...], named: str) -> Future[MatchSource]:
    return _beside(lambda: load_source(store, MatchConfig.model_validate_json(named)))


def _source_of(config: MatchConfig) -> str:
    """The part of the request that determines what is read."""
    return slow_part(MatchConfig(runs=config.runs, untrained=config.untrained)).model_dump_json()


def _beside(work: Callable[[], T]) -> Future[T]:
    """Run it in a daemon thread, which only reads and ends with the server."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again where the result is read
            future.set_exception(error)

    Thread(target=run, name="open-pool", daemon=True).start()
    return future


def _without_threshold(config: MatchConfig) -> MatchConfig:
    return config.model_copy(update={"threshold": slow_part(config).threshold})
