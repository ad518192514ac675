// Counts, the histogram of SSIM and the grid of pairs, at one threshold. A threshold only compares, so all of it
// follows the slider (or the line in the histogram) while it is being dragged; the server hears of it afterwards.

const BINS = 40;
const SPACE = { left: 30, right: 8, top: 12, bottom: 32 }; // pixels around the bars
const SENDING = 150; // milliseconds between two words to the server while the line is dragged
const NARROW = 900, SMALL = 64, LARGE = 84; // pixels: a grid below the first has small pictures
const LOWEST = 340; // pixels, of a board that something large stands above
const SVG = 'http://www.w3.org/2000/svg';

const boards = new Map();

export default function ({ data, parentElement, setTriggerValue }) {
  let board = boards.get(parentElement);
  if (!board) {
    board = new Board(parentElement);
    boards.set(parentElement, board);
  }
  board.tell = setTriggerValue;
  board.show(data);
  // Streamlit also calls this for a drawing that a newer one has overtaken, while the component stays.
  return () => {
    if (parentElement.isConnected) return;
    board.leave();
    boards.delete(parentElement);
  };
}

const above = (scores, threshold) => scores.reduce((count, score) => count + (score > threshold), 0);

class Board {
  constructor(parent) {
    this.parent = parent;
    this.root = parent.querySelector('.board');
    this.svg = this.root.querySelector('svg');
    this.grid = this.root.querySelector('.mosaic');
    this.threshold = null; // what is shown
    this.sent = null; // what the server was told and has not answered yet
    this.dragging = false;
    this.listening = new AbortController();
    const { signal } = this.listening;
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(this.root);
    // What stands above may grow or shrink after this was drawn, and then the page as a whole does.
    const page = (this.parent.getRootNode().host ?? this.parent).closest('[data-testid=stMain]');
    if (page?.firstElementChild) this.resized.observe(page.firstElementChild);
    window.addEventListener('resize', () => this.resize(), { signal });
    this.live = null; // merged as the slider says that is being dragged
    this.wanted = this.asked = null; // what that slider says, and what the follower was last asked for
    window.addEventListener('afterimage-merged', event => this.merged(event.detail), { signal });
    window.addEventListener('pointerup', () => { this.held = false; }, { signal, capture: true });
    this.svg.addEventListener('pointerdown', event => this.grab(event), { signal });
    this.svg.addEventListener('pointermove', event => this.drag(event), { signal });
    for (const end of ['pointerup', 'pointercancel']) this.svg.addEventListener(end, () => this.release(), { signal });
    // Arrow keys lead into the grid from anywhere on the page where they mean nothing else.
    document.addEventListener('keydown', event => {
      if (document.activeElement !== document.body || !event.key.startsWith('Arrow') || event.defaultPrevented) return;
      const stop = this.grid.querySelector('[tabindex="0"]');
      if (!stop) return;
      event.preventDefault();
      stop.focus();
    }, { signal });
  }

  leave() {
    this.listening.abort();
    this.resized.disconnect();
    this.watcher?.disconnect();
    this.merging?.disconnect();
    leavePictures(this.grid);
  }

  show(data) {
    const answered = this.sent === null || data.threshold === this.sent;
    if (answered) this.sent = null;
    const held = this.dragging || this.sent !== null || this.sliding;
    this.data = data;
    this.root.classList.toggle('lecture', data.lecture);
    this.followSliders();
    this.asked = null;
    if (this.wanted === data.merging.value || !this.held) this.live = this.wanted = null;
    else this.ask();
    if (!held || this.threshold === null) this.threshold = data.threshold;
    this.drawn = null;
    this.resize(); // which draws
  }

  // Streamlit's sliders tell the server when they are let go; what they show changes before that.
  followSliders() {
    this.followMerging();
    const found = document.querySelector(`.st-key-${this.data.slider} input[type=range]`);
    if (!found || found === this.slider) return;
    this.watcher?.disconnect();
    this.slider = found;
    this.watcher = new MutationObserver(() => {
      const value = Number(found.value);
      if (this.dragging || this.sent !== null || value === this.threshold) return;
      this.sliding = value !== this.data.threshold; // until the server has it, its answers are to another question
      this.threshold = value;
      this.draw();
    });
    this.watcher.observe(found, { attributes: true, attributeFilter: ['value', 'aria-valuetext'] });
  }

