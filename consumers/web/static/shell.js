// What all our pages share: requests, sign-in, theme, and how text of agents is shown. No build step: this is what runs.
import { h } from "preact";
import { useState } from "preact/hooks";
import { signal } from "@preact/signals";
import htm from "htm";

export const html = htm.bind(h);

/** Who is signed in (`SignedIn` of the API), or null: a key is needed. undefined: not known yet. */
export const session = signal(undefined);

/** An answer that is none: its message is a sentence for a person. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** A request to our API. Throws Problem. */
export async function api(method, path, body) {
  const headers = session.value ? { "x-page-token": session.value.token } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(`/api/v1/${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, "the page's server does not answer: does it still run?");
  }
  const answer = response.status === 204 ? null : await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw new Problem(response.status, answer.detail || `the server answered ${response.status}`);
}

/** As `api`; where the session is another one now (a server that was started again, another tab), it takes
 * that, once. Never under another name: without keys it signs in again as the same person, with keys it asks for the person's own doing. */
export async function ask(method, path, body) {
  try {
    return await api(method, path, body);
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    await (renewal ??= renewed(problem).finally(() => {
      renewal = null;
    }));
    return api(method, path, body);
  }
}

/** One for all questions of this tab that were refused at once: each session has a token of its own. */
let renewal = null;
async function renewed(problem) {
  const before = session.value?.who;
  let now = await signedIn();
  if (now && !now.keys && before && now.who !== before) now = await api("POST", "session", { who: before });
  session.value = now;
  if (!now) throw problem;
  if (before && now.who !== before) {
    throw new Problem(401, `${now.who} is signed in now, not ${before}: nothing was said`);
  }
}

async function signedIn() {
  try {
    return await api("GET", "session");
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    return null;
  }
}

export async function loadSession() {
  session.value = await signedIn();
}

const THEMES = ["system", "light", "dark"];
export const theme = signal(THEMES.includes(localStorage.theme) ? localStorage.theme : "system");
theme.subscribe((name) => {
  document.documentElement.dataset.theme = name;
  localStorage.theme = name;
});
export const nextTheme = () => {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
};

// Control characters but line break and tab, all that changes direction, what has no width, tags, half surrogates. Joiners
// stay between letters that need them. A run of one character is one mark.
const HIDDEN = new RegExp(
  "([\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\ufff9-\\ufffb" +
    "\\u{e0000}-\\u{e0fff}\\ud800-\\udfff]|(?<=[\\x00-\\x7f]|^)[\\u200c\\u200d]|[\\u200c\\u200d](?=[\\x00-\\x7f]|$))\\1*",
  "gu",
);
const MARKS_MAX = 500;

/** Text as nodes: what a reader would not see stands there by its number, and changes nothing. */
export function visible(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (nodes.length > 2 * MARKS_MAX) break;
    nodes.push(text.slice(end, match.index));
    const point = match[1].codePointAt(0);
    const count = match[0].length / match[1].length;
    const name = `U+${point.toString(16).toUpperCase().padStart(4, "0")}${count > 1 ? `×${count}` : ""}`;
    nodes.push(html`<span class="hidden-character" title="a character that is not seen">${name}</span>`);
    end = match.index + match[0].length;
  }
  nodes.push(end && nodes.length > 2 * MARKS_MAX ? text.slice(end).replace(HIDDEN, "\ufffd") : text.slice(end));
  return nodes;
}

export const FIRST = 4000;
export const MORE = 40000;

/** A text of an agent in its own direction, bounded. parts: [[text, differs]] instead of one text. */
export function Text({ text, parts }) {
  const [limit, setLimit] = useState(FIRST);
  const pieces = parts || [[text, false]];
  const total = pieces.reduce((sum, [piece]) => sum + piece.length, 0);
  const nodes = [];
  let left = limit;
  for (const [piece, differs] of pieces) {
    if (left <= 0) break;
    const shown = visible(piece.slice(0, left));
    left -= piece.length;
    nodes.push(differs ? html`<mark>${shown}</mark>` : shown);
  }
  const rest = total - limit;
  const more = rest > 0 && html`<button class="more" onClick=${() => setLimit(limit + MORE)}>
    show ${rest <= MORE ? "all" : "more"} (${rest.toLocaleString("en")} more characters)</button>`;
  return html`<div class="text" dir="auto">${nodes}</div>${more}`;
}

/** A short word of somebody else: an id, a tag, a name. */
export const Word = ({ children }) => {
  const text = String(children);
  return html`<bdi class="word" title=${text.length > 80 ? "a long word, cut" : null}>${visible(text.slice(0, 80))}${
    text.length > 80 && "…"
  }</bdi>`;
};

/** A form for a key. */
export function SignIn({ title }) {
  const [key, setKey] = useState("");
  const [reason, setReason] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    try {
      session.value = await api("POST", "session", { key });
    } catch (problem) {
      setReason(problem.message);
    }
  };
  return html`<form class="sign-in" onSubmit=${submit}>
    <h1>${title}</h1>
    <label>Key <input type="password" autocomplete="off" value=${key} onInput=${(event) =>
    setKey(event.target.value)} /></label>
    <button class="primary">Sign in</button>
    <p class="quiet">A key of role annotator: <code>claw keys create NAME --role annotator</code></p>
    ${reason && html`<p class="problem" role="alert">${reason}</p>`}
  </form>`;
}
