"""What a script has drawn reaches its page, even where a timer comes in at the very end of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.runtime import Runtime, RuntimeConfig

from ui.shared.sessions import has_more_to_say, patiently

# A timer far longer than the test: its requests are made by hand.
SCRIPT = """
import streamlit as st

@st.fragment(run_every=3600)
def strip():
    st.text("strip")

strip()
for number in range(20):
    st.text(f"line {number}")
"""
LIMIT = 60.0
Request = Callable[..., None]


class Page:
    """What a browser would have been told."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.finished = 0
        self.fragment = ""

    def write_forward_msg(self, msg: ForwardMsg) -> None:
        self.texts |= {msg.delta.new_element.text.body} - {""}
        self.fragment = msg.delta.fragment_id or self.fragment
        self.finished += msg.WhichOneof("type") == "script_finished"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    before, Runtime._instance = Runtime._instance, None
    script = tmp_path / "page.py"
    script.write_text(SCRIPT)
    try:
        files = MemoryMediaFileStorage("/media"), MemoryUploadedFileManager("/upload")
        yield Runtime(RuntimeConfig(str(script), *files))
    finally:
        Runtime._instance = before


async def drawn(runtime: Runtime, ends: int) -> Page:
    """A page drawn twice; at the last moment of the second time the fragment's timer comes in.

    Until it has heard of so many `ends` of scripts.
    """

    async def until(holds: Callable[[], bool]) -> None:
        limit = time.monotonic() + LIMIT
        while not holds():
            assert time.monotonic() < limit
            await asyncio.sleep(0.005)

    await runtime.start()
    page = Page()
    session_id = runtime.connect_session(page, {})
    session = runtime.get_app_session(session_id)
    assert session is not None
    request = BackMsg()
    request.rerun_script.SetInParent()
    runtime.handle_backmsg(session_id, request)
    await until(lambda: page.finished == 1 and session._scriptrunner is None)
    assert "line 19" in page.texts
    page.texts.clear()
    runtime.handle_backmsg(session_id, request)
    # The session hears nothing while this waits: the script draws all its lines and stops.
    limit = time.monotonic() + LIMIT
    while not has_more_to_say(session):
        assert time.monotonic() < limit
        time.sleep(0.005)
    timer = BackMsg()
    timer.rerun_script.fragment_id = page.fragment
    timer.rerun_script.is_auto_rerun = True
    runtime.handle_backmsg(session_id, timer)
    await until(lambda: session._scriptrunner is None and page.finished == ends)
    runtime.stop()
    await runtime.stopped
    return page


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Callable[[Request], None]:
    return lambda request: monkeypatch.setattr(AppSession, "request_rerun", request)


@pytest.mark.parametrize("mended", [False, True], ids=["streamlit", "mended"])
def test_a_timer_at_the_end_of_a_script_loses_none_of_it(
    runtime: Runtime, sessions: Callable[[Request], None], mended: bool
) -> None:
    """Streamlit's own loses lines; once it does not any more, `ui.shared.sessions` can go."""
    plain = getattr(AppSession.request_rerun, "__wrapped__", AppSession.request_rerun)
    sessions(patiently(plain) if mended else plain)
    page = asyncio.run(drawn(runtime, ends=3 if mended else 2))
    assert ("line 19" in page.texts) is mended
    if mended:
        assert page.texts == {"strip", *(f"line {number}" for number in range(20))}


def test_requests_keep_their_order(sessions: Callable[[Request], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of widgets that come with a later request are the newer ones."""
    passed: list[object] = []
    stopped = True
    monkeypatch.setattr("ui.shared.sessions.has_more_to_say", lambda session: stopped)
    request = patiently(lambda session, state: passed.append(state))

    class Session:
        _event_loop: asyncio.AbstractEventLoop

    async def ask() -> None:
        nonlocal stopped
        session = Session()
        session._event_loop = asyncio.get_running_loop()
        request(session, "first")
        request(session, "second")
        assert passed == []
        stopped = False
        request(session, "third")
        while len(passed) < 3:
            await asyncio.sleep(0.005)

    asyncio.run(ask())
    assert passed == ["first", "second", "third"]
