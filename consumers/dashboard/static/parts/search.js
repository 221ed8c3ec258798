// One box that takes an id of any kind, or a piece of text, and opens what it names.
import { useEffect, useRef, useState } from "preact/hooks";
import { html, Word } from "/web/shell.js";
import { go, isOpen, Link, link, params, view } from "./address.js";
import { read } from "./answers.js";
import { useKeys } from "./keys.js";
import { middle } from "./words.js";

export function SearchBox() {
  const [text, setText] = useState("");
  const [hits, setHits] = useState(null);
  const field = useRef(null);
  const close = () => setHits(null);
  useEffect(close, [view.value, params.value]);
  useKeys("Search", { "/": { does: "an id of any kind, or a piece of text", act: () => field.current.focus() } });
  const inText = () => ["explorer", { text: text.trim() }];
  const open = async (event) => {
    event.preventDefault();
    const name = text.trim();
    if (!name) return;
    try {
      const { views } = await read(`named?${new URLSearchParams({ q: name })}`);
      const seen = views.filter((each) => isOpen(each.view));
      if (seen.length > 1) return setHits(seen);
      field.current.blur();
      go(seen.length ? link(seen[0].view, seen[0].values) : link(...inText()));
    } catch (problem) {
      setHits(problem);
    }
    return undefined;
  };
  return html`<form class="search-box" role="search" onSubmit=${open} onKeyDown=${(event) =>
    event.key === "Escape" && close()}>
    <input type="search" ref=${field} value=${text} aria-label="An id of any kind, or text" placeholder="id or text  /"
      maxlength="1000" onInput=${({ target }) => {
    setText(target.value);
    close();
  }} />
    ${hits?.message && html`<p class="hits problem" role="alert">${hits.message}</p>`}
    ${
    Array.isArray(hits) && html`
      <ul class="hits"
        aria-label="What it names">${hits.map(({ kind, view: to, values }) =>
          html`
            <li>
              <${Link} to=${to} values=${values}>${kind} <${Word}>${Object.values(values).map((each) =>
                middle(String(each), 30)
              ).join(" / ")}<//><//></li>
          `
        )}<li><${Link} to="explorer" values=${inText()[1]}>as text in the explorer<//></li></ul>
    `
  }
  </form>`;
}
