// Keys of the page and of the view that is open. A key in a field is the field's.
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "/web/shell.js";

export const helpOpen = signal(false);
const layers = [];
const shown = signal([]);
let prefix = "";
let prefixTimer = 0;

/** @param {any} target */
const inField = (target) => target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

/** Keys while a component is there: {"j": {does: "next row", act: fn}, "g r": …}. The newest component that has a key gets it; an `act` that
 * returns false passes it on. */
export function useKeys(title, keys) {
  const layer = useRef({ title, keys });
  Object.assign(layer.current, { title, keys });
  useLayoutEffect(() => { // not after the next paint: who sees a button may press its key
    const own = layer.current;
    layers.push(own);
    shown.value = [...layers];
    return () => {
      layers.splice(layers.indexOf(own), 1);
      shown.value = [...layers];
    };
  }, []);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const field = inField(event.target);
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  if (helpOpen.value) { // what stands behind the help is not acted on unseen
    if (["Escape", "?"].includes(event.key)) {
      helpOpen.value = false;
      event.preventDefault();
    }
    return;
  }
  const key = prefix ? `${prefix} ${event.key}` : event.key;
  clearTimeout(prefixTimer);
  prefix = "";
  for (const { keys } of [...layers].reverse()) {
    if (keys[key] && keys[key].act(event) !== false) {
      event.preventDefault();
      return;
    }
  }
  if (layers.some(({ keys }) => Object.keys(keys).some((each) => each.startsWith(`${event.key} `)))) {
    prefix = event.key;
    prefixTimer = setTimeout(() => {
      prefix = "";
    }, 1500);
  }
});

/** All keys that do something here and now. */
export function KeyHelp() {
  if (!helpOpen.value) return null;
  const close = () => {
    helpOpen.value = false;
  };
  return html`
    <div class="veil" onClick=${close}>
      <section class="panel help" role="dialog" aria-modal="true" aria-label="Keys" onClick=${(event) =>
        event.stopPropagation()}>
        <h2>Keys</h2>
        ${shown.value.map(({ title, keys }) =>
          html`
            <h3>${title}</h3>
            <dl>${Object.entries(keys).map(([key, { does }]) =>
              html`
                <div>
                  <dt>${key.split(" ").map((each) => html`<kbd>${each}</kbd>${" "}`)}</dt>
                  <dd>${does}</dd>
                </div>
              `
            )}</dl>
          `
        )}
        <button onClick=${close}>Close</button>
      </section>
    </div>
  `;
}
