"""What the theme's settings cannot say."""

from __future__ import annotations

import streamlit as st

# Streamlit writes white on the primary colour. In the dark theme that colour is light, because it is also the colour
# of links and of what is chosen, and white on it cannot be read.
_STYLE = """<style>
[data-testid="stBaseButton-primary"], [data-testid="stMultiSelect"] [data-tag] * {
  color: light-dark(#ffffff, #11161d);
}
/* Streamlit names the first page after its file. */
[data-testid="stSidebarNavItems"] li:first-child a p { font-size: 0; }
[data-testid="stSidebarNavItems"] li:first-child a p::after { content: "Home"; font-size: 0.875rem; }
/* Experiments, the eighth, come right after Home. */
[data-testid="stSidebarNavItems"] { display: flex; flex-direction: column; }
[data-testid="stSidebarNavItems"] li:first-child { order: -2; }
[data-testid="stSidebarNavItems"] li:nth-child(8) { order: -1; }
/* Where the keyboard is must be seen on every control; Streamlit marks some of them by a shade only. */
[data-testid="stApp"] :is(a, button, summary, [role="button"], [role="tab"], [role="radio"], [role="checkbox"],
  [role="switch"], [tabindex="0"]):focus-visible {
  outline: 3px solid light-dark(#0067a3, #56b4e9); outline-offset: 2px; border-radius: 4px;
}
[data-testid="stApp"] label:has(input:is([type=checkbox], [type=radio]):focus-visible) {
  outline: 3px solid light-dark(#0067a3, #56b4e9); outline-offset: 2px; border-radius: 4px;
}
/* A word stays whole where a line can be broken between words; a long id may still be cut. */
[data-testid="stMain"] :is(p, label, button, td, th, h1, h2, h3, h4) {
  overflow-wrap: break-word; word-break: normal; hyphens: none;
}
/* A table with many columns is set smaller; one that is too wide all the same scrolls, not the page around it. */
[data-testid="stMain"] [data-testid="stMarkdownContainer"]:has(> table) { overflow-x: auto; }
[data-testid="stMain"] [data-testid="stMarkdownContainer"] > table:has(th:nth-child(10)) { font-size: 0.8rem; }
[data-testid="stMain"] [data-testid="stMarkdownContainer"] > table:has(th:nth-child(10)) :is(th, td) {
  padding: 0.3rem 0.4rem;
}
/* A name that is a link is read whole. */
[data-testid="stBaseButton-tertiary"] p { white-space: normal; text-align: left !important; }
[data-testid="stMain"] [data-testid="stPageLink-NavLink"] { height: auto; }
[data-testid="stMain"] [data-testid="stPageLink-NavLink"] :is(span, p) { white-space: normal; overflow: visible; }
/* Small margins: what belongs together is then seen at once on a projector. */
[data-testid="stMainBlockContainer"] { padding: 4rem 2.5rem 1rem; }
[data-testid="stMainBlockContainer"] h1 { font-size: 2.25rem; padding-bottom: 0.6rem; }
[data-testid="stMainBlockContainer"] h2 { font-size: 1.9rem; }
[data-testid="stMainBlockContainer"] > [data-testid="stVerticalBlock"] { gap: 0.6rem; }
/* On a small screen, words before margins: half the width is otherwise empty, and columns break inside words. Below
   this range Streamlit itself hides the sidebar and stacks columns. */
@media (min-width: 769px) and (max-width: 1000px) {
  [data-testid="stSidebar"][data-collapsed="false"] { width: 13rem !important; min-width: 13rem !important; }
  [data-testid="stMainBlockContainer"] { padding-left: 1.5rem; padding-right: 1.5rem; }
  [data-testid="stMainBlockContainer"] h1 { font-size: 1.6rem !important; }
  .st-key-ways button p { font-size: 0.95rem !important; }
  [data-testid="stMetricValue"] { font-size: 1.5rem; }
}
</style>"""


def show_look() -> None:
    """Words that can be read in the dark theme and on a small screen; call it once on each page."""
    st.html(_STYLE)
