"""What tests of pages read off them."""

from __future__ import annotations

import time

from streamlit.testing.v1 import AppTest

OPEN_SECONDS = 120  # tells never from late


def raw_texts(app: AppTest) -> str:
    """Paragraphs and captions, in markdown."""
    return "\n".join(element.value for element in [*app.markdown, *app.caption])


def texts(app: AppTest) -> str:
    """The same as a viewer reads them, without the backslashes that keep markup from working."""
    return raw_texts(app).replace("\\", "")


def settled(app: AppTest) -> AppTest:
    """The page once its pool of candidates, opened beside it, is there."""
    deadline = time.monotonic() + OPEN_SECONDS
    app.run()
    while any(info.value.startswith("Opening") for info in app.info):
        assert time.monotonic() < deadline, f"the pool was not open within {OPEN_SECONDS} s"
        app.run()
    assert not app.exception
    return app
