"""Reads of the run store that are kept between reruns and shared by all sessions.

`store_read` keeps what is read of the whole store for some seconds, `run_read` what is read of one run until its files
change. Both decorate a function of the store or the run; the page calls it without one, and gets that of the default
store. Arguments are part of the key, but for those given by a name with a leading underscore.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

import streamlit as st

from recon_core.store import Run, RunStore, default_root

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
        seconds: float | None = options.pop("seconds", None)

        def kept(root: str, *args: P.args, **kwargs: P.kwargs) -> tuple[T, float]:
            """The result, and until when it holds; Streamlit's own lifetime is the same for all results."""
            found = read(_store_at(root), *args, **kwargs)
            return found, math.inf if seconds is None else time.monotonic() + _lifetime(found, seconds)

        self._kept = _cached(kept, read, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        root = str(default_root())
        found, until = self._kept(root, *args, **kwargs)
        if time.monotonic() >= until:
            self._kept.clear(root, *args, **kwargs)
            found, _ = self._kept(root, *args, **kwargs)
        result: T = found
        return result

    def clear(self, *args: Any) -> None:
        """Forget what has just been changed: the result for these arguments, or all results."""
        self._kept.clear(*((str(default_root()), *args) if args else ()))


def _lifetime(found: object, seconds: float) -> float:
    """Seconds for which a result is kept: longer for a long list, which would be outdated before its page is drawn."""
    is_long = isinstance(found, tuple) and len(found) > _LONG_LIST
    return max(seconds, _LONG_SECONDS) if is_long else seconds


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
    shared: bool,
    spinner: str | bool,
    seconds: float | None = None,
    hash_funcs: Mapping[Any, Callable[[Any], Any]] | None = None,
) -> Any:
    # Streamlit tells cached functions apart by module and name, which all of these would have in common.
    kept.__module__, kept.__qualname__ = read.__module__, read.__qualname__
    cache: Any = st.cache_resource if shared else st.cache_data
    return cache(max_entries=keep, ttl=seconds, show_spinner=spinner, hash_funcs=hash_funcs)(kept)
