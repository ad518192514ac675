"""The results page: text and pictures that were built beforehand, so it opens at once, and prints."""

from __future__ import annotations

import re
from pathlib import Path

import streamlit as st

from recon_core.store import RunStore, default_root
from recon_core.studies.results_files import SHIPPED, default_target
from ui.shared.pages import STUDIES
from ui.shared.store import recent_runs, run_details

_STUDY = re.compile(r"run `(study-[a-z0-9-]+)`")
_PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)]+)\)$", re.MULTILINE)
# On paper there is no sidebar and nothing scrolls; a picture is not cut in two.
_PRINT = """<style>
@media print {
  [data-testid="stSidebar"], [data-testid="stHeader"], [data-testid="stToolbar"] { display: none !important; }
  html, body, .stApp, [data-testid="stAppViewContainer"], [data-testid="stMain"] {
    position: static !important; height: auto !important; overflow: visible !important; display: block !important;
  }
  [data-testid="stMainBlockContainer"] { max-width: none !important; padding: 0 !important; }
  [data-testid="stMarkdownContainer"] table { font-size: 7pt; display: table !important; }
  [data-testid="stMarkdownContainer"] :is(p, li) { font-size: 10pt; }
  [data-testid="stMarkdownContainer"] :is(th, td) { padding: 1px 2px !important; overflow-wrap: break-word; }
  [data-testid="stMarkdownContainer"] td code { white-space: nowrap; font-size: 5.5pt; padding: 0; background: none; }
  [data-testid="stImage"] img { max-height: 170mm; width: auto !important; max-width: 100% !important; }
  [data-testid="stImage"], h3, tr { break-inside: avoid; } h3 { break-after: avoid; }
  @page { size: A4; margin: 12mm; }
}
</style>"""


def show_results() -> None:
    st.html(_PRINT)
    page = results_file(RunStore(default_root()))
    if page is None:
        st.title("Results", anchor=False)
        st.info("No results were built yet. Run studies, then `python -m recon_core results`.", icon=":material/info:")
        return
    heading, _, text = page.read_text(encoding="utf-8").partition("\n")
    st.title(heading.removeprefix("# "), anchor=False)
    # Text, then a picture's name and file, and so on.
    parts = _PICTURE.split(text)
    st.markdown(parts[0])
    known = {run.id: run.name for run in recent_runs()}
    study = _last_study(parts[0])
    for name, file, below in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        picture = page.parent / file
        if picture.is_file():
            st.image(str(picture), caption=name, alt=f"Figure of {name}")
            if study in known:
                _offer_study(study, picture.stem)
        else:
            st.caption(f"{name}: the picture {file} is missing; build the results again.")
        st.markdown(below)
        study = _last_study(below) or study


def _last_study(text: str) -> str:
    """The study that the pictures below a text are of."""
    named: list[str] = _STUDY.findall(text)
    return named[-1] if named else ""


def _offer_study(run_id: str, picture: str) -> None:
    """A picture cannot be clicked; in the study it was built from every mark and image can."""
    plan = run_details(run_id).config.get("plan")
    name = plan.get("name") if isinstance(plan, dict) else None
    st.page_link(
        STUDIES.file,
        label="Open it in its study, where each image opens its pair",
        icon=":material/open_in_full:",
        query_params={"run": run_id, "s_show": picture.removeprefix(f"{name}-")},
    )


def results_file(store: RunStore) -> Path | None:
    """The results of the store in use, or else those that come with the project."""
    return next((file for file in (default_target(store), SHIPPED) if file.is_file()), None)
