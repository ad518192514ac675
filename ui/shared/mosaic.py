"""Many pictures as one: a grid of tiles cut out of a single PNG, to look at and to click; and a wipe between two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

import streamlit as st

from recon_core.plots.sheet import Sheet
from ui.shared.pair_view import PairSet, described_pairs, described_sheet, draw_pair_component, pair_component

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

TILE_PIXELS = 84
"""About how wide a tile is on the screen; images are enlarged by whole factors only."""

MOSAIC_CSS = """
.mosaic { display: grid; gap: 4px; justify-content: start; padding: 2px;
  grid-template-columns: repeat(auto-fill, calc(var(--width) + 12px)); }
.tile { all: unset; box-sizing: border-box; display: flex; flex-direction: column; align-items: center;
  padding: 6px 2px 2px; border-radius: var(--st-base-radius, 0.5rem); color: var(--st-text-color);
  font: 0.8rem/1.3 var(--st-font, sans-serif); text-align: center; }
button.tile { cursor: pointer; }
button.tile:hover { background: var(--st-secondary-background-color); }
button.tile:focus-visible { outline: 3px solid var(--st-primary-color); outline-offset: -1px; }
.picture { width: var(--width); height: var(--height); background-image: var(--sheet);
  background-repeat: no-repeat; background-size: var(--sheet-width) var(--sheet-height);
  image-rendering: pixelated; outline: 1px solid var(--st-border-color); }
.judged .picture { outline: 2px dashed var(--st-border-color); }
.good .picture { outline: 4px solid var(--st-primary-color); }
.chosen { background: var(--st-secondary-background-color); box-shadow: inset 0 0 0 2px var(--st-text-color); }
.label { margin-top: 5px; max-width: calc(var(--width) + 12px); overflow-wrap: anywhere; }
.label:empty { display: none; }
.fills { gap: 2px; grid-template-columns: repeat(var(--across), minmax(0, 1fr)); }
.fills .tile { padding: 2px; }
.fills .picture { width: 100%; height: auto; aspect-ratio: var(--shape); background-size: var(--spread); }
.fills .label { max-width: 100%; }
.fills .good .picture { outline-width: 2px; }
.opener { all: unset; cursor: pointer; padding: 0.2rem 0.7rem; margin-bottom: 0.3rem; border-radius: 0.5rem;
  border: 1px solid var(--st-border-color); color: var(--st-text-color); font: 0.9rem var(--st-font, sans-serif); }
.opener:hover { background: var(--st-secondary-background-color); }
.opener:focus-visible { outline: 3px solid var(--st-primary-color); }
.opener[hidden] { display: none; }
.good .label, .chosen .label { font-weight: 600; }
"""

# The style of every tile names the picture and is read again whenever the tile changes: a picture of 300 KB in its own
# address took the browser a quarter of a second for 60 tiles, so it gets a short one.
_ADDRESS_JS = """
const pictures = new Map(); // what was sent, and the address it is kept under while somebody shows it

function takePicture(png) {
  let kept = pictures.get(png);
  if (!kept) {
    const letters = atob(png), bytes = new Uint8Array(letters.length);
    for (let place = 0; place < letters.length; place++) bytes[place] = letters.charCodeAt(place);
    kept = { address: URL.createObjectURL(new Blob([bytes], { type: 'image/png' })), users: 0 };
    pictures.set(png, kept);
  }
  kept.users += 1;
  return kept.address;
}

// Later, because whoever is drawn anew leaves its picture first and takes it again.
function leavePicture(png) {
  const kept = pictures.get(png);
  if (!kept) return;
  kept.users -= 1;
  setTimeout(() => {
    if (kept.users || pictures.get(png) !== kept) return;
    URL.revokeObjectURL(kept.address);
    pictures.delete(png);
  }, 2000);
}

// The picture of `element` as its custom property `name`, at once where there was none, else when it is decoded.
function setPicture(element, name, png) {
  const held = element.pictures ??= {}, before = held[name];
  if (before === png) return;
  held[name] = png;
  const address = takePicture(png), picture = new Image();
  const show = () => { if (held[name] === png) element.style.setProperty(name, `url("${address}")`); };
  if (before === undefined) show();
  picture.src = address;
  picture.decode().then(show, show);
  if (before !== undefined) leavePicture(before);
}

