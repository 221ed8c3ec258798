// Markdown of agents as nodes: what a person reads, never markup. A link is its text with its address, an image its description; neither
// is followed. Every pattern is bounded, so that no text makes it slow: what is beyond the bounds stands there as it was written.
import { html, Text, visible } from "/web/shell.js";

const CHARACTERS_MAX = 40000;
const PIECES_MAX = 1500;
const DEPTH_MAX = 4;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]{0,40})[^`]{0,200}$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const ITEM = /^( {0,12})(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
/** @type {Array<[RegExp, (match: RegExpExecArray) => any]>} */
const INLINE = [
  [/(`{1,3})([^`\n]{1,2000})\1(?!`)/y, ([, , code]) => html`<code>${visible(code)}</code>`],
  [
    /!\[([^\]\n]{0,300})\]\(([^()\s]{0,500})\)/y,
    ([, text, address]) =>
      html`<span class="address">[image: ${visible(text)} <code>${visible(address)}</code>]</span>`,
  ],
  [
    /\[([^[\]\n]{1,300})\]\(([^()\s]{0,500})(?: "[^"\n]{0,200}")?\)/y,
    ([, text, address]) => html`<span class="address">${visible(text)} <code>${visible(address)}</code></span>`,
  ],
  [/\*\*(?=\S)([^*\n]{1,500})\*\*/y, ([, text]) => html`<strong>${visible(text)}</strong>`],
  [/__(?=\S)([^_\n]{1,500})__(?!\w)/y, ([, text]) => html`<strong>${visible(text)}</strong>`],
  [/\*(?=\S)([^*\n]{1,500})\*(?!\*)/y, ([, text]) => html`<em>${visible(text)}</em>`],
  [/_(?=\S)([^_\n]{1,500})_(?!\w)/y, ([, text]) => html`<em>${visible(text)}</em>`],
  [/~~(?=\S)([^~\n]{1,500})~~/y, ([, text]) => html`<s>${visible(text)}</s>`],
];
const BEGINS = /[`![*_~]/g;

/** Words of one block. count: how many pieces were made so far; past the bound the rest is plain. */
function inline(text, count) {
  const nodes = [];
  let [end, from] = [0, 0];
  while (count.pieces < PIECES_MAX) {
    BEGINS.lastIndex = from;
    const at = BEGINS.exec(text)?.index;
    if (at === undefined) break;
    from = at + 1;
    if (/[_\w]/.test(text[at - 1] || " ") && text[at] === "_") continue; // snake_case
    for (const [pattern, make] of INLINE) {
      pattern.lastIndex = at;
      const match = pattern.exec(text);
      if (!match) continue;
      nodes.push(visible(text.slice(end, at)), make(match));
      end = from = at + match[0].length;
      count.pieces += 1;
      break;
    }
  }
  nodes.push(visible(text.slice(end)));
  return nodes;
}

/** Lines as blocks; deeper than some levels they are text. */
function blocks(lines, count, depth = 0) {
  const nodes = [];
  const own = () => count.pieces < PIECES_MAX && depth < DEPTH_MAX;
  let at = 0;
  const take = (test) => {
    const begin = at;
    while (at < lines.length && test(lines[at], at - begin)) at += 1;
    return lines.slice(begin, at);
  };
  while (at < lines.length) {
    count.pieces += 1;
    const line = lines[at];
    const [fence, heading, item] = own() ? [FENCE.exec(line), HEADING.exec(line), ITEM.exec(line)] : [];
    if (!line.trim()) at += 1;
    else if (!own()) {
      nodes.push(html`<p class="text" dir="auto">${visible(lines.slice(at).join("\n"))}</p>`);
      break;
    } else if (fence) {
      at += 1;
      const code = take((each) => !(each.trim().startsWith(fence[1]) && /^[`~\s]*$/.test(each)));
      at += 1;
      nodes.push(
        html`<pre class="code" dir="auto" tabindex="0" data-language=${fence[2] || null}>${
          visible(code.join("\n"))
        }</pre>`,
      );
    } else if (heading) {
      at += 1;
      nodes.push(
        html`<p class=${`heading level${heading[1].length}`} role="heading" aria-level=${
          Math.min(6, heading[1].length + 2)
        } dir="auto">${inline(heading[2], count)}</p>`,
      );
    } else if (RULE.test(line)) {
      at += 1;
      nodes.push(html`<hr />`);
    } else if (QUOTE.test(line)) {
      nodes.push(
        html`<blockquote>${
          blocks(
            take((each) => QUOTE.test(each)).map((each) => each.replace(QUOTE, "")),
            count,
            depth + 1,
          )
        }</blockquote>`,
      );
    } else if (item) {
      nodes.push(list(take, item, count, depth));
    } else {
      const paragraph = take((each, n) =>
        each.trim() && (n === 0 || !(FENCE.test(each) || HEADING.test(each) || ITEM.test(each) || QUOTE.test(each)))
      );
      nodes.push(html`<p class="text" dir="auto">${inline(paragraph.join("\n"), count)}</p>`);
    }
  }
  return nodes;
}

function list(take, first, count, depth) {
  const indent = first[1].length;
  const lines = take((each, n) => n === 0 || ITEM.test(each) || (each.trim() && /^\s/.test(each)));
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent + 1) items.push([item[3]]);
    else items.at(-1).push(line.slice(Math.min(indent + 2, line.search(/\S/))));
  }
  const rows = items.slice(0, PIECES_MAX).map(([head, ...rest]) => {
    count.pieces += 1;
    return html`<li dir="auto">${inline(head, count)}${rest.length > 0 && blocks(rest, count, depth + 1)}</li>`;
  });
  return first[2] ? html`<ol start=${first[2]}>${rows}</ol>` : html`<ul>${rows}</ul>`;
}

/** A text of an agent, read as Markdown up to 40,000 characters. */
export function Markdown({ text }) {
  const head = text.slice(0, CHARACTERS_MAX);
  return html`<div class="markdown">${blocks(head.split(/\r\n|\n/), { pieces: 0 })}
    ${text.length > head.length && html`<${Text} text=${text.slice(CHARACTERS_MAX)} />`}</div>`;
}
