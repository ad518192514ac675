"""Reads of the run store that are kept between reruns and shared by all sessions.

`store_read` keeps what is read of the whole store for some seconds, `run_read` what is read of one run until its files
change. Both decorate a function of the store or the run; the page calls it without one, and gets that of the default
store. Arguments are part of the key, but for those given by a name with a leading underscore.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

import streamlit as st

from recon_core.store import Run, RunStore, default_root

# A list of thousands takes so long that it would be too old again before its page is drawn.
_LONG_LIST, _LONG_SECONDS = 2000, 5.0

P = ParamSpec("P")
T = TypeVar("T")


class RunKey(NamedTuple):
    """One run in one state of its files."""

    root: str
    run_id: str
    version: str


class StoreRead(Generic[P, T]):
    """A read of the whole store; see `store_read`."""

    def __init__(self, read: Callable[Concatenate[RunStore, P], T], **options: Any) -> None:
        def kept(root: str, *args: P.args, **kwargs: P.kwargs) -> T:
            return read(_store_at(root), *args, **kwargs)

        self._kept = _cached(kept, read, **options)
        self._long: tuple[float, tuple[object, ...], T] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = (str(default_root()), *args, *sorted(kwargs.items()))
        if self._long is not None and self._long[1] == asked and time.monotonic() < self._long[0]:
            return self._long[2]
        found: T = self._kept(str(default_root()), *args, **kwargs)
        if isinstance(found, tuple) and len(found) > _LONG_LIST:
            self._long = (time.monotonic() + _LONG_SECONDS, asked, found)
        return found

    def clear(self, *args: Any) -> None:
        """Read anew what has just been changed: what was read with these arguments, or all of it."""
        self._long = None
        self._kept.clear(*((str(default_root()), *args) if args else ()))


class RunRead(Generic[P, T]):
    """A read of one run; see `run_read`."""

    def __init__(self, read: Callable[Concatenate[Run, P], T], version: Callable[[Run], str], **options: Any) -> None:
        def kept(root: str, run_id: str, version: str, *args: P.args, **kwargs: P.kwargs) -> T:
            run = RunStore(Path(root)).open(run_id)
            run.refuse_nonsense()
            return read(run, *args, **kwargs)

        self._kept, self._version = _cached(kept, read, **options), version

    def __call__(self, run_id: str, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.at(run_key(run_id, self._version), *args, **kwargs)

    def at(self, key: RunKey, *args: P.args, **kwargs: P.kwargs) -> T:
        """In a state that is known already."""
        found: T = self._kept(*key, *args, **kwargs)
        return found


def store_read(
    *,
    keep: int,
    seconds: float | None = None,
    shared: bool = False,
    spinner: str | bool = False,
    hash_funcs: Mapping[Any, Callable[[Any], Any]] | None = None,
) -> Callable[[Callable[Concatenate[RunStore, P], T]], StoreRead[P, T]]:
    """Keep `keep` results for `seconds`; `shared` gives everybody the same object, which nobody may change."""
    options = {"keep": keep, "seconds": seconds, "shared": shared, "spinner": spinner, "hash_funcs": hash_funcs}
    return lambda read: StoreRead(read, **options)


def run_read(
    *,
    keep: int,
    version: Callable[[Run], str] = Run.content_version,
    seconds: float | None = None,
    shared: bool = False,
    spinner: str | bool = False,
) -> Callable[[Callable[Concatenate[Run, P], T]], RunRead[P, T]]:
    """Keep `keep` results until `version` of their run changes; `shared` as in `store_read`."""
    options = {"keep": keep, "seconds": seconds, "shared": shared, "spinner": spinner, "hash_funcs": None}
    return lambda read: RunRead(read, version, **options)


def open_run(run_id: str) -> Run:
    """A run of the default store, uncached."""
    return RunStore(default_root()).open(run_id)


def run_key(run_id: str, version: Callable[[Run], str] = Run.content_version) -> RunKey:
    root = default_root()
    return RunKey(str(root), run_id, version(RunStore(root).open(run_id)))


@st.cache_resource(max_entries=4, show_spinner=False)
def _store_at(root: str) -> RunStore:
    """One store for all pages: it remembers what it has read of each run."""
    return RunStore(Path(root))


def _cached(
    kept: Callable[..., Any],
    read: Callable[..., Any],
    *,
    keep: int,
    seconds: float | None,
    shared: bool,
    spinner: str | bool,
    hash_funcs: Mapping[Any, Callable[[Any], Any]] | None,
) -> Any:
    # Streamlit tells cached functions apart by module and name, which all of these would have in common.
    kept.__module__, kept.__qualname__ = read.__module__, read.__qualname__
    cache: Any = st.cache_resource if shared else st.cache_data
    return cache(max_entries=keep, ttl=seconds, show_spinner=spinner, hash_funcs=hash_funcs)(kept)
