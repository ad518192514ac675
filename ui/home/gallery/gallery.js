// Pairs of training image and reconstruction that move to their places as they get better, and all candidates below.
// Pictures are cut out of one PNG each and drawn once it is there, so that nothing flickers between two of them.

const GAP = 10; // pixels between pairs
const LABEL = 24;
const ACROSS = 10, SMALL_ACROSS = 20;
const SMALL_GAP = 2; // pixels of a candidate's picture

const galleries = new Map();

export default function ({ data, parentElement, setTriggerValue }) {
  let gallery = galleries.get(parentElement);
  if (!gallery) {
    gallery = new Gallery(parentElement.querySelector('.gallery'), parentElement.querySelector('.pair-view'));
    galleries.set(parentElement, gallery);
  }
  gallery.viewer.tell = query => setTriggerValue('match', query);
  gallery.show(data);
  // Streamlit also calls this for a drawing that a newer one has overtaken, while the component stays.
  return () => {
    if (parentElement.isConnected) return;
    gallery.leave();
    galleries.delete(parentElement);
  };
}

async function decoded(png) {
  const bytes = Uint8Array.from(atob(png), letter => letter.charCodeAt(0));
  return createImageBitmap(new Blob([bytes], { type: 'image/png' }));
}

class Gallery {
  constructor(root, dialog) {
    this.root = root;
    this.viewer = new PairViewer(dialog);
    this.wire(root.querySelector('.candidates'));
    this.box = root.querySelector('.pairs');
    this.sheets = new Map(); // by name: what was sent and the picture it holds
    this.pairs = new Map(); // by training image
    this.resized = new ResizeObserver(() => this.lay());
    this.resized.observe(root);
  }

  leave() { this.resized.disconnect(); }

  // A click on a candidate opens it, Enter the first; arrow keys lead to the others.
  wire(canvas) {
    canvas.onclick = event => {
      if (!this.data?.alone) return;
      const { tile_width: width, tile_height: height } = this.data.candidates;
      const scale = canvas.width / canvas.clientWidth;
      const column = Math.floor(event.offsetX * scale / (width + SMALL_GAP));
      const row = Math.floor(event.offsetY * scale / (height + SMALL_GAP));
      this.open('alone', row * SMALL_ACROSS + column);
    };
    canvas.onkeydown = event => { if (event.key === 'Enter') this.open('alone', 0); };
  }

  open(which, id) {
    this.which = which;
    this.showPairs();
    this.viewer.open(id);
  }

  // The gallery's own pictures are sent once.
  showPairs() {
    const found = this.data?.[this.which];
    if (!found) return;
    const { images, reconstructions } = this.data;
    this.viewer.show({ ...found, images, reconstructions: found.reconstructions ?? reconstructions });
  }

  async show(data) {
    this.asked = data;
    const names = ['images', 'reconstructions', 'candidates'];
    await Promise.all(names.map(name => this.load(name, data[name])));
    if (this.asked !== data) return; // something newer came meanwhile
    this.data = data;
    this.root.querySelector('.pairs-title').textContent = data.pairs_title;
    this.root.querySelector('.candidates-title').textContent = data.candidates_title;
    this.draw();
    this.drawCandidates();
    this.lay();
    this.showPairs();
    const state = this.root.dataset;
    state.good = data.pairs.filter(pair => pair.good).length;
    state.pairs = data.reconstructions ? data.pairs.length : 0;
    state.candidates = data.candidates?.count ?? 0;
    state.version = data.version;
  }

  async load(name, sheet) {
    const png = sheet?.png ?? null;
    if (this.sheets.get(name)?.png === png) return;
    const picture = png ? await decoded(png) : null;
    this.sheets.set(name, { png, picture });
  }

  tile(name, place) {
    const { picture } = this.sheets.get(name);
    const { columns, tile_width: width, tile_height: height } = this.data[name];
    return [picture, place % columns * width, Math.floor(place / columns) * height, width, height];
  }