  // While a finger or the mouse holds the slider; a key lets it go at once, and the server answers that by itself.
  followMerging() {
    const found = document.querySelector(`.st-key-${this.data.merging.slider} input[type=range]`);
    if (!found || found === this.factor) return;
    this.merging?.disconnect();
    this.factor = found;
    found.closest('[data-testid=stSlider]').addEventListener('pointerdown', () => { this.held = true; },
      { signal: this.listening.signal, capture: true });
    this.merging = new MutationObserver(() => {
      const value = Number(found.value);
      if (!this.held || value === this.wanted) return;
      this.wanted = value;
      if (value === this.data.merging.value) {
        this.live = null;
        this.draw();
      } else {
        this.ask();
      }
    });
    this.merging.observe(found, { attributes: true, attributeFilter: ['value', 'aria-valuetext'] });
  }

  // One question at a time: the next is whatever the slider says by then.
  ask() {
    if (this.asked !== null || this.wanted === null) return;
    this.asked = this.wanted;
    window.dispatchEvent(new CustomEvent('afterimage-merge', { detail: this.asked }));
  }

  merged(answer) {
    this.asked = null;
    const tiles = this.data.tiles;
    const fits = tiles.length === answer.shown.length && tiles.every((tile, place) => tile.id === answer.shown[place]);
    if (this.wanted === null || this.wanted === this.data.merging.value || !fits) return;
    if (answer.value !== this.wanted) this.ask();
    this.live = answer;
    this.drawn = null;
    this.draw();
  }

  // What is shown, at the merge factor of the slider.
  get scores() {
    return this.live ? { ...this.data.scores, ssim: this.live.ssim, nearest: this.live.nearest } : this.data.scores;
  }

  // ---- the line in the histogram

  grab(event) {
    if (event.button) return;
    event.preventDefault();
    this.svg.setPointerCapture(event.pointerId);
    this.dragging = true;
    this.svg.classList.add('dragged');
    this.drag(event);
  }

