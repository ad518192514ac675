// The circle on a canvas: a still, the newest frame of a run at work, or a whole recording that is played here.
// Time is counted in seconds of playing at speed 1; everything on the screen is a function of it.

const HOLDS = { a: 0.6, b: 1.2, c: 1.4, d: 1.4, e: 1.8, f: 1.8 };
const FADE = 0.8;
const SECONDS_PER_FIELD = 0.07, SECONDS_PER_PATH = 0.036;
const EVENNESS = 0.85; // of the pace of a recording: 1 shows as much change every second, 0 as many steps
const LIVE_TWEEN = 900; // milliseconds between two frames of a run at work
const LIVE_KEPT = 600; // frames of a run at work to step through
const FAINT = 0.5; // of the field, once there are candidates to look at
const MIDDLE = 128; // the byte of output 0

const THEMES = {
  light: { red: [178, 24, 43], blue: [33, 102, 172], redMark: '#7a0019', blueMark: '#06326b', minus: '#1d6fd1',
    plus: '#d0202f', inversion: '#8a5a00', weights: '#6a3d9a', neuron: '#1b222b', found: '#1b222b', outline: '#ffffff' },
  dark: { red: [226, 92, 78], blue: [72, 150, 220], redMark: '#ffc2b5', blueMark: '#bfe3ff', minus: '#8fcaff',
    plus: '#ff9d94', inversion: '#f5c04a', weights: '#c9a9ff', neuron: '#edf1f5', found: '#edf1f5', outline: '#11161d' },
};

const players = new Map();

export default function ({ data, parentElement }) {
  let player = players.get(parentElement);
  if (!player) {
    player = new Player(parentElement.querySelector('.player'));
    players.set(parentElement, player);
  }
  player.show(data);
  // Streamlit also calls this for a drawing that a newer one has overtaken, while the component stays.
  return () => {
    if (parentElement.isConnected) return;
    player.leave();
    players.delete(parentElement);
  };
}

const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const floats = text => new Float32Array(bytes(text).buffer);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const mix = (from, to, share) => from + (to - from) * share;

// When each frame is due, from 0 to 1: the more two of them differ, the further apart, so that something always moves.
// A network of small weights says next to nothing for its first hundred steps.
function schedule(frames, size) {
  const count = frames ? frames.length / size : 0;
  const due = new Float64Array(count);
  for (let index = 1; index < count; index++) {
    let change = 0;
    for (let at = 0; at < size; at++) change += Math.abs(frames[index * size + at] - frames[(index - 1) * size + at]);
    due[index] = due[index - 1] + change;
  }
  const total = due[count - 1];
  return due.map((change, index) => mix(index / (count - 1), total ? change / total : index / (count - 1), EVENNESS));
}

// The place among the frames, between two of them too, that is due at a share of the time.
function placeAt(due, share) {
  let low = 0, high = due.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (due[middle] <= share) low = middle; else high = middle;
  }
  return high === low ? low : low + clamp((share - due[low]) / (due[high] - due[low] || 1), 0, 1);
}

// Stages follow one another; training leads up to b, the attack to d. `mark` is when a stage is fully there.
function timeline(fieldDue, pathDue) {
  const [fieldCount, pathCount] = [fieldDue.length, pathDue.length];
  const parts = [];
  let start = 0;
  const add = (stage, kind, length, mark = start) => {
    parts.push({ stage, kind, start, length, mark });
    start += length;
  };
  add('a', 'hold', HOLDS.a);
  if (fieldCount > 1) add('b', 'train', clamp(fieldCount * SECONDS_PER_FIELD, 2, 7));
  if (fieldCount) add('b', 'hold', HOLDS.b);
  if (pathCount) {
    add('c', 'hold', HOLDS.c, start + FADE);
    if (pathCount > 1) add('d', 'attack', clamp(pathCount * SECONDS_PER_PATH, 2, 12));
    add('d', 'hold', HOLDS.d);
    add('e', 'hold', HOLDS.e, start + FADE);
    add('f', 'hold', HOLDS.f, start + FADE);
  }
  const marks = Object.fromEntries(parts.map(part => [part.stage, part.mark])); // the last part of a stage wins
  const steps = new Set(Object.values(marks));
  for (const { kind, start: from, length } of parts) {
    for (const share of { train: fieldDue, attack: pathDue }[kind] ?? []) steps.add(from + length * share);
  }
  return { parts, marks, length: start, steps: [...steps].sort((a, b) => a - b) };
}