  draw() {
    const { pairs, images, reconstructions } = this.data;
    const { tile_width: width, tile_height: height } = images;
    const shown = new Set(pairs.map(pair => pair.sample));
    for (const [sample, element] of this.pairs) {
      if (shown.has(sample)) continue;
      element.remove();
      this.pairs.delete(sample);
    }
    pairs.forEach((pair, place) => {
      let element = this.pairs.get(pair.sample);
      if (!element) {
        element = this.make(width, height);
        this.pairs.set(pair.sample, element);
      }
      element.classList.toggle('good', pair.good);
      element.setAttribute('aria-label', pair.title);
      element.title = pair.title;
      element.disabled = !this.data.opened;
      element.onclick = () => this.open('opened', pair.sample);
      const [above, below] = element.querySelectorAll('canvas');
      this.paint(above, this.tile('images', pair.sample));
      if (reconstructions) this.paint(below, this.tile('reconstructions', place));
      element.querySelector('.label').textContent = pair.label;
    });
  }

  make(width, height) {
    const element = document.createElement('button');
    element.type = 'button';
    element.className = 'pair';
    const frame = document.createElement('div');
    frame.className = 'frame';
    for (let count = 0; count < 2; count++) {
      const canvas = document.createElement('canvas');
      canvas.width = width;
      canvas.height = height;
      frame.append(canvas);
    }
    const label = document.createElement('div');
    label.className = 'label';
    element.append(frame, label);
    this.box.append(element);
    return element;
  }

  paint(canvas, [picture, left, top, width, height]) {
    canvas.getContext('2d').drawImage(picture, left, top, width, height, 0, 0, width, height);
  }

  drawCandidates() {
    const canvas = this.root.querySelector('.candidates');
    const sheet = this.data.candidates;
    canvas.hidden = !sheet;
    if (!sheet) return;
    const across = SMALL_ACROSS, rows = Math.ceil(sheet.count / across);
    const [width, height] = [sheet.tile_width + SMALL_GAP, sheet.tile_height + SMALL_GAP];
    const size = [across * width - SMALL_GAP, rows * height - SMALL_GAP];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    const pen = canvas.getContext('2d');
    for (let place = 0; place < sheet.count; place++) {
      const [picture, left, top, w, h] = this.tile('candidates', place);
      pen.drawImage(picture, left, top, w, h, place % across * width, Math.floor(place / across) * height, w, h);
    }
    canvas.setAttribute('aria-label', this.data.candidates_title);
    canvas.classList.toggle('clickable', Boolean(this.data.alone));
    if (this.data.alone) canvas.tabIndex = 0; else canvas.removeAttribute('tabindex');
  }

  // Ten pairs a row, enlarged as far as there is room; to a whole factor where it does not cost too much of it.
  lay() {
    const room = this.root.clientWidth;
    if (!this.data || !room) return;
    const { tile_width: width, tile_height: height } = this.data.images;
    const scale = Math.max(1, Math.floor((room / ACROSS - GAP) / width * 4) / 4);
    this.root.style.setProperty('--width', `${width * scale}px`);
    this.root.style.setProperty('--height', `${height * scale}px`);
    const [wide, high] = [width * scale + GAP, 2 * height * scale + LABEL + GAP];
    this.data.pairs.forEach((pair, place) => {
      const [column, row] = [place % ACROSS, Math.floor(place / ACROSS)];
      this.pairs.get(pair.sample).style.transform = `translate(${column * wide + 4}px, ${row * high + 4}px)`;
    });
    this.box.style.height = `${Math.ceil(this.data.pairs.length / ACROSS) * high + 4}px`;
    const candidates = this.root.querySelector('.candidates');
    const all = ACROSS * wide - GAP;
    candidates.style.width = `${all}px`;
    candidates.style.marginLeft = '4px';
  }
}
