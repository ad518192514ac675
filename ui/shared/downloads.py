"""Downloads, made only when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

# By ending: what a browser calls it, and the sign for it.
_TYPES = {
    "csv": ("text/csv", ":material/table:"),
    "json": ("application/json", ":material/data_object:"),
    "html": ("text/html", ":material/html:"),
    "png": ("image/png", ":material/image:"),
    "yaml": ("application/yaml", ":material/download:"),
    "zip": ("application/zip", ":material/folder_zip:"),
}


def offer_file(label: str, make: Callable[[], bytes | str], file_name: str, *, key: str, **look: Any) -> None:
    """A button that makes and saves one file; the page is not drawn anew. `look` is what `st.download_button` takes."""
    mime, icon = _TYPES[file_name.rpartition(".")[2]]
    st.download_button(
        label, data=make, file_name=file_name, mime=mime, key=key, on_click="ignore", **{"icon": icon, **look}
    )
