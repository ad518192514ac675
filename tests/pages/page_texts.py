"""What tests of pages read off them."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import parse_qs

from streamlit.testing.v1 import AppTest

OPEN_SECONDS = 120  # tells never from late


def raw_texts(app: AppTest) -> str:
    """Paragraphs and captions, in markdown."""
    return "\n".join(element.value for element in [*app.markdown, *app.caption])


def texts(app: AppTest) -> str:
    """The same as a viewer reads them, without the backslashes that keep markup from working."""
    return raw_texts(app).replace("\\", "")


def mosaics(app: AppTest) -> list[dict[str, Any]]:
    """What each grid of pictures was sent, in the order of the page."""
    found = [element.proto for element in app.get("bidi_component")]
    return [json.loads(proto.json) for proto in found if proto.component_name == "afterimage_mosaic"]


def run_links(app: AppTest) -> dict[str, str]:
    """Names on the page that lead to a run, by its id."""
    found = [(element.proto.label, parse_qs(element.proto.query_string)) for element in app.main.get("page_link")]
    return {
        query["run"][0]: label.removeprefix(":primary[").removesuffix("]") for label, query in found if "run" in query
    }


def settled(app: AppTest) -> AppTest:
    """The page once its pool of candidates, opened beside it, is there."""
    deadline = time.monotonic() + OPEN_SECONDS
    app.run()
    while any(info.value.startswith("Opening") for info in app.info):
        assert time.monotonic() < deadline, f"the pool was not open within {OPEN_SECONDS} s"
        app.run()
    assert not app.exception
    return app
