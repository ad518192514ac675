"""One list of pages: it names every file that Streamlit serves, and nobody else names them; the glossary is shown."""

from __future__ import annotations

import re
from pathlib import Path

from streamlit.testing.v1 import AppTest

from tests.pages.page_texts import texts
from ui.shared.pages import FORM_PAGES, GLOSSARY, HOME, PAGES

PROJECT = Path(__file__).resolve().parents[2]
TERMS = ("Margin", "Multiplier", "KKT residual", "SSIM", "B", "Chance level")


def test_every_file_is_a_page_and_every_page_a_file() -> None:
    served = {f"pages/{file.name}" for file in (PROJECT / "pages").glob("*.py")}
    assert {page.file for page in PAGES} == served | {"app.py"}
    for page in PAGES[1:]:  # Streamlit makes the name in the sidebar from the file's
        assert page.file == f"pages/{PAGES.index(page)}_{page.title.replace(' ', '_')}.py"
    assert {page.file for page in FORM_PAGES.values()} <= {page.file for page in PAGES}


def test_nobody_else_names_a_page_file() -> None:
    files = [PROJECT / "app.py", *(PROJECT / "ui").rglob("*.py"), *(PROJECT / "pages").glob("*.py")]
    named = [file.name for file in files if re.search(r"pages/\d_", file.read_text())]
    assert named == ["pages.py"]


def test_the_glossary_defines_the_terms_of_the_papers(own_store: Path) -> None:
    app = AppTest.from_file(str(PROJECT / HOME.file), default_timeout=60)
    app.switch_page(GLOSSARY.file).run()
    assert not app.exception
    assert [title.value for title in app.title] == ["Glossary"]
    defined = re.findall(r"^\*\*(.+?)\*\*", texts(app), re.MULTILINE)
    assert set(TERMS) <= set(defined)
    assert not own_store.exists()
