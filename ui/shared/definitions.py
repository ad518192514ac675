"""Where we follow the papers' text and where their code, behind an info mark; from docs/definitions.md."""

from __future__ import annotations

import streamlit as st

from recon_core.project_files import project_file

FILE = project_file("docs") / "definitions.md"


def show_definitions() -> None:
    heading, _, text = FILE.read_text(encoding="utf-8").partition("\n")
    with st.popover("Definitions", icon=":material/info:", help=heading.removeprefix("# ")):
        # The file links to its neighbours in docs; in the app those are pages.
        st.markdown(text.replace("[glossary](glossary.md)", "see the glossary"), width=900)
