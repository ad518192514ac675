// One pair, large, in a dialog over the page. It is told what there is (`show`), also while it is open, and opened at
// one of them; what the pictures of a run at work turn into is then seen in it too.
class PairViewer {
  constructor(dialog, tell) {
    this.dialog = dialog;
    this.tell = tell; // the server, where the link leads
    this.find = name => dialog.querySelector(name);
    this.decoded = new Map(); // pictures by what was sent
    this.find('.close').onclick = () => dialog.close();
    this.find('.previous').onclick = () => this.step(-1);
    this.find('.following').onclick = () => this.step(1);
    dialog.onclick = event => { if (event.target === dialog) dialog.close(); }; // outside of it
    // No key means anything else while it is open; Escape is the browser's own way to close a dialog.
    dialog.onkeydown = event => {
      event.stopPropagation();
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
      if (!(event.key in steps)) return;
      event.preventDefault();
      this.step(steps[event.key]);
    };
    this.find('a').onclick = event => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in a tab of its own
      event.preventDefault();
      dialog.close();
      this.tell(this.pair.match);
    };
  }

  // `sheet` is the component's own, for pairs without sheets of theirs.
  show(data, sheet) {
    this.data = data && { ...data, images: data.images ?? sheet, reconstructions: data.reconstructions ?? sheet,
      halved: !data.images };
    if (this.dialog.open && this.data) this.draw();
  }

  has(id) { return Boolean(this.data?.pairs.some(pair => pair.id === id)); }

  open(id) {
    if (!this.has(id)) return;
    this.id = id;
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.focus(); // a button may be disabled in a moment, and keys are lost on those
    this.draw();
  }

  get place() { return this.data.pairs.findIndex(pair => pair.id === this.id); }

  step(by) {
    const { pairs } = this.data;
    const next = Math.min(pairs.length - 1, Math.max(0, this.place + by));
    this.id = pairs[next].id;
    this.draw();
  }

  async draw() {
    const { data, place } = this, pair = data.pairs[place];
    if (!pair) return; // of a run at work: it is no longer among the best, and stays as it was
    this.pair = pair;
    const [images, reconstructions] = await Promise.all([this.load(data.images), this.load(data.reconstructions)]);
    if (this.data !== data || this.pair !== pair) return; // something newer came meanwhile
    this.find('h2').textContent = pair.title;
    this.find('.place').textContent = `${place + 1} of ${data.pairs.length}`;
    this.find('.previous').disabled = place === 0;
    this.find('.following').disabled = place === data.pairs.length - 1;
    if (this.dialog.querySelector('button:disabled:focus')) this.dialog.focus();
    this.dialog.setAttribute('aria-label', pair.title);
    const image = this.paint('.image', images, data.images, pair.image, data.halved ? 0 : null);
    const below = this.paint('.reconstruction', reconstructions, data.reconstructions, pair.reconstruction,
      data.halved ? 1 : null);
    this.compare(image, below);
    this.find('dl').replaceChildren(...pair.facts.map(([name, value]) => {
      const row = document.createElement('div'), term = document.createElement('dt');
      const said = document.createElement('dd');
      term.textContent = name;
      said.textContent = value;
      row.append(term, said);
      return row;
    }));
    const link = this.find('a');
    link.hidden = !pair.match;
    if (pair.match) link.href = `Match?${pair.match}`;
    this.dialog.dataset.pair = pair.id;
  }

  async load(sheet) {
    let found = this.decoded.get(sheet.png);
    if (!found) {
      const bytes = Uint8Array.from(atob(sheet.png), letter => letter.charCodeAt(0));
      found = createImageBitmap(new Blob([bytes], { type: 'image/png' }));
      if (this.decoded.size > 3) this.decoded.clear(); // those of a moment ago
      this.decoded.set(sheet.png, found);
    }
    return found;
  }

  // A tile of a sheet, or its upper (0) or lower (1) half.
  paint(name, picture, sheet, place, half) {
    const { columns, tile_width: width } = sheet, whole = sheet.tile_height;
    const height = half === null ? whole : whole / 2;
    const canvas = this.find(name);
    [canvas.width, canvas.height] = [width, height];
    const pen = canvas.getContext('2d', { willReadFrequently: true });
    pen.drawImage(picture, place % columns * width, Math.floor(place / columns) * whole + (half ?? 0) * height,
      width, height, 0, 0, width, height);
    return pen.getImageData(0, 0, width, height);
  }

  compare(image, below) {
    const canvas = this.find('.difference');
    const same = image.width === below.width && image.height === below.height;
    canvas.parentElement.hidden = !same;
    if (!same) return;
    [canvas.width, canvas.height] = [image.width, image.height];
    const found = new ImageData(image.width, image.height);
    for (let at = 0; at < found.data.length; at++) {
      found.data[at] = at % 4 === 3 ? 255 : Math.round((below.data[at] - image.data[at]) / 2 + 127.5);
    }
    canvas.getContext('2d').putImageData(found, 0, 0);
  }
}
