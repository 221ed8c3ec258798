// Tables, pairs of a name and a value, and texts that are folded.
import { html, Text, visible } from "/web/shell.js";

/** A table in a box that keys scroll, too. heads: a list, or a text with commas; one that begins with # is of a column of numbers. rows: lists of
 * cells, or {cells, class, key}. label: what it is of. first: the first cell of each row is its head. box: `scrolls` is low, `wide` as high as its rows.
 * @param {any} shown */
export function Table({ heads = [], rows, label, first = false, box = "scrolls" }) {
  const named = typeof heads === "string" ? heads.split(", ") : heads;
  const kind = (at) => (named[at]?.startsWith("#") ? "number" : null);
  const cell = (text, at) =>
    first && at === 0 ? html`<th scope="row">${text}</th>` : html`<td class=${kind(at)}>${text}</td>`;
  const line = (row) => {
    const { cells, ...rest } = Array.isArray(row) ? { cells: row } : row;
    return html`<tr ...${rest}>${cells.map(cell)}</tr>`;
  };
  const head = (text, at) =>
    text ? html`<th class=${kind(at)}>${visible(text.replace("#", ""))}</th>` : html`<td></td>`;
  return html`
    <div class=${box} tabindex="0" role="group" aria-label=${label}>
      <table>
        ${named.length > 0 && html`
          <thead>
            <tr>${named.map(head)}</tr>
          </thead>
        `}
        <tbody>${rows.map(line)}</tbody></table>
    </div>
  `;
}

/** Whether a value says nothing. */
export const isNothing = (value) =>
  [null, undefined, false, ""].includes(value) || (Array.isArray(value) && !value.length);

/** Names with their values, without those that have none. rows: [name, value] each. */
export const Pairs = ({ rows, class: kind = "pairs" }) =>
  html`<dl class=${kind}>${
    rows.filter(([, value]) => !isNothing(value)).map(([name, value]) =>
      html`
        <div key=${name}>
          <dt>${name}</dt>
          <dd>${value}</dd>
        </div>
      `
    )
  }</dl>`;

/** A text behind its title; nothing where there is none. */
export const Folded = ({ title, text, ...rest }) =>
  text && html`
    <details ...${rest}>
      <summary>${title}</summary>
      <${Text} text=${text} />
    </details>
  `;
