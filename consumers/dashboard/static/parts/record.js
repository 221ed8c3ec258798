// One record as it stands on the log: where, what it says, and the command that prints it.
import { html, Text, visible, Word } from "/web/shell.js";
import { Awaited, useAnswer } from "./answers.js";
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
      ${row("key", data.key === null ? "none" : html`<${Word}>${data.key}<//>`)}
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
    <${Command} text=${data.consumer} />
    ${
    data.value && html`
      <p>
        <${Copy} text=${JSON.stringify(data.value, null, 1)} label="copy JSON" />
      </p>
      <div class="mono" tabindex="0">
        <${Text} text=${JSON.stringify(data.value, null, 1)} />
      </div>
    `
  }`;
}
