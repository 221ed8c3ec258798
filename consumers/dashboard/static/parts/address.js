// Where a person is: the path names the view, the query holds everything else that it shows. Links are plain links.
import { computed, signal } from "@preact/signals";
import { html } from "/web/shell.js";

const here = signal(location.pathname + location.search);
const url = computed(() => new URL(here.value, location.origin));

/** Name of the view, and what it shows (URLSearchParams). */
export const view = computed(() => url.value.pathname.slice(1) || "overview");
export const params = computed(() => url.value.searchParams);

addEventListener("popstate", () => {
  here.value = location.pathname + location.search;
});

/** The address of a view. values: name -> text, number, list of texts; what is empty is left out. */
export function link(name, values = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "" && each !== false) query.append(key, String(each));
    }
  }
  return `/${name}${query.size ? `?${query}` : ""}`;
}

/** Go to an address of this page; with `replace` the way back does not stop here. */
export function go(address, { replace = false } = {}) {
  if (address === here.value) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  here.value = address;
  if (!replace) scrollTo(0, 0);
}

/** The same view with some of what it shows changed: an empty value takes the name out. */
export function change(values, options = { replace: true }) {
  const next = {};
  for (const key of new Set([...params.value.keys(), ...Object.keys(values)])) {
    next[key] = key in values ? values[key] : params.value.getAll(key);
  }
  go(link(view.value, next), options);
}

/** A link to a view that is followed without a reload; another tab, another button work as everywhere. */
export function Link({ to, values, children, ...rest }) {
  const address = link(to, values);
  const follow = (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) {
      return;
    }
    event.preventDefault();
    go(address);
  };
  return html`<a href=${address} onClick=${follow} ...${rest}>${children}</a>`;
}

/** Names of the views that are there for who is signed in. */
export const openViews = signal(new Set());
export const isOpen = (name) => openViews.value.has(name);

/** A link to a view where there is one, else what it would say. */
export const WayTo = (
  { to, values, children },
) => (isOpen(to) ? html`<${Link} to=${to} values=${values}>${children}<//>` : html`<span>${children}</span>`);
