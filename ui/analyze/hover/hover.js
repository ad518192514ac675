// A training image above its reconstruction, beside the point of a chart that the pointer is on. The chart is drawn
// anew at every change, so what the pointer is over is looked up in whichever chart stands there at the time.

const GAP = 18; // pixels between the point and its picture

const listening = new Map();

export default function ({ data, parentElement }) {
  listening.get(parentElement)?.abort();
  const stop = new AbortController();
  listening.set(parentElement, stop);
  const box = parentElement.querySelector('.thumbnail');
  const picture = box.querySelector('.picture');
  const { sheet, scale } = data;
  const width = sheet.tile_width * scale, height = sheet.tile_height * scale;
  const sizes = { '--width': width, '--height': height, '--sheet-width': width * sheet.columns,
    '--sheet-height': height * sheet.rows };
  for (const [name, size] of Object.entries(sizes)) box.style.setProperty(name, `${size}px`);
  picture.style.backgroundImage = `url("data:image/png;base64,${sheet.png}")`;

  const hide = () => box.classList.remove('shown');
  const show = ({ points }) => {
    const point = points.find(found => Number.isInteger(found.customdata?.[0]));
    if (!point) return hide();
    const sample = point.customdata[0];
    const column = sample % sheet.columns, row = Math.floor(sample / sheet.columns);
    picture.style.backgroundPosition = `${-column * width}px ${-row * height}px`;
    const { x0, y0, y1 } = point.bbox;
    const at = chart.getBoundingClientRect();
    // Plotly's own label is on the right where there is room; the picture is on the left.
    const before = at.left + x0 - GAP - width - 14;
    box.style.left = `${Math.max(4, before)}px`;
    const middle = at.top + (y0 + y1) / 2;
    box.style.top = `${Math.min(window.innerHeight - height - 20, Math.max(4, middle - height / 2))}px`;
    box.dataset.sample = sample;
    box.classList.add('shown');
  };

  let chart = null;
  const attach = () => {
    const found = document.querySelector(`.st-key-${data.chart} .js-plotly-plot`);
    if (!found?.on || found === chart) return;
    chart = found;
    hide();
    chart.on('plotly_hover', event => { if (!stop.signal.aborted) show(event); });
    chart.on('plotly_unhover', hide);
  };
  // Before the pointer can rest on a point it has to move over the chart.
  document.addEventListener('pointermove', attach, { signal: stop.signal, capture: true });
  attach();
  // Streamlit also calls this for a drawing that a newer one has overtaken, while the component stays.
  return () => {
    if (parentElement.isConnected) return;
    stop.abort();
    listening.delete(parentElement);
  };
}
