"""Using a Streamlit page as a patient person does: looking until it shows something, touching it once it stands still.

No wait here has a length of its own: each has a condition, and a limit that only tells never from late.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from playwright.sync_api import Locator, Page, WebSocket, expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

PATIENCE = 90_000  # milliseconds
READABLE = 4.5  # WCAG AA for normal text

# Whether nothing is being drawn. The timer is set anew by every change of the page, so it ends after any timer that
# the page had set before the change, such as those of widgets that send their value a moment later.
_STANDS_STILL = """() => {
  if (!window.stillness) {
    window.stillness = {reached: false};
    const wait = () => {
      window.stillness.reached = false;
      clearTimeout(window.stillness.timer);
      window.stillness.timer = setTimeout(() => { window.stillness.reached = true; }, 250);
    };
    new MutationObserver(wait).observe(document, {subtree: true, childList: true, attributes: true});
    wait();
  }
  const endless = animation => animation.effect?.getComputedTiming().endTime === Infinity;
  return window.stillness.reached
    && document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
    && !document.querySelector('[data-stale=true], [data-testid=stSkeleton], [data-testid=stAppSkeleton]')
    && document.getAnimations().every(animation => animation.playState !== 'running' || endless(animation));
}"""

# WCAG contrast of every visible piece of text in the page against what is really behind it.
_CONTRASTS = """app => {
  const parse = css => {
    const part = css.match(/[\\d.]+/g).map(Number);
    const scale = css.startsWith('color(') ? 255 : 1;
    return [part[0] * scale, part[1] * scale, part[2] * scale, part.length > 3 ? part[3] : 1];
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const backdrop = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      layers.push(parse(getComputedStyle(e).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reduceRight((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const luminance = colour => {
    const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = colour.slice(0, 3).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const texts = [];
  const walker = document.createTreeWalker(app, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (element.closest('[data-testid=stIconMaterial]')) continue;  // the name of an icon, drawn as a picture
    if (!text || !element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const behind = backdrop(element);
    const [a, b] = [luminance(behind), luminance(over(parse(getComputedStyle(element).color), behind))];
    texts.push({text: text.slice(0, 60), contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)});
  }
  return texts;
}"""

# Words of headings, buttons and labels that stand on more than one line.
_BROKEN_WORDS = """app => {
  const broken = [];
  for (const element of app.querySelectorAll('h1, h2, h3, button p, label p')) {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      for (const { index, 0: word } of walker.currentNode.data.matchAll(/[\\p{L}\\d]+/gu)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, index);
        range.setEnd(walker.currentNode, index + word.length);
        if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) broken.push(word);
      }
    }
  }
  return broken;
}"""

# Links, buttons and labels of the page whose text ends where the box around it does, not where the text does.
_CUT_OFF = """app => {
  const cut = [];
  for (const element of app.querySelectorAll('[data-testid=stMain] :is(a p, button p, label p)')) {
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const range = document.createRange();
    range.selectNodeContents(element);
    const text = range.getBoundingClientRect();
    for (let e = element; e !== app; e = e.parentElement) {
      if (getComputedStyle(e).overflowX !== 'visible' && text.right > e.getBoundingClientRect().right + 1) {
        cut.push(element.innerText);
        break;
      }
    }
  }
  return cut;
}"""

# Where on the screen each marker of a chart is, by the first entry of its customdata; null while it is being drawn.
_MARKERS = """chart => {
  if (!chart._fullLayout?.xaxis || !chart.calcdata?.length) return null;
  const { xaxis, yaxis } = chart._fullLayout, box = chart.getBoundingClientRect(), places = {};
  for (const points of chart.calcdata) for (const point of points) {
    const { trace } = points[0];
    if (trace.mode !== 'markers' || !trace.customdata) continue;
    places[trace.customdata[point.i][0]] =
      [box.left + xaxis._offset + xaxis.c2p(point.x), box.top + yaxis._offset + yaxis.c2p(point.y)];
  }
  return Object.keys(places).length ? places : null;
}"""


class TextContrast(NamedTuple):
    text: str
    contrast: float  # WCAG: 1 (invisible) to 21; 4.5 is readable


class _Talk:
    """What a page and its server say to each other.

    The page alone does not tell: it looks finished from the moment it has sent a value until the server takes it up.
    """

    def __init__(self) -> None:
        self._waits_for_start = self._waits_for_end = False

    def follow(self, socket: WebSocket) -> None:
        socket.on("framesent", self._sent)
        socket.on("framereceived", self._received)

    @property
    def is_over(self) -> bool:
        return not (self._waits_for_start or self._waits_for_end)

    def _sent(self, data: str | bytes) -> None:
        if isinstance(data, bytes) and BackMsg.FromString(data).WhichOneof("type") == "rerun_script":
            self._waits_for_start = True

    def _received(self, data: str | bytes) -> None:
        kind = ForwardMsg.FromString(data).WhichOneof("type") if isinstance(data, bytes) else None
        if kind == "new_session":
            self._waits_for_start, self._waits_for_end = False, True
        elif kind == "script_finished":
            self._waits_for_end = False


_TALKS: WeakKeyDictionary[Page, _Talk] = WeakKeyDictionary()


def follow(page: Page) -> None:
    """Before the page opens anything, so that `settle` knows what it is waiting for."""
    _TALKS[page] = _Talk()
    page.on("websocket", _TALKS[page].follow)


def settle(page: Page) -> None:
    """Until all that was asked of the server is answered and drawn, and nothing moves any more."""
    deadline = time.monotonic() + PATIENCE / 1000
    while True:
        page.wait_for_function(_STANDS_STILL, timeout=max(1.0, 1000 * (deadline - time.monotonic())))
        if _TALKS[page].is_over:
            return
        assert time.monotonic() < deadline, f"the server did not answer within {PATIENCE / 1000:g} s"
        page.wait_for_timeout(20)  # the next look


def evaluate(page: Page, selector: str, script: str, limit: float = PATIENCE) -> Any:
    """What `script` makes of the element, as soon as that is something.

    The element is looked up at every attempt, because Streamlit may replace it at any time, and in components too.
    """
    look = f"""selector => {{
      const find = root => root.querySelector(selector)
        ?? [...root.querySelectorAll('*')].reduce((found, e) => found ?? (e.shadowRoot && find(e.shadowRoot)), null);
      const found = find(document);
      const value = found && ({script})(found);
      return (value ?? null) === null ? null : {{value}};
    }}"""
    return page.wait_for_function(look, arg=selector, timeout=limit).json_value()["value"]


def press(page: Page, element: Locator, key: str) -> None:
    """A key for one element of a page that stands still; what comes of it is for the caller to wait for."""
    settle(page)
    element.press(key)


def type_key(page: Page, key: str) -> None:
    """A key for whichever element has the focus, or for the page as a whole."""
    settle(page)
    page.keyboard.press(key)


def slide(page: Page, label: str, key: str, times: int = 1) -> None:
    """Keys for a slider, each after the one before has moved it and the page has followed."""
    handle = page.get_by_role("slider", name=label)
    for _ in range(times):
        settle(page)
        value = handle.input_value()
        handle.press(key)
        expect(handle).not_to_have_value(value)
    settle(page)


def drag(page: Page, label: str, share: float) -> None:
    """The handle of a slider to a share of its track."""
    settle(page)
    handle = page.get_by_role("slider", name=label)
    track = page.get_by_role("group", name=label).bounding_box()
    knob = handle.locator("xpath=../..").bounding_box()
    assert track
    assert knob
    value = handle.input_value()
    page.mouse.move(knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + share * track["width"], knob["y"] + knob["height"] / 2, steps=8)
    page.mouse.up()
    expect(handle).not_to_have_value(value)
    settle(page)


def type_into(page: Page, label: str, text: str, leave: str = "Enter") -> None:
    """A text field, left with Enter or Tab as a person leaves it."""
    settle(page)
    field = page.get_by_role("textbox", name=label, exact=True)
    field.fill(text)
    field.press(leave)
    settle(page)


def click(page: Page, element: Locator) -> None:
    """An element of a page that stands still; what comes of it is for the caller to wait for.

    Not for pages that never stand still because a run is at work in them: there, click the element itself.
    """
    settle(page)
    element.click(timeout=PATIENCE)


def markers(page: Page, chart: str) -> dict[str, tuple[float, float]]:
    """Where each marker of a chart is, by its id. `chart` is the selector of the block with the chart in it."""
    settle(page)
    found: dict[str, tuple[float, float]] = evaluate(page, f"{chart} .js-plotly-plot", _MARKERS)
    return found


def click_marker(page: Page, chart: str, marker: str) -> None:
    """Coming from elsewhere: a pointer that does not move says nothing to the chart below it."""
    x, y = markers(page, chart)[marker]
    page.mouse.move(1, 1)
    page.mouse.move(x, y)
    page.mouse.click(x, y)


def contrasts(page: Page) -> list[TextContrast]:
    """How well each visible piece of text stands out: measured at rest, for text fades while it is drawn anew."""
    settle(page)
    return [TextContrast(**found) for found in evaluate(page, "[data-testid=stApp]", _CONTRASTS)]


def broken_words(page: Page) -> list[str]:
    """Words of headings, buttons and labels that are broken in their middle."""
    settle(page)
    found: list[str] = evaluate(page, "[data-testid=stApp]", _BROKEN_WORDS)
    return found


def cut_off(page: Page) -> list[str]:
    """Texts of links, buttons and labels that are cut off at their right end."""
    settle(page)
    found: list[str] = evaluate(page, "[data-testid=stApp]", _CUT_OFF)
    return found


def assert_readable(page: Page, at_least: int, pale: Callable[[TextContrast], bool] = lambda text: False) -> None:
    """Every text stands out, but those that may be `pale`, and nothing sticks out to the right."""
    found = contrasts(page)
    assert len(found) >= at_least, page.url
    assert [text for text in found if text.contrast < READABLE and not pale(text)] == [], page.url
    width, room = evaluate(page, "html", "root => [root.scrollWidth, root.clientWidth]")
    assert width <= room, page.url
