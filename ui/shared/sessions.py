"""One race of Streamlit's sessions, mended: a page that lost part of what it had drawn.

A script that has ended still has messages under way to its session: what it drew last, and that it has ended. When a
fragment's timer, or a click inside a fragment, comes in just then, `AppSession.request_rerun` starts another runner,
and everything that the one before had still to say is ignored: part of the page, or all of it, stays away or stays old
until the next full run. With timers of 0.1 s on a machine with more to do than cores that came 73 times in 240 pages.
Here requests wait until the session has heard the last of its runner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from time import monotonic
from weakref import WeakKeyDictionary, WeakSet

from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequestType

_LOOK_SECONDS = 0.005
# A script that was stopped by force may take its time over a long call; a visitor who then clicks is not kept waiting.
_PATIENCE = 1.0

Pass = Callable[[AppSession, ClientState | None], None]


@cache
def hear_runners_out() -> None:
    """For all sessions of this process, once."""
    AppSession.request_rerun = patiently(AppSession.request_rerun)  # type: ignore[method-assign, assignment]


def patiently(request_rerun: Pass) -> Pass:
    """`request_rerun`, which gets requests in their order, and none while a runner that has stopped is still heard."""
    queues: WeakKeyDictionary[AppSession, deque[ClientState | None]] = WeakKeyDictionary()
    looking: WeakSet[AppSession] = WeakSet()

    def pass_on(session: AppSession, since: float) -> None:
        looking.discard(session)
        waiting = queues[session]
        while waiting:
            if has_more_to_say(session) and monotonic() - since < _PATIENCE:
                looking.add(session)
                session._event_loop.call_later(_LOOK_SECONDS, pass_on, session, since)
                return
            request_rerun(session, waiting.popleft())

    def request(session: AppSession, client_state: ClientState | None) -> None:
        queues.setdefault(session, deque()).append(client_state)
        if session not in looking:
            pass_on(session, monotonic())

    request.__wrapped__ = request_rerun  # type: ignore[attr-defined]
    return request


def has_more_to_say(session: AppSession) -> bool:
    """Whether the session's runner takes no requests any more, but has not said its last word."""
    runner: ScriptRunner | None = session._scriptrunner
    return runner is not None and runner._requests._state is ScriptRequestType.STOP