function leavePictures(element) {
  for (const png of Object.values(element.pictures ?? {})) leavePicture(png);
  element.pictures = {};
}
"""

# Tiles are changed in place, so that a click or a key leaves the focus where it is while the page draws anew.
MOSAIC_JS = (
    _ADDRESS_JS
    + """
function drawMosaic(grid, data, pick) {
  const { sheet, tiles, scale, clickable } = data;
  const width = sheet.tile_width * scale, height = sheet.tile_height * scale;
  const set = (name, value) => {
    if (grid.style.getPropertyValue(name) !== value) grid.style.setProperty(name, value);
  };
  set('--width', `${width}px`);
  set('--height', `${height}px`);
  set('--sheet-width', `${width * sheet.columns}px`);
  set('--sheet-height', `${height * sheet.rows}px`);
  setPicture(grid, '--sheet', sheet.png);
  // As many in a row as are asked for, as wide as there is room for.
  grid.classList.toggle('fills', Boolean(data.across));
  if (data.across) {
    set('--across', data.across);
    set('--shape', `${sheet.tile_width} / ${sheet.tile_height}`);
    set('--spread', `${100 * sheet.columns}% ${100 * sheet.rows}%`);
  }
  const share = (at, count) => count > 1 ? `${100 * at / (count - 1)}%` : '0%';
  grid.setAttribute('aria-label', data.name);

  const kind = clickable ? 'BUTTON' : 'DIV';
  while (grid.children.length > tiles.length) grid.lastElementChild.remove();
  tiles.forEach((tile, place) => {
    let element = grid.children[place];
    if (!element || element.tagName !== kind) {
      const made = document.createElement(kind);
      made.append(document.createElement('div'), document.createElement('div'));
      made.children[0].className = 'picture';
      made.children[1].className = 'label';
      if (clickable) made.type = 'button'; else made.setAttribute('role', 'img');
      element ? element.replaceWith(made) : grid.append(made);
      element = made;
    }
    const chosen = tile.id === data.chosen;
    element.className = ['tile', tile.good === null ? '' : 'judged', tile.good ? 'good' : '', chosen ? 'chosen' : '']
      .join(' ');
    element.title = tile.title;
    element.setAttribute('aria-label', tile.title);
    element.dataset.id = tile.id;
    const [picture, label] = element.children;
    const column = place % sheet.columns, row = Math.floor(place / sheet.columns);
    picture.style.backgroundPosition = data.across
      ? `${share(column, sheet.columns)} ${share(row, sheet.rows)}` : `${-column * width}px ${-row * height}px`;
    label.textContent = (tile.good && tile.label ? '✓ ' : '') + tile.label;
    if (clickable) {
      element.setAttribute('aria-pressed', chosen);
      element.onclick = event => { if (event.detail < 2) pick(tile.id); }; // the second one of two is another gesture
    }
  });
  if (!clickable) return;

  // One stop for the tab key; arrows go from tile to tile.
  const all = [...grid.children];
  const stop = all.find(tile => tile.matches(':focus')) ?? all.find(tile => tile.matches('.chosen')) ?? all[0];
  all.forEach(tile => { tile.tabIndex = tile === stop ? 0 : -1; });
  grid.onkeydown = event => {
    const place = all.indexOf(event.target);
    if (place < 0) return;
    const across = all.filter(tile => tile.offsetTop === all[0].offsetTop).length;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
    const places = { Home: 0, End: all.length - 1 };
    const next = event.key in steps ? place + steps[event.key] : places[event.key];
    if (next === undefined) return;
    event.preventDefault();
    if (!all[next]) return;
    all[place].tabIndex = -1;
    all[next].tabIndex = 0;
    all[next].focus();
  };
}
"""
)
"""Script and style of a grid, for components that hold one: `drawMosaic(grid, data, pick)`; `leavePictures(grid)`."""
# Where a click chooses a tile, a second one, the key o or the button opens its pair; elsewhere a click does.
_MOSAIC_COMPONENT = (
    MOSAIC_JS
    + """
