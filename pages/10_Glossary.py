"""Glossary: the terms of the papers as this app uses them, from docs/glossary.md."""

from __future__ import annotations

import streamlit as st

from recon_core.project_files import project_file
from ui.shared.definitions import show_definitions
from ui.shared.pages import GLOSSARY, show_page

TEXT_WIDTH = 860
FILE = project_file("docs") / "glossary.md"


def page() -> None:
    heading, _, text = FILE.read_text(encoding="utf-8").partition("\n")
    st.title(heading.removeprefix("# "), anchor=False)
    show_definitions()
    st.markdown(text, width=TEXT_WIDTH)


show_page(GLOSSARY, page)
