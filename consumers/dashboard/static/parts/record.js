// One record as it stands on the log: what it says, its bytes, and the ways to have it elsewhere.
import { html, Text, visible, Word } from "/web/shell.js";
import { Awaited, useAnswer } from "./answers.js";
import { Ago, Copy, count } from "./words.js";

const BYTES = 16;

/** Lines of sixteen bytes: place, hex, and what of it is printable. */
export function dump(digits) {
  const lines = [];
  for (let at = 0; at < digits.length; at += 2 * BYTES) {
    const pairs = digits.slice(at, at + 2 * BYTES).match(/../g);
    const plain = pairs.map((
      pair,
    ) => (/[2-6][0-9a-f]|7[0-9a-e]/.test(pair) ? String.fromCharCode(parseInt(pair, 16)) : ".")).join("");
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(3 * BYTES - 1)}  ${plain}`);
  }
  return lines.join("\n");
}

/** place: {topic, partition, offset}, or a captured call {g, t, c}. */
export function RawRecord({ place }) {
  const answer = useAnswer(`record?${new URLSearchParams(place)}`);
  return html`
    <section class="panel record" aria-label="Raw record">
      <h2>Raw record</h2>
      <${Awaited} answer=${answer}>${(data) => html`<${Stored} data=${data} />`}<//></section>
  `;
}

function Stored({ data }) {
  const { copies } = data;
  const row = (name, value) =>
    html`
      <div>
        <dt>${name}</dt>
        <dd>${value}</dd>
      </div>
    `;
  return html`<dl>
      ${row("position", html`<code>${data.topic}[${data.partition}]@${data.offset}</code>`)}
      ${row("written", html`<${Ago} us=${data.timestamp_ms * 1000} />`)}
      ${
    row(
      "key",
      data.key === null
        ? "none"
        : html`<${Word}>${data.key}<//> <small class="quiet">${data.key_hex.slice(0, 160)}</small>`,
    )
  }
      ${
    row(
      "schema",
      data.schema_id === null ? "none" : `${data.schema_id}${data.schema ? `, ${data.schema}` : ", not known here"}`,
    )
  }
      ${row("size", `${count(data.size)} bytes`)}
      ${
    row(
      "headers",
      data.headers.length
        ? data.headers.map(([name, value]) =>
          html`
            <div>
              <${Word}>${name}<//>: ${value === null ? "none" : html`<${Word}>${value}<//>`}</div>
          `
        )
        : "none",
    )
  }
    </dl>
    ${data.problem && html`<p class="problem" role="status">${visible(data.problem)}</p>`}
    <p class="copies"><${Copy} text=${copies.consumer} label="copy console-consumer" />
      ${copies.curl && html`<${Copy} text=${copies.curl} label="copy curl" />`} ${
    copies.pytest && html`<${Copy} text=${copies.pytest} label="copy pytest fixture" />`
  }
      ${data.value && html`<${Copy} text=${JSON.stringify(data.value, null, 1)} label="copy JSON" />`} ${
    data.hex && html`<${Copy} text=${data.hex} label="copy hex" />`
  }</p>
    ${copies.no_curl && html`<p class="quiet">No curl: ${visible(copies.no_curl)}</p>`}
    <details><summary>console-consumer, curl, pytest</summary>${
    [copies.consumer, copies.curl, copies.pytest].filter(Boolean).map((text) =>
      html`<pre class="text" tabindex="0">${text.slice(0, 4000)}${text.length > 4000 && "…"}</pre>`
    )
  }</details>
    ${
    data.value && html`
      <details open>
        <summary>value</summary>
        <div class="mono" tabindex="0">
          <${Text} text=${JSON.stringify(data.value, null, 1)} />
        </div>
      </details>
    `
  }
    ${
    data.hex && html`
      <details>
        <summary>hex${data.size * 2 > data.hex.length && `, the first ${count(data.hex.length / 2)} bytes`}</summary>
        <pre class="hex" tabindex="0">${dump(data.hex)}</pre>
      </details>
    `
  }`;
}
