"""Visitors of a running dashboard without a browser: what the server sends them, kept fresh as a page does it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

PATIENCE = 120.0
_PROTOCOL = Subprotocol("streamlit")
# Kind of element -> the field with its words.
_WORDS = {
    "markdown": "body",
    "heading": "body",
    "alert": "body",
    "toast": "body",
    "code": "code_text",
    "progress": "text",
    "button": "label",
    "page_link": "label",
}


class Visitor:
    """One open tab: a websocket of its own, on which it asks again whenever the page's timers say so."""

    def __init__(self, url: str, page: str = "", query: str = "") -> None:
        self._origin = Origin(url)
        self._address, self._page, self._query = url.replace("http", "ws", 1) + "/_stcore/stream", page, query
        self._elements: dict[tuple[int, ...], tuple[str, Any]] = {}
        self._timers: dict[str, tuple[float, float]] = {}
        # What the script at work has drawn and timed so far.
        self._drawn: set[tuple[int, ...]] = set()
        self._timed: set[str] = set()
        self._messages: dict[str, ForwardMsg] = {}
        self._page_hash = ""
        self.busy = True
        self.scripts = 0
        self.failures: list[str] = []
        self.toasts: list[str] = []

    def __enter__(self) -> Self:
        self._opened = contextlib.ExitStack()
        self._socket = self._opened.enter_context(
            connect(self._address, origin=self._origin, subprotocols=[_PROTOCOL], max_size=None)
        )
        self._ask("")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def wait_until(self, condition: Callable[[Visitor], Any], seconds: float = PATIENCE) -> Visitor:
        """Keep the page fresh until `condition` holds of it, with no script at work."""
        deadline = time.monotonic() + seconds
        while self.busy or not condition(self):
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not show within {seconds:g} s; the page says:\n{self.words}")
            self._ask_again()
            self._receive(0.1)  # one message only: a busy server leaves no other moment between two scripts
        return self

    def stay(self, seconds: float) -> None:
        """Watch the page for a while."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._ask_again()
            self._receive(min(left, 0.1))

    @property
    def words(self) -> str:
        """All words on the page in the order of their places, without the backslashes that keep markup plain."""
        return "\n".join(
            getattr(element, _WORDS[kind])
            for _, (kind, element) in sorted(self._elements.items(), key=lambda item: item[0])
            if kind in _WORDS
        ).replace("\\", "")

    def of_kind(self, kind: str) -> list[Any]:
        """The elements of one kind, as the server described them."""
        return [element for found, element in self._elements.values() if found == kind]

    def press(self, label: str) -> None:
        """Press the button with that label, and wait until it has done what it does."""
        [button] = [button for button in self.of_kind("button") if label in button.label.replace("\\", "")]
        self.wait_until(lambda page: True)
        self._ask("", button.id)
        self.wait_until(lambda page: True)

    def _ask(self, fragment: str, pressed: str | None = None) -> None:
        request = BackMsg()
        state = request.rerun_script
        state.query_string, state.fragment_id, state.is_auto_rerun = self._query, fragment, bool(fragment)
        state.page_script_hash, state.page_name = self._page_hash, "" if self._page_hash else self._page
        if pressed is not None:
            widget = state.widget_states.widgets.add()
            widget.id, widget.trigger_value = pressed, True
        self.busy = True
        self._socket.send(request.SerializeToString())

    def _ask_again(self) -> None:
        """What the timers in the page do."""
        now = time.monotonic()
        for fragment, (due, interval) in self._timers.items():
            if not self.busy and now >= due:
                self._timers[fragment] = (now + interval, interval)
                self._ask(fragment)
                return

    def _receive(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            self._take(self._socket.recv(timeout=seconds))

    def _take(self, data: str | bytes) -> None:
        message = ForwardMsg()
        message.ParseFromString(data if isinstance(data, bytes) else data.encode())
        if message.WhichOneof("type") == "ref_hash":
            message = self._messages[message.ref_hash]
        elif message.metadata.cacheable:
            self._messages[message.hash] = message
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self.busy, self._page_hash = True, message.new_session.page_script_hash
            self._drawn, self._timed = set(), set()
        elif kind == "delta":
            self._draw(tuple(message.metadata.delta_path), message.delta)
        elif kind == "auto_rerun":
            interval = message.auto_rerun.interval
            self._timers[message.auto_rerun.fragment_id] = (time.monotonic() + interval, interval)
            self._timed.add(message.auto_rerun.fragment_id)
        elif kind == "page_info_changed":
            self._query = message.page_info_changed.query_string
        elif kind == "script_finished":
            self._end(message.script_finished)

    def _end(self, how: int) -> None:
        """A script is over. One that drew the whole page leaves nothing of what was there before it."""
        if how == ForwardMsg.FINISHED_SUCCESSFULLY:
            self._elements = {path: found for path, found in self._elements.items() if path in self._drawn}
            self._timers = {fragment: timer for fragment, timer in self._timers.items() if fragment in self._timed}
        self.busy = False
        self.scripts += 1

    def _draw(self, path: tuple[int, ...], delta: Any) -> None:
        if delta.WhichOneof("type") == "add_block":
            for other in [other for other in self._elements if other[: len(path)] == path]:
                del self._elements[other]
            return
        kind = delta.new_element.WhichOneof("type")
        element: Any = getattr(delta.new_element, kind) if kind else None
        self._elements[path] = (kind or "empty", element)
        self._drawn.add(path)
        if kind == "exception":
            self.failures.append(f"{element.type}: {element.message}")
        elif kind == "toast":
            self.toasts.append(element.body.replace("\\", ""))
