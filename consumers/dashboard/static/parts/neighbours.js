// `[` and `]`: the one before and the one behind, within the filter and the order that the explorer had and the address carries on in `f`.
import { html } from "/web/shell.js";
import { go, Link, link, view } from "./address.js";
import { read, useAnswer } from "./answers.js";
import { useKeys } from "./keys.js";
import { concerns } from "./live.js";
import { count } from "./words.js";

const KINDS = { groups: ["g"], trajectories: ["g", "t"], steps: ["g", "t", "c"] };

/** Path of the route. kind: "groups", "trajectories" or "steps"; ids: {g, t, c} as far as the kind has them; f: query string of the explorer. */
export function neighboursPath(kind, ids, f = "") {
  const query = new URLSearchParams(f);
  if (query.get("kind") !== kind) ["sort", "desc"].forEach((name) => query.delete(name)); // a column of another kind
  for (const name of ["g", "t", "c", "cols", "at", "marks"]) query.delete(name);
  query.set("kind", kind);
  for (const name of KINDS[kind]) query.set(name, ids[name] || "");
  return `neighbours?${query}`;
}

/** {previous, next ({g, t, c}, or null), at (from 0, or null: it does not meet the filter any more), count}, {problem}, or null until it is known. `[` and
 * `]` go there, in the view that is open: asked at the press, for in between others came. Without an id, nothing is asked. */
export function useNeighbours(kind, ids, f = "") {
  const path = KINDS[kind].every((name) => ids[name]) ? neighboursPath(kind, ids, f) : null;
  const answer = useAnswer(
    path,
    (update) =>
      concerns(update, kind === "groups" ? "group" : "trajectory", ...KINDS[kind].slice(0, 2).map((name) => ids[name])),
  );
  const to = async (side) => {
    if (!path) return;
    const place = (await read(path).catch(() => answer.data || {}))[side]; // the answer itself says what is wrong
    if (place) go(link(view.value, { ...place, f }));
  };
  useKeys(`Beside it${f ? ", within the filter" : ""}`, {
    "[": { does: "the one before", act: () => void to("previous") },
    "]": { does: "the next one", act: () => void to("next") },
  });
  return answer.problem ? { problem: answer.problem } : answer.data;
}

const valuesOf = (query) => {
  const all = new URLSearchParams(query);
  return Object.fromEntries([...new Set(all.keys())].map((name) => [name, all.getAll(name)]));
};

/** A sign that leads to what stands beside; place: null where nothing does. */
export const Way = ({ to, place, sign, label }) =>
  place
    ? html`<${Link} to=${to} values=${place} aria-label=${label} title=${label}>${sign}<//>`
    : html`<span class="quiet" aria-hidden="true">${sign}</span>`;

/** `‹ 3 of 120 ›`, of what `useNeighbours` gives. */
export function Neighbours({ of, f = "" }) {
  if (!of) return null;
  if (of.problem) return html`<span class="problem" role="alert">${of.problem.message}</span>`;
  const way = (place, sign, label) =>
    html`<${Way} to=${view.value} place=${place && { ...place, f }} sign=${sign} label=${label} />`;
  return html`<nav class="neighbours" aria-label="Beside it">${way(of.previous, "‹", "the one before: [")}
    <${Link} to="explorer" values=${valuesOf(f)} title="the list">${
    of.at === null ? "no longer in the list" : `${count(of.at + 1)} of ${count(of.count)}`
  }<//>
    ${way(of.next, "›", "the next one: ]")}</nav>`;
}
