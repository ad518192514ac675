// Margins of the training samples over the steps of the training: bands between deciles, the median, the smallest.
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 318, 8, 165];

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector('.margins');
  root.querySelector('figcaption').textContent = data.title;
  const svg = root.querySelector('svg');
  const { steps, levels } = data;
  svg.setAttribute('aria-label', data.alt);
  root.dataset.points = steps.length;
  root.dataset.highest = steps.length ? levels.at(-1).at(-1) : '';
  const last = Math.max(1, steps.at(-1) ?? 1);
  const flat = levels.flat();
  const [low, high] = [Math.min(0, ...flat), Math.max(1e-9, ...flat)];
  const x = step => LEFT + (RIGHT - LEFT) * step / last;
  const y = value => BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low);
  const path = places => places.map(([px, py], index) => `${index ? 'L' : 'M'}${px.toFixed(1)} ${py.toFixed(1)}`).join('');
  const level = index => steps.map((step, at) => [x(step), y(levels[at][index])]);
  const parts = [];
  const make = (name, attributes, text) => {
    const part = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    if (text !== undefined) part.textContent = text;
    parts.push(part);
  };
  make('line', { class: 'axis', x1: LEFT, x2: LEFT, y1: TOP, y2: BOTTOM });
  make('line', { class: 'axis', x1: LEFT, x2: RIGHT, y1: y(0), y2: y(0) });
  if (steps.length) {
    const count = levels[0].length;
    for (let index = 0; index < Math.floor(count / 2); index++) {
      make('path', { class: 'band', d: `${path([...level(index), ...level(count - 1 - index).reverse()])}Z` });
    }
    make('path', { class: 'line', d: path(level(Math.floor(count / 2))) });
    make('path', { class: 'line least', d: path(level(0)) });
    const words = value => Math.abs(value) >= 10 ? value.toFixed(0) : value.toPrecision(2);
    make('text', { x: LEFT - 6, y: TOP + 8, 'text-anchor': 'end' }, words(high));
    make('text', { x: LEFT - 6, y: y(0) + 4, 'text-anchor': 'end' }, '0');
    make('text', { x: RIGHT, y: BOTTOM + 17, 'text-anchor': 'end' }, `step ${last.toLocaleString('en')}`);
  }
  make('text', { x: LEFT, y: BOTTOM + 17 }, 'step 0');
  svg.replaceChildren(...parts);
}
