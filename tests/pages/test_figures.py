"""Figures on a page: the page's colours, words outside the drawing, files to take along; and presenter mode."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from recon_core.analysis.counts import SortedSsim
from recon_core.plots.style import BLACK, BLUE, GREY, figure
from ui.shared.figures import TEXT_SIZE, figure_texts, on_page, table_csv

SHOWING = """
import plotly.graph_objects as go
import pandas as pd
from recon_core.plots.style import figure
from ui.shared.figures import show_figure

drawn = figure("5 < 6 of **7**", "SSIM (Wang), B = 1.1", "x", "y")
drawn.add_scatter(x=[1, 2], y=[3, 4])
show_figure(drawn, name="curve", key="c", table=pd.DataFrame({"x": [1, 2]}), caption="a line below")
"""
PRESENTING = """
import pandas as pd
import streamlit as st
from recon_core.errors import InputError
from recon_core.plots.style import figure
from ui.shared.presenter import Slide, SlideTable, is_presenting, offer_presenting, present

def broken():
    raise InputError("the second cannot be drawn; wait")

if is_presenting():
    present([
        Slide("first", lambda: figure("One", "about one", "x", "y")),
        Slide("second", broken),
        Slide("third", lambda: SlideTable("Three", "about three", pd.DataFrame({"a": ["**b**"]}))),
    ])
else:
    offer_presenting("go", "third")
"""


@pytest.fixture
def drawn() -> go.Figure:
    made = figure("Title &lt;b&gt;", "caption", "x", "y")
    made.add_scatter(
        x=[1, 2], y=[3, 4], mode="markers+lines", marker={"color": BLUE.lower(), "size": 10}, line={"width": 2}
    )
    made.add_hline(y=3, line={"color": BLACK})
    return made


def test_words_leave_the_drawing(drawn: go.Figure) -> None:
    assert figure_texts(drawn) == ("Title <b>", "caption")
    shown = on_page(drawn)
    assert shown.layout.title.text is None
    assert shown.layout.width is None
    assert figure_texts(drawn)[0], "the figure itself must stay as it was, for files"


def test_colours_are_left_to_the_theme(drawn: go.Figure) -> None:
    said = json.dumps(on_page(drawn).to_plotly_json(), default=str).upper()
    for colour in (BLUE, BLACK, GREY):
        assert colour.upper() not in said
    assert on_page(drawn).data[0].marker.color == "#000001"
    assert on_page(drawn).layout.shapes[0].line.color == "#000007"
    assert BLUE in json.dumps(drawn.to_plotly_json(), default=str).upper()


def test_large_type_enlarges_marks_too(drawn: go.Figure) -> None:
    normal, large = on_page(drawn), on_page(drawn, text_size=2 * TEXT_SIZE, fixed_height=False)
    assert (normal.data[0].marker.size, large.data[0].marker.size) == (10, 20)
    assert (normal.data[0].line.width, large.data[0].line.width) == (2, 4)
    assert large.layout.xaxis.tickfont.size > 1.9 * normal.layout.xaxis.tickfont.size
    assert normal.layout.height == 500
    assert large.layout.height is None
    assert on_page(drawn, height=300).layout.height == 300


def test_tables_are_csv() -> None:
    assert table_csv(pd.DataFrame({"a": [1], "b": ["x,y"]})) == b'a,b\n1,"x,y"\n'
    ranked = SortedSsim(pd.Series([0.5]).to_numpy(), pd.Series([3]).to_numpy())
    assert table_csv(ranked) == b"rank,sample,ssim\n1,3,0.5\n"


def app_of(script: str, **query: str) -> AppTest:
    app = AppTest.from_string(script, default_timeout=240)
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def test_a_figure_comes_with_its_words_and_files(tmp_path: Path) -> None:
    app = app_of(SHOWING)
    assert app.markdown[0].value == r"**5 \< 6 of \*\*7\*\***"
    assert [caption.value.replace("\\", "") for caption in app.caption] == ["SSIM (Wang), B = 1.1", "a line below"]
    labels = [button.label for button in app.download_button]
    assert labels[0] == "Figure as a web page"
    assert labels[-1] == "Numbers as CSV"


class TestPresenting:
    def test_begins_where_asked(self) -> None:
        app = app_of(PRESENTING)
        app.button(key="go").click().run()
        assert app.query_params == {"present": "1", "slide": "third"}
        assert [header.value for header in app.header] == ["Three"]
        assert app.table[0].value.iloc[0, 0] == r"\*\*b\*\*"
        assert app.button(key="presenter-Right").disabled

    def test_moves_and_leaves(self) -> None:
        app = app_of(PRESENTING, present="1")
        assert [header.value for header in app.header] == ["One"]
        assert app.button(key="presenter-Left").disabled
        app.button(key="presenter-Right").click().run()
        assert app.query_params["slide"] == "second"
        assert [error.value.replace("\\", "") for error in app.error] == ["The second cannot be drawn; wait."]
        app.button(key="presenter-Right").click().run()
        assert [header.value for header in app.header] == ["Three"]
        app.button(key="presenter-leave").click().run()
        assert app.query_params == {}
        assert [button.label for button in app.button] == ["Present"]

    @pytest.mark.parametrize("slide", ["", "fourth", "-1", "<b>", "9" * 500])
    def test_a_slide_that_is_not_there_is_the_first(self, slide: str) -> None:
        app = app_of(PRESENTING, present="1", slide=slide)
        assert [header.value for header in app.header] == ["One"]
        assert any(element.value == "1 of 3" for element in app.markdown)
