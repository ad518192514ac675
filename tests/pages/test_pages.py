"""One list of pages: it names every file that Streamlit serves, and nobody else names them; the glossary is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image
from streamlit.runtime.state.query_params import QueryParams
from streamlit.testing.v1 import AppTest

from recon_core.store import RunStore
from tests.pages.page_texts import texts
from ui.shared.pages import FORM_PAGES, GLOSSARY, HOME, PAGES, RESULTS, TRAIN

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
    app = AppTest.from_file(str(PROJECT / HOME.file), default_timeout=240)
    app.switch_page(GLOSSARY.file).run()
    assert not app.exception
    assert [title.value for title in app.title] == ["Glossary"]
    defined = re.findall(r"^\*\*(.+?)\*\*", texts(app), re.MULTILINE)
    assert set(TERMS) <= set(defined)
    assert "| L_prior | linear beyond [0, 1] | squared beyond [-1, 1]" in texts(app)  # where text and code differ
    assert not own_store.exists()


def test_only_a_link_within_its_page_needs_the_address_told(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another page the browser has it; told again too early, it would change the address of the page before."""
    told: list[str] = []
    monkeypatch.setattr(QueryParams, "_send_query_param_msg", lambda params: told.append(str(params)))
    first, second = (store.create("train", {}, name=name) for name in ("first", "second"))
    app = AppTest.from_file(str(PROJECT / HOME.file), default_timeout=240).run()
    app.switch_page(TRAIN.file)
    app.query_params["run"] = first.id
    app.run()
    assert [title.value for title in app.title] == ["first"]
    assert told == []
    app.query_params["run"] = second.id
    app.run()
    assert [title.value for title in app.title] == ["second"]
    assert told == [str({"run": second.id})]


def test_results_are_shown_as_they_were_built(own_store: Path) -> None:
    """Those of the store before those of the project; pictures where they belong, a word where one is missing."""
    folder = own_store / ".results"
    (folder / "results").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "results" / "there.png")
    parts = (
        "# Results",
        "Before.",
        "![one](results/there.png)",
        "| a |\n| --- |\n| 7 |",
        "![two](results/gone.png)",
        "After.",
    )
    (folder / "results.md").write_text("\n\n".join(parts))
    app = AppTest.from_file(str(PROJECT / HOME.file), default_timeout=240)
    app.switch_page(RESULTS.file).run()
    assert not app.exception
    assert [title.value for title in app.title] == ["Results"]
    assert len(app.get("image")) == 1
    for words in ("Before.", "| 7 |", "After.", "two: the picture results/gone.png is missing"):
        assert words in texts(app)