  drag(event) {
    if (!this.dragging) return;
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - SPACE.left) / (box.width - SPACE.left - SPACE.right);
    const value = Math.round(Math.min(1, Math.max(0, share)) * 100) / 100;
    if (value === this.threshold) return;
    this.threshold = value;
    this.draw();
    this.later ??= setTimeout(() => this.send(), SENDING);
  }

  release() {
    if (!this.dragging) return;
    this.dragging = false;
    this.svg.classList.remove('dragged');
    this.send();
  }

  send() {
    clearTimeout(this.later);
    this.later = null;
    if (this.threshold === (this.sent ?? this.data.threshold)) return;
    this.sent = this.threshold;
    this.tell('threshold', this.threshold);
  }

  // ---- drawing

  draw() {
    if (this.sliding && this.threshold === this.data.threshold) this.sliding = false;
    const threshold = Math.fround(this.threshold); // scores are single precision: a tie stays a tie
    this.drawCounts(threshold);
    this.drawHistogram(threshold);
    this.drawGrid(threshold);
    this.root.dataset.threshold = this.threshold;
    this.root.dataset.merging = this.live?.value ?? this.data.merging.value;
  }

  drawCounts(threshold) {
    const { texts } = this.data, { scores } = this;
    const of = list => list ? `${above(list, threshold)} of ${list.length}` : 'not run';
    const good = scores.ssim.flatMap((score, place) => score > threshold ? [scores.nearest[place]] : []);
    const values = { good: of(scores.ssim), mean_image: of(scores.mean_image), untrained: of(scores.untrained),
      held_out: of(scores.held_out), auc: texts.auc.value };
    const list = this.root.querySelector('.counts');
    for (const [name, value] of Object.entries(values)) {
      let row = list.querySelector(`[data-count=${name}]`);
      if (!row) {
        row = document.createElement('div');
        row.dataset.count = name;
        row.className = name === 'good' ? 'first' : '';
        row.append(document.createElement('dt'), document.createElement('dd'));
        list.append(row);
      }
      // Controls are merged when the slider is let go.
      row.classList.toggle('before', this.live !== null && name !== 'good' && name !== 'mean_image');
      const text = texts[name];
      row.children[0].textContent = text.label;
      row.children[0].title = row.children[1].title =
        name === 'good' ? text.help.replace('{unique}', new Set(good).size) : text.help;
      if (row.children[1].textContent !== value) row.children[1].textContent = value;
    }
  }

  drawHistogram(threshold) {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width || !height) return;
    const { ssim, held_out: outside } = this.scores;
    const floor = height - SPACE.bottom;
    const x = score => SPACE.left + score * (width - SPACE.left - SPACE.right);
    const key = `${width} ${height}`;
    if (this.drawn !== key) {
      this.drawn = key;
      this.svg.replaceChildren();
      const inside = binned(ssim);
      // Held-out images are as many as they are; their line is drawn as if they were as many as the training images.
      const others = outside?.length ? binned(outside).map(count => count * ssim.length / outside.length) : null;
      const most = Math.max(1, ...inside, ...(others ?? []));
      const y = count => floor - count / most * (floor - SPACE.top);
      this.bars = inside.map((count, bin) => this.add('rect', { x: x(bin / BINS) + 0.5, y: y(count),
        width: Math.max(1, x(1 / BINS) - x(0) - 1), height: floor - y(count) }));
      if (others) {
        const steps = others.map((count, bin) => `L${x(bin / BINS)} ${y(count)}L${x((bin + 1) / BINS)} ${y(count)}`);
        this.add('path', { class: 'outside', d: `M${x(0)} ${floor}${steps.join('')}L${x(1)} ${floor}` });
      }
      this.add('line', { class: 'axis', x1: x(0), x2: x(1), y1: floor, y2: floor });
      for (const tick of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
        this.add('text', { x: x(tick), y: floor + 15, 'text-anchor': 'middle' }, tick);
      }
      this.add('text', { x: x(0.5), y: floor + 30, 'text-anchor': 'middle' }, 'SSIM');
      this.add('text', { x: SPACE.left - 5, y: y(most) + 8, 'text-anchor': 'end' }, Math.round(most));
      this.line = this.add('line', { class: 'line', y1: 4, y2: floor });
      this.knob = this.add('circle', { class: 'knob', r: 6, cy: 8 });
      this.grip = this.add('rect', { class: 'grip', x: 0, y: 0, width, height: floor });
      this.root.querySelector('figcaption').textContent =
        `Training images by SSIM${others ? '; dashed: held-out images' : ''}. Drag the line.`;
    }
    this.bars.forEach((bar, bin) => bar.setAttribute('class', (bin + 0.5) / BINS > threshold ? 'bar good' : 'bar'));
    for (const name of ['x1', 'x2']) this.line.setAttribute(name, x(this.threshold));
    this.knob.setAttribute('cx', x(this.threshold));
    this.svg.setAttribute('aria-label',
      `Histogram of the SSIM of ${ssim.length} training images, with a line at ${this.threshold.toFixed(2)}`);
  }

  add(kind, attributes, text) {
    const element = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    this.svg.append(element);
    return element;
  }

  drawGrid(threshold) {
    const { tiles, sheet } = this.data, { ssim } = this.scores;
    const nothing = this.root.querySelector('.nothing');
    nothing.hidden = tiles.length > 0;
    nothing.textContent = this.data.nothing;
    const wanted = this.root.querySelector('.pairs').clientWidth < NARROW ? SMALL : LARGE;
    const judged = tiles.map(tile => {
      const score = this.live ? ssim[tile.id] : tile.score;
      const good = score > threshold;
      const verdict = score === null ? 'no candidate' : `SSIM ${score.toFixed(3)}, ${good ? '✓ good' : 'not good'}`;
      const label = score === null ? 'no candidate' : score.toFixed(2);
      return { ...tile, good, label, title: `${tile.title}, ${verdict}` };
    });
    const scale = Math.max(1, Math.round(wanted / sheet.tile_width));
    drawMosaic(this.grid, { ...this.data, tiles: judged, scale, clickable: true }, id => this.tell('picked', id));
    this.drawMerged(scale);
  }

  // Over the lower half of each tile, which holds the reconstruction.
  drawMerged(scale) {
    this.grid.classList.toggle('merging', this.live !== null);
    if (!this.live) return;
    const { below } = this.live;
    const width = below.tile_width * scale, height = below.tile_height * scale;
    setPicture(this.grid, '--below', below.png);
    this.grid.style.setProperty('--below-size', `${width * below.columns}px ${height * below.rows}px`);
    [...this.grid.children].forEach((tile, place) => {
      const column = place % below.columns, row = Math.floor(place / below.columns);
      tile.firstChild.style.setProperty('--below-place', `${-column * width}px ${-row * height}px`);
    });
  }

  // As high as the window leaves room for, so that sliders, numbers and images are seen at once.
  resize() {
    const host = this.parent.getRootNode().host ?? this.parent;
    const page = host.closest('[data-testid=stMain]');
    const top = this.root.getBoundingClientRect().top + (page?.scrollTop ?? window.scrollY);
    const room = `${Math.max(LOWEST, Math.floor(window.innerHeight - top - 38))}px`;
    if (this.root.style.getPropertyValue('--room') !== room) this.root.style.setProperty('--room', room);
    if (this.data && this.threshold !== null) this.draw();
  }
}

function binned(scores) {
  const counts = new Array(BINS).fill(0);
  for (const score of scores) {
    if (score !== null) counts[Math.min(BINS - 1, Math.max(0, Math.floor(score * BINS)))]++;
  }
  return counts;
}