class Player {
  constructor(root) {
    this.root = root;
    this.find = name => root.querySelector(name);
    this.canvas = this.find('.screen canvas');
    this.pen = this.canvas.getContext('2d');
    this.time = 0;
    this.speed = 1;
    this.playing = false;
    this.draws = 0;
    this.seen = []; // frames of a run at work, as they came
    this.looked = 0; // which of them is shown while it is paused
    this.wanted = false; // the next one, which has not come yet
    this.shown = { field: null, path: null };
    this.tile = document.createElement('canvas');
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.find('.screen'));
    this.still = matchMedia('(prefers-reduced-motion: reduce)');
    this.wire();
  }

  wire() {
    const on = (name, event, act) => this.find(name).addEventListener(event, act);
    on('.play', 'click', () => this.toggle());
    on('.back', 'click', () => this.step(-1));
    on('.next', 'click', () => this.step(1));
    on('.scrub', 'input', event => this.jump(event.target.value / 1000 * this.line.length));
    on('.speed', 'change', event => this.pace(Number(event.target.value)));
    this.root.addEventListener('keydown', event => this.press(event));
    // In a lecture there is nothing else on the page that keys could mean; two circles follow the first.
    this.heard = event => { if (this.hears(event)) this.press(event); };
    document.addEventListener('keydown', this.heard);
  }

  hears(event) {
    return this.data?.lecture && event.target === document.body && [...players.values()][0] === this;
  }

  press(event) {
    if (this.mode === 'still' || event.target.tagName === 'SELECT') return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const stage = this.data.stages[Number(event.key) - 1];
    const acts = { ' ': () => this.toggle(), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1) };
    if (this.mode === 'recording') {
      acts['+'] = acts['='] = () => this.change(1);
      acts['-'] = () => this.change(-1);
      acts.Home = () => this.jump(0);
      acts.End = () => this.jump(this.line.length);
    }
    // A button in focus is pressed with the space bar, as everywhere.
    if (event.key === ' ' && event.target.tagName === 'BUTTON') return;
    const act = acts[event.key] ?? (this.mode === 'recording' && stage && (() => this.visit(stage.key)));
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  // To the next faster or slower speed that there is.
  change(direction) {
    const select = this.find('.speed');
    select.selectedIndex = clamp(select.selectedIndex + direction, 0, select.options.length - 1);
    this.pace(Number(select.value));
  }

  pace(speed) {
    for (const one of this.together.length ? this.together : [this]) {
      one.speed = speed;
      one.find('.speed').value = String(speed);
      one.remember();
      one.root.dataset.speed = speed;
    }
  }

  // A rerun of the page comes here as well: whatever has not changed goes on undisturbed.
  show(data) {
    const before = this.data;
    const fresh = !before || before.id !== data.id || before.mode !== data.mode;
    this.data = data;
    this.mode = data.mode;
    this.theme();
    if (fresh || data.mode === 'live') this.decode(data);
    if (data.mode === 'recording') {
      if (fresh) this.line = timeline(this.fieldDue, this.pathDue);
      if (fresh) this.begin(before);
    } else {
      if (fresh) this.seen = [];
      this.playing = data.mode === 'live' && (fresh || this.playing);
      if (data.mode === 'live') this.see(); else this.tween(this.newest());
    }
    this.neurons = data.neurons ? floats(data.neurons) : null;
    this.root.dataset.neurons = this.neurons ? this.neurons.length / 4 : 0;
    this.overlays = data.overlays.map(one => ({ ...one, points: floats(one.points) }));
    this.root.classList.toggle('lecture', data.lecture);
    const around = data.beside ? ['37rem', '19rem'] : ['19.5rem', '1.6rem'];
    this.root.style.setProperty('--around', around[Number(data.lecture)]); // what else must fit on the screen
    this.find('.story').hidden = data.mode !== 'recording';
    this.find('.controls').hidden = data.mode === 'still';
    for (const name of ['.scrub', '.speed']) this.find(name).hidden = data.mode !== 'recording';
    this.root.setAttribute('aria-label', data.label);
    this.writeStages();
    this.writeLegend();
    this.fit();
  }

  decode(data) {
    this.points = floats(data.points);
    this.side = data.side;
    this.fields = data.fields ? bytes(data.fields) : null;
    this.paths = data.candidates ? floats(data.candidates) : null;
    this.count = data.candidate_labels.length;
    this.fieldCount = this.fields ? this.fields.length / (this.side * this.side) : 0;
    this.pathCount = this.paths ? this.paths.length / (2 * this.count) : 0;
    if (data.mode !== 'recording') return;
    this.fieldDue = schedule(this.fields, this.side * this.side);
    this.pathDue = schedule(this.paths, 2 * this.count);
  }

  // Where to start: where this window left it, on from where the live view ended, from the beginning, or with the result.
  begin(before) {
    const kept = this.recall(), watched = this.playing;
    this.playing = false;
    this.time = this.line.length;
    if (before?.mode === 'live' && before.id === this.data.id && 'd' in this.line.marks) {
      this.time = this.line.marks.d;
      this.playing = watched && !this.still.matches;
    } else if (kept?.id === this.data.id) {
      this.time = clamp(kept.time, 0, this.line.length);
      this.playing = kept.playing === true && !this.still.matches;
    } else if (this.data.autoplay && !this.still.matches) {
      this.time = 0;
      this.playing = true;
    }
    this.speed = kept?.speed ?? this.speed;
    this.find('.speed').value = String(this.speed);
    this.beat();
  }

  get store() { return `afterimage-circle-${this.data.slot}`; }

  remember() {
    try {
      sessionStorage.setItem(this.store, JSON.stringify(
        { id: this.data.id, time: this.time, speed: this.speed, playing: this.playing }
      ));
    } catch { /* a browser that keeps nothing plays all the same */ }
  }

  forget() {
    try {
      sessionStorage.removeItem(this.store);
    } catch { /* nothing was kept */ }
  }

  recall() {
    try {
      return JSON.parse(sessionStorage.getItem(this.store));
    } catch {
      return null;
    }
  }

  toggle() {
    this.playing = !this.playing;
    if (this.mode === 'live') {
      this.wanted = false;
      this.look(this.seen.length - 1);
      return;
    }
    if (this.playing && this.time >= this.line.length) this.time = 0;
    this.settle();
  }

  jump(time) {
    this.playing = false;
    this.time = clamp(time, 0, this.line.length);
    this.settle();
  }

  // Two circles side by side tell the same part of the story, on the clock of the first that plays.
  get together() {
    return [...players.values()].filter(one => one.mode === 'recording' && this.mode === 'recording'
      && one.line.parts.length === this.line.parts.length);
  }

  get leader() { return this.together.find(one => one.playing) ?? this; }

  // The others to where this one is.
  lead() {
    const place = this.line.parts.findLastIndex(part => part.start <= this.time);
    const { start, length } = this.line.parts[place];
    for (const other of this.together) {
      if (other === this) continue;
      const part = other.line.parts[place];
      other.time = part.start + clamp((this.time - start) / length, 0, 1) * part.length;
      other.beat();
    }
  }

  settle() {
    this.lead();
    this.settleAt(this.playing);
  }

  settleAt(playing) {
    for (const other of this.together) {
      other.playing = playing;
      other.remember();
      other.beat();
    }
  }

  visit(stage) {
    if (stage in this.line.marks) this.jump(stage === 'f' ? this.line.length : this.line.marks[stage]);
  }

  step(direction) {
    if (this.mode === 'live') {
      this.playing = false;
      this.wanted = direction > 0 && this.looked === this.seen.length - 1;
      this.look(this.looked + direction);
      return;
    }
    const steps = direction > 0 ? this.line.steps : [...this.line.steps].reverse();
    const next = steps.find(time => (time - this.time) * direction > 1e-6);
    this.jump(next ?? (direction > 0 ? this.line.length : 0));
  }

  newest() {
    const size = this.side * this.side;
    return {
      step: this.data.step,
      field: this.fields && Float32Array.from(this.fields.subarray((this.fieldCount - 1) * size)),
      path: this.paths && this.paths.slice((this.pathCount - 1) * this.count * 2),
    };
  }

  // A run at work can be paused and stepped through: it goes on, and its frames wait here to be looked at.
  see() {
    const newest = this.newest();
    const last = this.seen.at(-1);
    if (!last || last.step !== newest.step || !last.path !== !newest.path) this.seen.push(newest);
    if (this.seen.length > LIVE_KEPT) {
      this.seen.shift();
      this.looked = Math.max(0, this.looked - 1);
    }
    if (this.playing) this.look(this.seen.length - 1);
    else if (this.wanted && this.looked < this.seen.length - 1) {
      this.wanted = false;
      this.look(this.looked + 1);
    } else this.beat();
  }

  look(index) {
    this.looked = clamp(index, 0, this.seen.length - 1);
    this.tween(this.seen[this.looked]);
  }

  // Between the frames of a run at work, which come about once a second, everything glides.
  tween({ field, path }) {
    const alike = (from, to) => from && to && from.length === to.length;
    this.glide = {
      began: performance.now(),
      field: [alike(this.shown.field, field) ? this.shown.field.slice() : field, field],
      path: [alike(this.shown.path, path) ? this.shown.path.slice() : path, path],
    };
    this.beat();
  }

  beat() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(now => {
      this.waiting = null;
      const passed = this.last === undefined ? 0 : Math.min(now - this.last, 100);
      this.last = now;
      let more;
      if (this.mode === 'recording') {
        if (this.playing && this.leader === this) this.time += passed / 1000 * this.speed;
        if (this.time >= this.line.length && this.playing) {
          this.time = this.line.length;
          this.settleAt(false);
        }
        more = this.playing;
        if (more && this.draws % 30 === 0) this.remember();
        if (this.playing && this.leader === this) this.lead();
        this.draw(this.moment(this.time));
      } else {
        const share = this.still.matches ? 1 : clamp((now - this.glide.began) / LIVE_TWEEN, 0, 1);
        more = share < 1 && this.mode === 'live';
        this.draw(this.glidingMoment(more ? share : 1));
      }
      if (more) this.beat(); else this.last = undefined;
    });
  }

  // Left for another page, not reloaded: whoever comes back sees what opens by itself from its beginning.
  leave() {
    if (this.data?.autoplay) this.forget();
    this.resized.disconnect();
    document.removeEventListener('keydown', this.heard);
    if (this.waiting) cancelAnimationFrame(this.waiting);
  }

  // What is on the screen at a time of the recording.
  moment(time) {
    const part = this.line.parts.findLast(one => one.start <= time) ?? this.line.parts[0];
    const share = part.length ? clamp((time - part.start) / part.length, 0, 1) : 1;
    const arrived = clamp((time - part.start) / FADE, 0, 1);
    const after = stages => stages.includes(part.stage);
    const moment = { stage: part.stage, frame: '', clock: '', field: null, fieldShare: 1, path: null,
      pathShare: 1, faded: [0, 0], overlays: !after('a') && part.kind !== 'train' ? 1 : 0, rings: after('def') };
    if (!after('a') && this.fieldCount) {
      const at = part.kind === 'train' ? placeAt(this.fieldDue, share) : this.fieldCount - 1;
      moment.field = this.between(this.fields, this.side * this.side, at);
      moment.fieldShare = after('b') ? 1 : after('c') ? mix(1, FAINT, arrived) : FAINT;
      if (part.kind === 'train') this.name(moment, 'training', this.data.field_steps, at);
    }
    if (after('cdef')) {
      const at = after('c') ? 0 : part.kind === 'attack' ? placeAt(this.pathDue, share) : this.pathCount - 1;
      moment.path = this.between(this.paths, 2 * this.count, at);
      moment.pathShare = after('c') ? arrived : 1;
      if (part.kind === 'attack') this.name(moment, 'attack', this.data.candidate_steps, at);
    }
    if (after('e')) moment.faded = [arrived, 0];
    if (after('f')) moment.faded = [1, arrived];
    return moment;
  }

  name(moment, what, steps, at) {
    const index = Math.round(at);
    moment.frame = `${what}:${index}`;
    moment.clock = `${what}, step ${steps[index].toLocaleString('en')} of ${steps.at(-1).toLocaleString('en')}`;
  }

  glidingMoment(share) {
    const blend = ([from, to]) => to && to.map((value, index) => mix(from[index], value, share));
    const moment = { stage: '', frame: '', clock: '', field: blend(this.glide.field), path: blend(this.glide.path),
      fieldShare: this.glide.path[1] ? FAINT : 1, pathShare: 1, faded: [0, 0], overlays: 1, rings: false };
    this.shown = { field: moment.field, path: moment.path };
    const step = this.mode === 'live' ? this.seen[this.looked]?.step ?? null : null;
    if (step !== null) moment.clock = `${moment.path ? 'attack' : 'training'}, step ${step.toLocaleString('en')}`;
    return moment;
  }

  between(frames, size, at) {
    const low = Math.floor(at), high = Math.min(low + 1, frames.length / size - 1), share = at - low;
    const from = frames.subarray(low * size, (low + 1) * size), to = frames.subarray(high * size, (high + 1) * size);
    const found = new Float32Array(size);
    for (let index = 0; index < size; index++) found[index] = mix(from[index], to[index], share);
    return found;
  }

  // Colours follow the page's theme, light or dark.
  theme() {
    const css = getComputedStyle(this.root);
    const probe = (name, fallback) => {
      this.pen.fillStyle = fallback;
      this.pen.fillStyle = css.getPropertyValue(name).trim();
      return this.pen.fillStyle;
    };
    this.paper = probe('--st-background-color', '#ffffff');
    this.ink = probe('--st-text-color', '#1b222b');
    this.rule = probe('--st-border-color', '#cdd5de');
    const rgb = [1, 3, 5].map(at => parseInt(this.paper.slice(at, at + 2), 16));
    const dark = rgb[0] * 0.3 + rgb[1] * 0.6 + rgb[2] * 0.1 < 128;
    this.colours = THEMES[dark ? 'dark' : 'light'];
    this.root.dataset.theme = dark ? 'dark' : 'light';
    this.ramp = new Uint8ClampedArray(256 * 3);
    for (let byte = 0; byte < 256; byte++) {
      const strength = Math.min(1, Math.abs(byte - MIDDLE) / 127) ** 0.85;
      const end = byte > MIDDLE ? this.colours.red : this.colours.blue;
      for (let channel = 0; channel < 3; channel++) {
        this.ramp[byte * 3 + channel] = mix(rgb[channel], end[channel], strength);
      }
    }
  }

  fit() {
    const width = this.find('.screen').clientWidth;
    const pixels = Math.round(width * (devicePixelRatio || 1));
    if (!pixels) return;
    if (this.canvas.width !== pixels) this.canvas.width = this.canvas.height = pixels;
    this.scale = pixels / 2 / this.data.reach;
    this.unit = pixels / 620; // marks grow with the picture
    this.beat();
  }

  place(points, index) {
    const half = this.canvas.width / 2, edge = 7 * this.unit;
    const x = half + points[2 * index] * this.scale, y = half - points[2 * index + 1] * this.scale;
    const [left, top] = [clamp(x, edge, 2 * half - edge), clamp(y, edge, 2 * half - edge)];
    return { x: left, y: top, outside: left !== x || top !== y };
  }

  draw(moment) {
    const { pen, canvas } = this;
    if (!this.scale) return;
    pen.globalAlpha = 1;
    pen.fillStyle = this.paper;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    if (moment.field) this.drawField(moment.field, moment.fieldShare);
    this.drawRules();
    if (this.neurons && moment.overlays) this.drawNeurons();
    if (moment.overlays) this.overlays.forEach(one => this.drawOverlay(one));
    if (moment.path) this.drawCandidates(moment);
    this.drawPoints(moment.rings);
    if (moment.clock) this.drawClock(moment.clock);
    this.report(moment);
  }

  drawField(field, share) {
    const { tile, side } = this;
    if (tile.width !== side) tile.width = tile.height = side;
    const pen = tile.getContext('2d');
    const image = pen.createImageData(side, side);
    for (let index = 0; index < field.length; index++) {
      const byte = Math.round(field[index]) * 3, at = index * 4;
      image.data[at] = this.ramp[byte];
      image.data[at + 1] = this.ramp[byte + 1];
      image.data[at + 2] = this.ramp[byte + 2];
      image.data[at + 3] = 255;
    }
    pen.putImageData(image, 0, 0);
    this.pen.globalAlpha = share;
    this.pen.imageSmoothingEnabled = true;
    this.pen.imageSmoothingQuality = 'high';
    // The grid's outermost points lie on the edge of the picture, half a tile's pixel further in.
    const cell = this.canvas.width / (side - 1);
    this.pen.drawImage(tile, -cell / 2, -cell / 2, cell * side, cell * side);
    this.pen.globalAlpha = 1;
  }

  drawRules() {
    const { pen, canvas } = this, half = canvas.width / 2;
    pen.strokeStyle = this.ink;
    pen.globalAlpha = 0.25;
    pen.lineWidth = 1.2 * this.unit;
    pen.beginPath();
    pen.arc(half, half, this.scale, 0, 2 * Math.PI);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  drawClock(text) {
    const { pen, unit } = this;
    pen.font = `600 ${15 * unit}px ${getComputedStyle(this.root).fontFamily}`;
    pen.lineJoin = 'round';
    pen.lineWidth = 4 * unit;
    pen.strokeStyle = this.paper;
    pen.strokeText(text, 12 * unit, 24 * unit);
    pen.fillStyle = this.ink;
    pen.fillText(text, 12 * unit, 24 * unit);
  }

  // Each line is where a neuron of the first layer turns on; the stronger it acts, the darker.
  drawNeurons() {
    const { pen, canvas, scale } = this, half = canvas.width / 2, far = 2 * canvas.width;
    pen.strokeStyle = this.colours.neuron;
    for (let at = 0; at < this.neurons.length; at += 4) {
      const [a, b, c, share] = this.neurons.subarray(at, at + 4);
      const x = half - a * c * scale, y = half + b * c * scale; // the point of the line nearest to the middle
      pen.globalAlpha = 0.12 + 0.6 * share;
      pen.lineWidth = (0.6 + 1.4 * share) * this.unit;
      pen.beginPath();
      pen.moveTo(x - b * far, y - a * far);
      pen.lineTo(x + b * far, y + a * far);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  drawOverlay(overlay) {
    const count = overlay.points.length / 2;
    for (let index = 0; index < count; index++) {
      const at = this.place(overlay.points, index);
      const shape = overlay.kind === 'weights' ? 'dot' : overlay.labels[index] ? 'up' : 'down';
      this.mark(shape, at, { colour: this.colours[overlay.kind], size: shape === 'dot' ? 2.2 : 7, hollow: at.outside });
    }
  }

  drawCandidates({ path, pathShare, faded }) {
    const { candidate_labels: labels, filtered, kept } = this.data;
    for (let index = 0; index < this.count; index++) {
      const dropped = kept[index] ? 0 : filtered[index] ? faded[1] : faded[0];
      if (dropped === 1) continue;
      this.pen.globalAlpha = pathShare * (1 - dropped);
      const at = this.place(path, index);
      const [shape, colour] = labels[index] ? ['diamond', this.colours.plus] : ['disc', this.colours.minus];
      this.mark(shape, at, { colour, size: shape === 'disc' ? 7.6 : 9.2, hollow: at.outside });
    }
    this.pen.globalAlpha = 1;
  }

  drawPoints(rings) {
    this.data.labels.forEach((label, index) => {
      const at = this.place(this.points, index);
      if (rings && this.data.found?.[index]) {
        this.mark('ring', at, { colour: this.colours.found, size: this.data.radius * this.scale / this.unit });
      }
      this.mark(label ? 'plus' : 'times', at, { colour: label ? this.colours.redMark : this.colours.blueMark, size: 10.5 });
    });
  }

  // Shapes as well as colours tell the classes apart.
  mark(shape, { x, y }, { colour, size, hollow = false }, pen = this.pen, unit = this.unit) {
    const r = size * unit;
    const line = corners => corners.forEach(([dx, dy], index) => pen[index ? 'lineTo' : 'moveTo'](x + dx * r, y + dy * r));
    pen.beginPath();
    if (shape === 'times' || shape === 'plus') {
      const arms = shape === 'times' ? [[0.75, 0.75], [0.75, -0.75]] : [[1, 0], [0, 1]];
      arms.forEach(([dx, dy]) => line([[-dx, -dy], [dx, dy]]));
      pen.lineCap = 'round';
      pen.strokeStyle = this.colours.outline;
      pen.lineWidth = 4.6 * unit;
      pen.stroke();
      pen.strokeStyle = colour;
      pen.lineWidth = 2.4 * unit;
      pen.stroke();
      return;
    }
    if (shape === 'line') {
      line([[-1, 0.5], [1, -0.5]]);
      pen.strokeStyle = colour;
      pen.lineWidth = 1.6 * unit;
      pen.stroke();
      return;
    }
    if (shape === 'diamond') line([[0, -1], [1, 0], [0, 1], [-1, 0], [0, -1]]);
    else if (shape === 'up') line([[0, -1], [0.9, 0.7], [-0.9, 0.7], [0, -1]]);
    else if (shape === 'down') line([[0, 1], [0.9, -0.7], [-0.9, -0.7], [0, 1]]);
    else pen.arc(x, y, r, 0, 2 * Math.PI);
    pen.closePath();
    if (shape === 'ring') {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.8 * unit;
      pen.stroke();
      return;
    }
    pen.strokeStyle = hollow ? colour : this.colours.outline;
    pen.lineWidth = (shape === 'dot' ? 0.6 : 1.6) * unit;
    if (!hollow) {
      pen.fillStyle = colour;
      pen.fill();
    }
    pen.stroke();
  }

  writeStages() {
    const box = this.find('.stages');
    const stages = this.data.stages;
    while (box.children.length > stages.length) box.lastElementChild.remove();
    stages.forEach(({ key, word }, index) => {
      let button = box.children[index];
      if (!button) {
        button = document.createElement('button');
        button.type = 'button';
        button.append(document.createElement('span'), document.createElement('span'));
        button.children[0].className = 'letter';
        button.children[1].className = 'word';
        button.onclick = () => this.visit(button.dataset.stage);
        box.append(button);
      }
      button.dataset.stage = key;
      button.title = `Step ${key} (key ${index + 1})`;
      button.children[0].textContent = `${key} `;
      button.children[1].textContent = word;
    });
  }

  writeLegend() {
    const shapes = { times: ['blueMark', 9], plus: ['redMark', 9], disc: ['minus', 6], diamond: ['plus', 7], neuron: ['neuron', 9],
      inversion: ['inversion', 7], weights: ['weights', 3], ring: ['found', 8] };
    const box = this.find('.legend');
    box.replaceChildren(...this.data.legend.map(([shape, words]) => {
      const item = document.createElement('span');
      const picture = document.createElement('canvas');
      picture.width = picture.height = 44;
      const [colour, size] = shapes[shape];
      const drawn = { inversion: 'up', weights: 'dot', neuron: 'line' }[shape] ?? shape;
      this.mark(drawn, { x: 22, y: 22 }, { colour: this.colours[colour], size }, picture.getContext('2d'), 2);
      item.append(picture, words);
      return item;
    }));
  }

  // What the canvas shows, in words, for people who do not see it, and for tests.
  report(moment) {
    this.draws += 1;
    const state = this.root.dataset;
    state.mode = this.mode;
    state.stage = moment.stage;
    state.frame = moment.frame;
    state.step = state.received = this.data.step ?? '';
    state.playing = this.playing;
    state.draws = this.draws;
    this.find('.play').setAttribute('aria-pressed', this.playing);
    if (this.mode === 'live') state.step = this.seen[this.looked]?.step ?? '';
    if (this.mode !== 'recording') {
      this.canvas.setAttribute('aria-label', this.data.label);
      return;
    }
    state.time = this.time.toFixed(3);
    state.length = this.line.length.toFixed(3);
    const stage = this.data.stages.find(one => one.key === moment.stage);
    const write = (name, text) => { const place = this.find(name); if (place.textContent !== text) place.textContent = text; };
    write('.title', `${stage.title}.`);
    write('.sentence', stage.note);
    this.canvas.setAttribute('aria-label', `${stage.title}. ${stage.note}`);
    const scrub = this.find('.scrub');
    scrub.value = Math.round(this.time / this.line.length * 1000);
    scrub.setAttribute('aria-valuetext', `${stage.title}${moment.clock ? `, ${moment.clock}` : ''}`);
    for (const button of this.find('.stages').children) {
      if (button.dataset.stage === moment.stage) button.setAttribute('aria-current', 'step');
      else button.removeAttribute('aria-current');
      button.disabled = !(button.dataset.stage in this.line.marks);
    }
  }
}
