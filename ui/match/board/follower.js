// Asks the server for what the board wants while a slider is dragged, and hands it the answer. A component of its own,
// because a component is sent all of its data again each time, and the board has much that does not change.

let listening = null;

export default function ({ data, setTriggerValue }) {
  listening?.abort();
  listening = new AbortController();
  window.addEventListener('afterimage-merge', event => setTriggerValue('asked', event.detail),
    { signal: listening.signal });
  if (data) window.dispatchEvent(new CustomEvent('afterimage-merged', { detail: data }));
}
