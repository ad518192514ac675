"""The page that explains the idea: its numbers are those of the recording, and its figures follow their sliders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from recon_core.views.circle_frames import RADII, load_shipped
from recon_core.views.explanation import approach, explained, found_by, margin_course, multipliers
from tests.pages.page_texts import texts
from ui.shared.pages import HOW_IT_WORKS

PROJECT = Path(__file__).resolve().parents[2]


def visit() -> AppTest:
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=240)
    app.switch_page(HOW_IT_WORKS.file).run()
    assert not app.exception
    return app


def test_margins_of_the_recording_grow_until_all_points_are_right() -> None:
    circle = load_shipped()
    course = margin_course(circle)
    assert course.margins.shape == (len(circle.fields.steps), 20)
    assert (course.margins[-1] > 0).all()
    assert course.margins[-1].min() > course.margins[len(course.steps) // 2].min()
    assert abs(course.margins[0]).max() < 0.1  # a small start says next to nothing


def test_what_the_attack_finds_is_what_the_recording_counts() -> None:
    circle = load_shipped()
    course = approach(circle)
    assert course.found(RADII[0])[-1] == 20 == found_by(circle)["the attack"]
    assert course.found(RADII[0])[0] < 20
    left = multipliers(circle)
    strong = left.values >= circle.threshold
    assert np.array_equal(strong, circle.cleaned.filtered)
    assert (left.distances <= RADII[0]).sum() == circle.settled


def test_decay_makes_the_samples_explain_the_weights_and_a_large_start_does_not() -> None:
    large, small, decayed = explained(1.0, 0.0), explained(0.1, 0.0), explained(1.0, 0.01)
    assert decayed.residuals[-1] < 0.01
    assert decayed.residuals[-1] < small.residuals[-1] < large.residuals[-1]
    assert all(found.margins[-1] > 0 for found in (large, small, decayed))
    assert large.residuals[0] == pytest.approx(decayed.residuals[0])  # the same start


def test_the_page_tells_all_of_it_and_its_figures_follow(own_store: Path) -> None:
    app = visit()
    for word in ("margin", "KKT conditions", "multiplier", "weight decay", "chance level"):
        assert word in texts(app).lower().replace("kkt", "KKT"), word
    assert len(app.get("latex")) == 2
    assert "20 of 20 right" in texts(app)
    app.select_slider(key="how_step").set_value(0).run()
    assert "At step 0" in texts(app)
    app.slider(key="how_lam").set_value(0.0).run()
    assert "100 candidates are kept, 62 of them" in texts(app)
    before = texts(app)
    app.select_slider(key="how_decay").set_value(0.01).run()
    app.select_slider(key="how_start").set_value(1.0).run()
    assert texts(app) != before
    assert "In the end 0% is unexplained" in texts(app)
    assert not own_store.exists()