const viewers = new Map();
export default function ({ data, parentElement, setTriggerValue }) {
  const grid = parentElement.querySelector('.mosaic'), opener = parentElement.querySelector('.opener');
  let viewer = viewers.get(parentElement);
  if (!viewer) {
    viewer = new PairViewer(parentElement.querySelector('.pair-view'));
    viewers.set(parentElement, viewer);
  }
  viewer.tell = query => setTriggerValue('match', query);
  viewer.show(data.pairs, data.sheet);
  const open = id => { if (viewer.has(id)) viewer.open(id); };
  drawMosaic(grid, { ...data, clickable: data.picks || Boolean(data.pairs) },
    id => data.picks ? setTriggerValue('picked', id) : open(id));
  const tile = event => Number(event.target.closest('.tile')?.dataset.id ?? NaN);
  grid.ondblclick = event => { if (data.picks) open(tile(event)); };
  grid.onkeyup = event => { if (event.key === 'o' && data.picks) open(tile(event)); };
  opener.hidden = !(data.picks && data.pairs && viewer.has(data.chosen));
  opener.onclick = () => open(data.chosen);
  if (data.chart) followChart(viewer, data.chart);
  // Streamlit also calls this for a drawing that a newer one has overtaken, while the component stays.
  return () => {
    if (parentElement.isConnected) return;
    viewer.listening?.abort();
    viewers.delete(parentElement);
    leavePictures(grid);
  };
}

// Charts are drawn anew at every change: whichever stands there when the pointer comes is listened to.
function followChart(viewer, key) {
  viewer.listening?.abort();
  viewer.listening = new AbortController();
  const { signal } = viewer.listening;
  const attach = () => {
    const chart = document.querySelector(`.st-key-${key} .js-plotly-plot`);
    if (!chart?.on || chart === viewer.chart) return;
    viewer.chart = chart;
    chart.on('plotly_click', ({ points }) => {
      const point = points.find(found => Number.isInteger(found.customdata?.[0]));
      if (point) viewer.open(point.customdata[0]);
    });
  };
  document.addEventListener('pointermove', attach, { signal, capture: true });
}
"""
)

_WIPE_CSS = """
.wipe { position: relative; width: var(--width); height: var(--height); border-radius: 2px;
  scroll-margin: 9rem 0 2rem; outline: 1px solid var(--st-border-color); }
.wipe:focus-within { outline: 3px solid var(--st-primary-color); }
.half { position: absolute; inset: 0; background-image: var(--sheet); background-repeat: no-repeat;
  background-size: var(--sheet-width) var(--sheet-height); image-rendering: pixelated; }
