"""Keys of a page beyond what Streamlit's buttons take, and the list of them that `?` opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

_FOLDER = Path(__file__).parent
_HTML = """<dialog class="keys" aria-label="Keys"><h2>Keys</h2><dl></dl><p>? or Escape closes this list.</p></dialog>"""


@dataclass(frozen=True)
class Key:
    """One line of the list. `presses` gives the button, by its key, that a key of the keyboard presses."""

    names: str
    meaning: str
    presses: Mapping[str, str] = field(default_factory=dict)


HELP = Key("?", "this list")


def show_keys(keys: Sequence[Key]) -> None:
    """Listen for them; draws nothing until `?` is pressed. Once on a page."""
    listed = [*keys, HELP]
    data = {
        "keys": [[key.names, key.meaning] for key in listed],
        "presses": {name: button for key in listed for name, button in key.presses.items()},
    }
    _component()(key="page-keys", data=data)


# Registered when first drawn, once for a process.
@cache
def _component() -> ComponentRenderer:
    css, js = ((_FOLDER / f"keys.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return st.components.v2.component("afterimage_keys", html=_HTML, css=css, js=js)
