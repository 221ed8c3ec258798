// How the system is run: who reads what and how far behind, topics, workers, dead letters and their way back.
import { useState } from "preact/hooks";
import { ask, html, session, visible, Word } from "/web/shell.js";
import { change, Link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { useBeat } from "../parts/live.js";
import { Spark } from "../parts/spark.js";
import { Table } from "../parts/table.js";
import { Command, count, number, percent, span } from "../parts/words.js";

const TABS = {
  processes: ["Processes", Processes],
  topics: ["Topics", Topics],
  letters: ["Dead letters", Letters],
};

function Operations({ params: shown }) {
  const tab = TABS[shown.get("tab")] ? shown.get("tab") : "processes";
  const View = TABS[tab][1];
  return html`
    <h1 class="sr-only">Operations</h1>
    <nav class="row tabs" aria-label="Operations">${Object.entries(TABS).map(([name, [title]]) =>
      html`<${Link} to="operations" values=${{ tab: name }} aria-current=${name === tab ? "page" : null}>${title}<//>`
    )}</nav>
    <section class="panel" aria-label=${TABS[tab][0]}>
      <${View} key=${tab} shown=${shown} />
    </section>
  `;
}

/** An answer that is asked for again all the time: what it tells changes without an event. */
function useBeating(path) {
  const answer = useAnswer(path);
  useBeat(answer.again);
  return answer;
}

/** Of a worker: its calls, its cache, the share of its time with a call in it, what the last change of weights took. */
function workIn({ worker }) {
  if (!worker) return "";
  const { serving = 0, idle = 0, paused = 0 } = worker.seconds;
  const sync = Object.entries(worker.sync_ms).map(([phase, ms]) => `${phase} ${number(ms, 0)} ms`).join(", ");
  return `${count(worker.in_flight)} calls, KV cache ${percent(worker.kv_usage)}, busy ${
    percent(serving / (serving + idle + paused || 1))
  }${sync && `, last sync: ${sync}`}`;
}

function processRow(of) {
  const when = of.caught_up_s === 0 ? "now" : of.caught_up_s ? `in ${span(of.caught_up_s)}` : "not at this rate";
  const name = html`<${Word}>${of.name}<//>`;
  return [
    of.kind,
    of.places
      ? html`
        <details>
          <summary>${name}</summary>
          <${Partitions} places=${of.places} />
        </details>
      `
      : name,
    html`<span class=${of.alarm ? "bad" : ""}>${of.state}</span>`,
    of.version ?? "–",
    number(of.rate_per_s, 1),
    of.lag === undefined ? "–" : html`<span class=${of.lag ? "warn" : ""}>${count(of.lag)}</span>`,
    of.places &&
    html`<${Spark} points=${of.curve} low=${0} label=${`lag over ${span(of.curve.length * 10)}, now ${
      count(of.lag)
    }`} />`,
    of.places ? (of.curve.length > 1 || !of.lag ? when : "not known yet") : "–",
    html`<span class="quiet">${visible([of.why, workIn(of)].filter(Boolean).join("; ").slice(0, 400))}</span>`,
  ];
}

const Partitions = ({ places }) =>
  html`<${Table} box="" label="Partitions" heads="topic, #partition, #goes on at, #end, #behind" rows=${
    places.slice(0, 500).map(({ topic, partition, offset, end, behind }) => [
      topic,
      partition,
      offset === null ? "never" : count(offset),
      count(end),
      count(behind),
    ])
  } />`;

const PROCESS =
  "what, name: press for partitions, state, version, #records/s, #behind, the last 15 min, caught up, why";

function Processes() {
  return html`<${Awaited} answer=${useBeating("operations/processes")}>${({ processes, letters }) =>
    html`
      ${letters !== 0 && html`
        <p>
          <${Link} class="warn" to="operations" values=${{ tab: "letters" }}>${letters === null
            ? "very many"
            : count(letters)} dead letters wait<//></p>
      `}${!processes.some(({ kind }) => kind === "streams") &&
        html`
          <p class="problem">No stream processor has read these topics yet: nothing gets into the pool.</p>
          <${Command} text="claw streams" />
        `}<${Table} box="wide" label="Processes" heads=${PROCESS} rows=${processes.map((of) => ({
          key: `${of.kind} ${of.name}`,
          cells: processRow(of),
        }))} />
    `}<//>`;
}

function topicRow({ topic, policy, partitions, replication, records, doc, offsets }) {
  const of = `${partitions} partitions, ${replication} replica${replication === 1 ? "" : "s"}`;
  return [
    html`
      <details>
        <summary>${topic}</summary>
        <p class="quiet">${of}; offsets by partition, from the first that retention left to the end:</p>
        <ol start="0" class="offsets">${offsets.map(([begin, end]) =>
          html`<li class="number">${count(begin)}–${count(end)}</li>`
        )}</ol>
      </details>
    `,
    policy,
    count(records),
    html`<span class="quiet">${doc}</span>`,
  ];
}

function Topics() {
  return html`<${Awaited} answer=${useBeating("operations/topics")}>${({ topics, missing }) =>
    html`
      ${missing.length > 0 && html`
        <p class="problem">The broker lacks ${missing.join(", ")}.</p>
        <${Command} text="claw topics create" />
      `}
      <${Table} box="wide" label="Topics" heads=${["topic", "policy", "#records, at most", "what"]}
        rows=${topics.map(topicRow)} />
    `}<//>`;
}

const PAGE = 100;

