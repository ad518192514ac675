"""The scripts of components, called as Streamlit calls them on a machine that is slow to draw.

Streamlit draws a component anew without waiting for the last drawing. Where a newer one overtakes it, the older one's
clean-up is called, although the component stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from recon_core.views.circle_frames import FieldFrames, TrainingPoints
from tests.browser.pages import PATIENCE
from ui.circle.player import Mode, Scene, described

UI = Path(__file__).resolve().parents[2] / "ui"
BEGIN = """async ([html, script]) => {
  window.place = document.createElement('div');
  place.innerHTML = html;
  document.body.append(place);
  const address = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
  window.draw = (await import(address)).default;
}"""
OVERTAKE = """data => {
  const [older, newer] = [draw({ data, parentElement: place }), draw({ data, parentElement: place })];
  older();
  window.leave = newer;
}"""


@pytest.fixture
def blank(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


def test_a_key_presses_its_button_once_however_drawings_overlap(blank: Page) -> None:
    html = """<dialog class="keys"><dl></dl></dialog>
      <div class="st-key-on"><button onclick="this.textContent += '+'">on</button></div>"""
    blank.evaluate(BEGIN, [html, (UI / "shared/keys/keys.js").read_text(encoding="utf-8")])
    data = {"keys": [["n", "on"]], "presses": {"n": "on"}}
    for _ in range(2):
        blank.evaluate(OVERTAKE, data)
    button = blank.locator("button")
    blank.keyboard.press("n")
    expect(button).to_have_text("on+")

    # Gone from the page it hears nothing more, even where the button is still there.
    blank.evaluate("() => { document.body.append(place.querySelector('.st-key-on')); place.remove(); leave(); }")
    blank.keyboard.press("n")
    expect(button).to_have_text("on+")


def test_a_circle_that_is_paused_stays_so_however_drawings_overlap(blank: Page) -> None:
    html, script = ((UI / f"circle/player/player.{kind}").read_text(encoding="utf-8") for kind in ("html", "js"))
    blank.evaluate(BEGIN, [html, script])
    truth = TrainingPoints(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1]))

    def frame(step: int) -> dict[str, object]:
        fields = FieldFrames(np.array([step]), np.full((1, 8, 8), 128 + step, dtype=np.uint8), 1.0, 1.6)
        return described(Scene("run", "0", Mode.LIVE, "a run at work", truth, fields))

    player = blank.locator(".player")
    blank.evaluate(OVERTAKE, frame(0))
    expect(player).to_have_attribute("data-step", "0")
    blank.locator(".play").click()
    expect(player).to_have_attribute("data-playing", "false")
    blank.evaluate(OVERTAKE, frame(1))
    blank.evaluate(OVERTAKE, frame(2))
    expect(player).to_have_attribute("data-received", "2")
    expect(player).to_have_attribute("data-playing", "false")
    expect(player).to_have_attribute("data-step", "0")
    for step in ("1", "2"):
        blank.locator(".next").click()
        expect(player).to_have_attribute("data-step", step)
