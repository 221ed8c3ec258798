// Numbers, times and ids as people read them.
import { html, Word } from "/web/shell.js";
import { Link } from "./address.js";

export const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
export const number = (
  value,
  digits = 3,
) => (value === null || value === undefined
  ? "–"
  : Number.isInteger(value)
  ? count(value)
  : value.toLocaleString("en", { maximumFractionDigits: digits }));
export const percent = (
  part,
) => (part === null || part === undefined ? "–" : `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`);

/** Seconds as one unit: 0.4 s, 12 s, 3 min, 5 h, 2 d. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** A moment in microseconds of UTC: how long ago, with the date as its title. */
export function Ago({ us }) {
  if (!us) return "–";
  const moment = new Date(us / 1000);
  return html`<time dateTime=${moment.toISOString()} title=${moment.toISOString()}>${
    span(Math.max(0, (Date.now() - moment.getTime()) / 1000))
  } ago</time>`;
}

/** A long id cut in its middle: ids of one batch differ at their ends. */
export const middle = (id, most = 16) =>
  id.length <= most ? id : `${id.slice(0, Math.floor(most / 3))}…${id.slice(1 - most + Math.floor(most / 3))}`;

/** A task, which is JSON and perhaps cut: its words. */
export function taskWords(task) {
  try {
    const value = JSON.parse(task);
    if (typeof value === "string") return value;
    const words = Object.values(value ?? {}).filter((each) => typeof each === "string");
    return words.join(" · ") || task;
  } catch {
    return task.replace(/^\{?"/, "");
  }
}

/** Ids that lead to their view. */
export const GroupLink = ({ g }) =>
  html`
    <${Link} to="group" values=${{ g }}>
      <${Word}>${g}<//><//>
  `;
export const TrajectoryLink = ({ g, t, c, children }) =>
  html`<${Link} to="trajectory" values=${{ g, t, c }}>${children || html`<${Word}>${t}<//>`}<//>`;

/** Copies a text. Whether that worked: a browser gives its clipboard to secure contexts alone, and over plain http only by the old way. */
async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const field = document.createElement("textarea");
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  field.value = text;
  field.className = "sr-only";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return done;
}

/** Copies a text; the button says that it did, or that it cannot. */
export function Copy({ text, label = "copy" }) {
  const copy = async ({ currentTarget }) => {
    currentTarget.textContent = await toClipboard(text) ? "copied" : "this browser does not let a page copy";
    setTimeout(() => {
      currentTarget.textContent = label;
    }, 1500);
  };
  return html`<button class="copy" onClick=${copy} title=${text.slice(0, 300)}>${label}</button>`;
}

/** A command to type, with a button that copies it. */
export const Command = ({ text }) => html`<p class="command"><code>${text}</code> <${Copy} text=${text} /></p>`;

/** A word for bash: whatever an id holds, the command stays one command, and nothing in it moves the terminal. */
export function quoted(text) {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!/[^\x20-\x7e]/.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  const escape = (
    char,
  ) => (/[\x20-\x26\x28-\x5b\x5d-\x7e\u00a1-\u024f]/.test(char)
    ? char
    : char.codePointAt(0) < 0x10000
    ? `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`
    : `\\U${char.codePointAt(0).toString(16).padStart(8, "0")}`);
  return `$'${Array.from(text, escape).join("")}'`;
}
