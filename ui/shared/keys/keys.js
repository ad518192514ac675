// Keys that press buttons of the page, and the list of all of them.

const pages = new Map();

export default function ({ data, parentElement }) {
  pages.get(parentElement)?.abort();
  const stop = new AbortController();
  pages.set(parentElement, stop);
  const dialog = parentElement.querySelector('.keys');
  dialog.querySelector('dl').replaceChildren(...data.keys.flatMap(([names, meaning]) => {
    const term = document.createElement('dt'), said = document.createElement('dd');
    term.textContent = names;
    said.textContent = meaning;
    return [term, said];
  }));
  dialog.onclick = event => { if (event.target === dialog) dialog.close(); };
  dialog.onkeydown = event => {
    event.stopPropagation(); // no key means anything else while the list is open
    if (event.key === '?') dialog.close();
  };
  // Before anybody else on the page: what is pressed here means nothing else.
  document.addEventListener('keydown', event => {
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey || isField(target)) return;
    // A dialog that was just closed has the focus until the next frame.
    if (target.closest?.('dialog[open]') || target.getRootNode?.().querySelector?.('dialog[open]')) return;
    if (event.key === '?') {
      event.preventDefault();
      dialog.showModal();
      return;
    }
    const key = data.presses[event.key];
    const button = key && document.querySelector(`.st-key-${key} button`);
    if (!button) return;
    event.preventDefault();
    event.stopPropagation();
    if (!button.disabled) button.click();
  }, { capture: true, signal: stop.signal });
  // Streamlit also calls this for a drawing that a newer one has overtaken, while the component stays.
  return () => {
    if (parentElement.isConnected) return;
    stop.abort();
    pages.delete(parentElement);
  };
}

const isField = element => element.isContentEditable || /^(TEXTAREA|SELECT|INPUT)$/.test(element.tagName ?? '');