function Letters({ shown }) {
  const [all, reason, offset] = [shown.get("all") || "", shown.get("reason") || "", Number(shown.get("offset")) || 0];
  const query = new URLSearchParams({
    limit: String(PAGE),
    offset: String(offset),
    ...(all && { all: "true" }),
    ...(reason && { reason }),
  });
  const answer = useAnswer(`operations/letters?${query}`);
  return html`
    <div
      class="row"><label><input type="checkbox" checked=${Boolean(all)} onChange=${({ target }) =>
        change({ all: target.checked ? "1" : "", offset: "" })} /> those that were redriven, too</label>
          <button onClick=${answer.again}>read again</button></div>
    <${Awaited} answer=${answer}>${(data) =>
      html`<${LetterList} key=${query.toString()} data=${data} reason=${reason} offset=${offset} all=${all} again=${answer.again} />`}<//>
  `;
}

function LetterList({ data, reason, offset, all, again }) {
  const { letters, total, reasons } = data;
  const [chosen, setChosen] = useState(new Set());
  const [plan, setPlan] = useState(null);
  const [problem, setProblem] = useState("");
  const may = session.value?.role === "operator";
  const toggle = (id) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
    setPlan(null);
  };
  const redrive = async (ids, dry) => {
    try {
      const answer = await ask("POST", "operations/redrive", { ids, dry_run: dry });
      setProblem("");
      setPlan(answer);
      if (!dry) {
        setChosen(new Set());
        again();
      }
    } catch (refusal) {
      setProblem(refusal.message);
    }
  };
  if (!data.all) return html`<p>There are no dead letters: every record could be read and folded.</p>`;
  return html`
    <p>${Object.entries(reasons).map(([name, several]) =>
      html`
        <${Link} class="chip" to="operations" values=${{
          tab: "letters",
          all,
          reason: name === reason ? "" : name,
        }} aria-current=${name === reason ? "true" : null}>
          <${Word}>${name || "unknown"}<//> ${count(several)}<//>${" "}
      `
    )}</p>
    ${!total && html`<p>${all ? "None of this reason." : "All were redriven or dismissed."}</p>`}
    ${may && total > 0 &&
      html`<div class="row"><button disabled=${!chosen.size} onClick=${() =>
        redrive([...chosen], true)}>Try to redrive ${chosen.size} (dry run)</button>
      <button onClick=${() => {
        setChosen(new Set(letters.map(({ id }) => id)));
        setPlan(null);
      }}>choose all ${letters.length} here</button></div>`}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${plan && html`<${Plan} plan=${plan} act=${() => redrive(plan.would_redrive, false)} />`}
    <ul class="plain letters">${letters.map((letter) =>
      html`<li key=${letter.id}>
      ${
        may &&
        html`<input type="checkbox" aria-label=${`choose ${letter.id}`} checked=${
          chosen.has(letter.id)
        } onChange=${() => toggle(letter.id)} />`
      }
      <${Letter} letter=${letter} /></li>`
    )}</ul>
    ${total > PAGE && html`<p>${count(offset + 1)}–${count(offset + letters.length)} of ${count(total)}
      <button disabled=${!offset} onClick=${() => change({ offset: Math.max(0, offset - PAGE) || "" })}>newer</button>
      <button disabled=${offset + PAGE >= total} onClick=${() => change({ offset: offset + PAGE })}>older</button></p>`}
  `;
}

function Letter({ letter }) {
  const [open, setOpen] = useState(false);
  const answer = useAnswer(open ? `operations/letter?id=${encodeURIComponent(letter.id)}` : null);
  const { source } = letter;
  return html`
    <details onToggle=${({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary><code>${letter.id}</code> <b><${Word}>${letter.reason}<//></b>
          ${source
            ? html`<code><${Word}>${source.topic}<//>[${source.partition}]@${source.offset}</code>`
            : "source unknown"} <span class="quiet">${visible(letter.failed_at.slice(0, 40))}</span>
          <span dir="auto" class="letter-error">${visible(letter.error.slice(0, 300))}</span></summary>
        ${open &&
          html`<${Awaited} answer=${answer}>${(whole) =>
            html`<p class="quiet">read by <${Word}>${whole.reader}<//>, key <${Word}>${String(whole.key)}<//>, ${
              count(whole.bytes)
            } bytes</p>
      <pre dir="auto" tabindex="0">${
              visible(whole.problem || JSON.stringify(whole.value, null, 1).slice(0, 6000))
            }</pre><pre tabindex="0">${whole.hex.slice(0, 2048)}</pre>`}<//>`}</details>
  `;
}

const Ids = ({ ids }) =>
  html`<code>${ids.slice(0, 50).join(" ")}${ids.length > 50 && ` and ${ids.length - 50} more`}</code>`;

function Plan({ plan, act }) {
  const refused = Object.entries(plan.refused);
  return html`<div class="plan" role="status">
    ${plan.redriven.length > 0 && html`<p class="good">Redriven: <${Ids} ids=${plan.redriven} /></p>`}
    ${
    plan.would_redrive.length > 0 && html`
      <p>Would be appended to their fact topic again: <${Ids} ids=${plan.would_redrive} /></p>
      <button class="primary" onClick=${act}>Redrive ${plan.would_redrive.length}</button>
    `
  }
    ${plan.already.length > 0 && html`<p class="quiet">Redriven before: <${Ids} ids=${plan.already} /></p>`}
    ${
    refused.slice(0, 50).map(([id, why]) =>
      html`<p class="problem"><code>${id}</code> cannot be: ${visible(why.slice(0, 300))}</p>`
    )
  }</div>`;
}

export default { View: Operations };