.bar { position: absolute; top: 0; bottom: 0; width: 3px; margin-left: -1.5px; pointer-events: none;
  background: #fff; box-shadow: 0 0 0 1px #000; }
.bar::after { content: '◂ ▸'; position: absolute; top: 50%; left: 50%; transform: translate(-50%, -50%);
  padding: 1px 6px; border-radius: 1rem; background: #fff; color: #000; font: 0.9rem sans-serif; white-space: nowrap;
  box-shadow: 0 0 0 1px #000; }
input { position: absolute; inset: 0; width: 100%; height: 100%; margin: 0; opacity: 0; cursor: ew-resize; }
.names { display: flex; justify-content: space-between; gap: 1rem; width: var(--width); margin-top: 5px;
  color: var(--st-text-color); font: 0.8rem/1.3 var(--st-font, sans-serif); }
"""

_WIPE_HTML = """
<div class="wipe"><div class="half left"></div><div class="half right"></div><div class="bar"></div>
<input type="range" min="0" max="100" value="50"></div><div class="names"><span></span><span></span></div>
"""

_WIPE_JS = """
export default function ({ data, parentElement }) {
  const { sheet, scale, names } = data;
  const find = selector => parentElement.querySelector(selector);
  const width = sheet.tile_width * scale, height = sheet.tile_height * scale;
  const sizes = { '--width': width, '--height': height, '--sheet-width': width * sheet.columns,
    '--sheet-height': height * sheet.rows };
  for (const box of [find('.wipe'), find('.names')]) {
    for (const [name, size] of Object.entries(sizes)) box.style.setProperty(name, `${size}px`);
  }
  find('.wipe').style.setProperty('--sheet', `url("data:image/png;base64,${sheet.png}")`);
  ['.left', '.right'].forEach((half, place) => {
    const column = place % sheet.columns, row = Math.floor(place / sheet.columns);
    find(half).style.backgroundPosition = `${-column * width}px ${-row * height}px`;
  });
  find('.names').children[0].textContent = `◂ ${names[0]}`;
  find('.names').children[1].textContent = `${names[1]} ▸`;
  const slider = find('input');
  slider.setAttribute('aria-label', `Wipe between ${names[0]} and ${names[1]}`);
  const move = () => {
    find('.right').style.clipPath = `inset(0 0 0 ${slider.value}%)`;
    find('.bar').style.left = `${slider.value}%`;
  };
  slider.oninput = move;
  move();
  if (data.scroll) {
    requestAnimationFrame(() => find('.wipe').scrollIntoView({ block: 'nearest', behavior: 'smooth' }));
  }
}
"""


@dataclass(frozen=True)
class Tile:
    """One picture of a mosaic. `good` adds a frame and a tick where it is true, a dashed frame where it is false."""

    id: int
    """What a click reports."""
    label: str
    """Shown below the picture."""
    title: str
    """Said when one points at it, and to those who cannot see it."""
    good: bool | None = None


def show_mosaic(
    sheet: Sheet,
    tiles: Sequence[Tile],
    *,
    key: str,
    name: str,
    chosen: int | None = None,
    on_pick: Callable[[int], None] | None = None,
    tile_pixels: int = TILE_PIXELS,
    across: int | None = None,
    pairs: PairSet | None = None,
    chart: str | None = None,
) -> None:
    """A grid of `tiles`, whose pictures stand in `sheet` in the same order.

    With `on_pick` tiles can be chosen, by a click or with arrow keys and Enter; it is called with the tile's id
    before the page is drawn again. With `pairs` a tile opens the pair of its id; see `pair_view`. With `across` there
    are as many tiles in a row, as wide as the page allows. `chart` is the key of a chart whose points open pairs too:
    their customdata begins with the id.
    """

    def picked() -> None:
        place = st.session_state[key].get("picked")
        if on_pick is not None and place is not None:
            on_pick(int(place))

    draw_pair_component(
        _mosaic(),
        {
            "sheet": described_sheet(sheet),
            "tiles": [asdict(tile) for tile in tiles],
            "chosen": chosen,
            "scale": whole_scale(sheet, tile_pixels),
            "picks": on_pick is not None,
            "name": name,
            "across": across,
            "pairs": described_pairs(pairs),
            "chart": chart,
        },
        key=key,
        on_picked_change=picked,
    )


def show_wipe(sheet: Sheet, names: tuple[str, str], *, key: str, tile_pixels: int, scroll: bool = False) -> None:
    """The two pictures of `sheet` on top of each other, with a handle that uncovers the one or the other.

    With `scroll` the browser scrolls to where it can be seen.
    """
    scale = whole_scale(sheet, tile_pixels)
    _wipe()(key=key, data={"sheet": described_sheet(sheet), "scale": scale, "names": names, "scroll": scroll})


def whole_scale(sheet: Sheet, tile_pixels: int) -> int:
    """By what whole factor a tile must be enlarged to come closest to a width."""
    return max(1, round(tile_pixels / sheet.tile_width))


# Registered when first drawn, once for a process.
@cache
def _mosaic() -> ComponentRenderer:
    html = """<button type="button" class="opener" hidden>Open the pair</button>
<div class="mosaic" role="group"></div>"""
    return pair_component("afterimage_mosaic", html, MOSAIC_CSS, _MOSAIC_COMPONENT)


@cache
def _wipe() -> ComponentRenderer:
    return st.components.v2.component("afterimage_wipe", html=_WIPE_HTML, css=_WIPE_CSS, js=_WIPE_JS)
