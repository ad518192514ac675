"""Failures a user should read, on the page instead of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from recon_core.errors import AfterimageError
from ui.shared.formatting import plain, sentence


@contextmanager
def errors_shown() -> Iterator[None]:
    """Show the engine's one-sentence failures in place of what could not be drawn."""
    try:
        yield
    except AfterimageError as error:
        st.error(plain(sentence(str(error))), icon=":material/error:")
