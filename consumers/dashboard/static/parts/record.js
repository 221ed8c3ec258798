// One record as it stands on the log: where, what it says, and the command that prints it.
import { html, Text, visible, Word } from "/web/shell.js";
import { Awaited, useAnswer } from "./answers.js";
import { Pairs } from "./table.js";
import { Ago, Command, Copy, count } from "./words.js";

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
  const word = (text) => (text === null ? "none" : html`<${Word}>${text}<//>`);
  const json = data.value && JSON.stringify(data.value, null, 1);
  const rows = [
    ["position", html`<code>${data.topic}[${data.partition}]@${data.offset}</code>`],
    ["written", html`<${Ago} us=${data.timestamp_ms * 1000} />`],
    ["key", word(data.key)],
    ["schema", data.schema_id === null ? "none" : `${data.schema_id}, ${data.schema || "not known here"}`],
    ["size", `${count(data.size)} bytes`],
    ...data.headers.map(([name, value]) => ["header", html`<${Word}>${name}<//>: ${word(value)}`]),
  ];
  return html`<${Pairs} rows=${rows} />
    ${data.problem && html`<p class="problem" role="status">${visible(data.problem)}</p>`}
    <${Command} text=${data.consumer} />
    ${
    json && html`
      <p>
        <${Copy} text=${json} label="copy JSON" />
      </p>
      <div class="mono" tabindex="0">
        <${Text} text=${json} />
      </div>
    `
  }`;
}
