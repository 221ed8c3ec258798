// Batch lab: a batch spec as text, and at once what it would train now, beside what the run's own does.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html, Word } from "/web/shell.js";
import { change } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { useKeys } from "../parts/keys.js";
import { concerns, onChange } from "../parts/live.js";
import { flow, lineText } from "../parts/spec.js";
import { Table } from "../parts/table.js";
import { Command, Copy, count, GroupLink, number, percent, quoted, TrajectoryLink } from "../parts/words.js";

const TYPING_MS = 300;
const LIVE_MS = 2000;
const LISTED = 40;
const KINDS = {
  waits: "may still come",
  never: "never, for this run",
  foreign: "of another run or for another spec",
  settled: "settled by this run",
};
const SIZES = [
  ["groups", "groups", "chosen for the batch"],
  ["trajectories_trained", "trajectories trained", "the others of their groups count in the baseline"],
  ["responses_trained", "responses trained", ""],
  ["response_tokens", "response tokens", "sampled tokens that are trained"],
  ["rows", "rows", "sequences that are trained; calls that extend each other share one"],
  ["row_tokens", "tokens in rows", ""],
  ["row_tokens_max", "longest row", "tokens"],
  ["tokens_saved", "saved by shared prefixes", "tokens that the calls would take one by one, less what the rows take"],
  ["return_mean", "mean return", "over all members, as baselines are"],
  ["zero_variance_groups", "groups of equal returns", "they teach nothing where the baseline is the group's"],
  ["staleness_max", "staleness", "versions between the oldest sample and the one that is trained"],
];

/** batch: as of this batch of the run; none: now. */
export function Lab({ params, batch }) {
  const [text, run, version] = [params.get("spec"), params.get("run"), params.get("version")];
  const query = new URLSearchParams();
  if (text !== null) query.set("spec", text);
  if (run) query.set("run", run);
  if (batch) query.set("batch", batch);
  else if (version) query.set("version", version);
  const answer = useAnswer(`lab/preview${query.size ? `?${query}` : ""}`, (update) => update === null);
  useLater(answer.again);
  const last = useRef(null);
  if (answer.data) last.current = answer.data;
  const [latest, own] = [answer.data || last.current, last.current?.own?.spec];
  const mistake = answer.problem?.status === 422;
  const current = text === null ? lineText(answer.data?.spec || {}) : text;
  const write = (next) => change({ spec: next === null ? null : next.trim() ? next : "{}" });
  useKeys("Batch lab", {
    0: { does: "the run's own spec", act: () => write(null) },
  });
  return html`
    <div class="row lab-head">
      ${batch
        ? html`
          <p
            class="quiet">What this batch would have been. Groups that were planned from here on are free, what was sampled later is left out; each is judged as its rows are today.</p>
        `
        : html`
          <h1>Batch lab</h1>
          <${Whose} run=${run} version=${version} data=${answer.data} />
          <p
            class="quiet">What the next batch would be. Nothing is written: it is the answer of <code>claw pool batch</code>.</p>
        `}
    </div>
    <div class="sided lab">
      <section class="panel lab-spec" aria-label="Spec">
        <${Spec} text=${current} isOwn=${text === null} own=${own} write=${write}
          problem=${answer.problem} />
      </section>
      <section class=${`lab-batch${answer.data ? "" : " before"}`} aria-label="Batch" aria-busy=${answer.reading}>
        ${(!latest || (answer.problem && !mistake)) && html`<${Awaited} answer=${answer}>${() => null}<//>`}
        ${latest &&
          (latest.preview
            ? html`<${Batch} data=${latest} text=${current} params=${params} />`
            : html`<p class="panel" role="status">${latest.problem}</p>`)}</section>
    </div>
  `;
}

/** Reads again some time after the pool or a run changed: a preview is work for the server, and groups come by the hundred. */
function useLater(again) {
  const latest = useRef(again);
  latest.current = again;
  useEffect(() => {
    let timer = 0;
    const end = onChange((update) => {
      if (timer || update === null || !(concerns(update, "group") || concerns(update, "run"))) return;
      timer = setTimeout(() => {
        timer = 0;
        latest.current();
      }, LIVE_MS);
    });
    return () => {
      clearTimeout(timer);
      end();
    };
  }, []);
}

function Whose({ run, version, data }) {
  const runs = useAnswer("runs?limit=100", (update) => concerns(update, "run"));
  const names = runs.data ? runs.data.runs.map((each) => each.run) : [];
  const current = run || data?.preview?.run_id || "";
  return html`
    <label>Run <select value=${current} onChange=${({ currentTarget }) =>
      change({ run: currentTarget.value, version: null })}>
          ${[...new Set([current, ...names])].map((name) =>
            html`<option value=${name}>${name ? name.slice(0, 80) : "none"}</option>`
          )}</select></label>
    <label>at version <input type="number" min="0" class="lab-version" value=${version ??
      ""} placeholder=${data?.preview ? data.preview.version : ""}
          onChange=${({ currentTarget }) => change({ version: currentTarget.value })} /></label>
  `;
}

function Spec({ text, isOwn, own, write, problem }) {
  const fields = useAnswer("lab/fields");
  return html`
    <div class="row">
      <${Save} text=${text} /><${Copy} text=${text} label="copy YAML" />
      <button onClick=${() => write(null)} disabled=${isOwn || !own} title="0">the run's own</button></div>
    ${problem?.status === 422 && html`<p class="problem lab-problem">${problem.message}</p>`}
    <${TextSpec} text=${text} write=${write} />
    <${Awaited} answer=${fields}>${(data) =>
      html`
        <p class="lab-presets"><span class="quiet">begin with</span> ${Object.keys(data.presets).map((name) =>
          html`
            <button class="chip" onClick=${() => write(`preset: ${name}\n`)}>${name}</button>${" "}
          `
        )}</p>
        <${Fields} knobs=${data.knobs} />
      `}<//>
  `;
}

function Save({ text }) {
  const save = () => {
    const url = URL.createObjectURL(new Blob([text], { type: "application/yaml" }));
    const anchor = document.createElement("a");
    Object.assign(anchor, { href: url, download: "spec.yaml" });
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };
  return html`<button onClick=${save}>save spec.yaml</button>`;
}

/** A value that is being typed: what the address says follows after a pause. [value, onInput, onBlur] */
function useTyping(value, write) {
  const [draft, setDraft] = useState(null);
  const timer = useRef(0);
  const latest = useRef(write);
  latest.current = write;
  useEffect(() => () => clearTimeout(timer.current), []);
  const typed = ({ currentTarget }) => {
    const next = currentTarget.value;
    setDraft(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => latest.current(next), TYPING_MS);
  };
  return [draft ?? value, typed, () => {
    if (draft !== null) {
      clearTimeout(timer.current);
      latest.current(draft);
      setDraft(null);
    }
  }];
}

function TextSpec({ text, write }) {
  const [value, typed, left] = useTyping(text, write);
  return html`
    <textarea class="mono lab-text" aria-label="Batch spec, YAML" spellcheck=${false} rows="14" value=${value}
      onInput=${typed} onBlur=${left}></textarea>
  `;
}

function Fields({ knobs }) {
  return html`
    <details class="lab-fields">
      <summary>fields</summary>
      <dl>${knobs.map(({ name, does, takes, default: standard }) =>
        html`
          <dt class="mono">${name} <span class="quiet">${takes}; ${flow(standard)}</span></dt>
          <dd>${does}</dd>
        `
      )}</dl>
    </details>
  `;
}

function Batch({ data, text, params }) {
  const now = data.preview;
  const before = data.own && params.has("spec") ? data.own.preview : null;
  const groups = now.groups_wanted;
  const state = now.complete ? "a whole batch" : `${count(groups - now.groups)} more to wait for`;
  const full = now.complete && now.groups < groups ? ", full by response_tokens_max or by what a plan holds" : "";
  return html`
    <div class="panel">
      <h2>${count(now.groups)} of ${count(groups)} groups, <span class=${now.complete
        ? "good"
        : "bad"}>${state}${full}</span></h2>
      <p class="quiet">run <${Word}>${now.run_id || "–"}<//> at version ${count(now.version)}, ${now.algorithm}</p>
      ${now.warnings.map((warning) => html`<p class="warn">${warning}</p>`)}
      ${now.not_looked_at > 0 &&
        html`<p class="warn" role="status">${count(now.not_looked_at)} groups were not looked at: ${
          count(data.trajectories_max)
        } trajectories are, in the spec's order.
        ${
          now.complete
            ? " The batch is whole, so they would not change it."
            : " They may fill the batch: claw pool batch looks at all."
        }</p>`}
      <${Sizes} now=${now} before=${before} /></div>
    ${data.differences && before && html`<${Differences} differences=${data.differences} />`}
    <${Rows} data=${data} />
    <${LeftOut} now=${now} />
    <${Commands} now=${now} spec=${data.spec} text=${text} isOwn=${!params.has("spec")} />
  `;
}

function Sizes({ now, before }) {
  const alone = now.tokens_saved + now.row_tokens;
  const share = (
    side,
  ) => (side.tokens_saved + side.row_tokens
    ? ` (${percent(side.tokens_saved / (side.tokens_saved + side.row_tokens))})`
    : "");
  const cell = (side, name) =>
    `${number(side[name])}${name === "tokens_saved" ? share(side) : ""}${
      name === "trajectories_trained" ? ` of ${count(side.trajectories)}` : ""
    }`;
  const difference = (name) => (now[name] ?? 0) - (before[name] ?? 0);
  const words = (label, list) =>
    Object.keys(list).length > 0 &&
    html`<p>${label}: ${
      Object.entries(list).map(([word, times]) =>
        html`<span class="chip">${count(times)} <${Word}>${word}<//></span>${" "}`
      )
    }</p>`;
  const row = ([name, label, title]) => {
    const more = before ? difference(name) : 0;
    const beside = before ? [cell(before, name), `${more > 0 ? "+" : ""}${number(more)}`] : [];
    return {
      class: more ? "differs" : "",
      cells: [html`<span title=${title}>${label}</span>`, cell(now, name), ...beside],
    };
  };
  return html`
    <${Table} first box="lab-sizes" label="Sizes" rows=${SIZES.map(row)}
      heads=${before ? ", #this spec, #the run's own, #difference" : ", #the run's next"} />
        ${alone > 0 && html`
          <div class="lab-saved" role="img" aria-label=${`${count(now.row_tokens)} of ${
            count(alone)
          } tokens are in rows, the others are shared prefixes`}
            style=${{
              background: `linear-gradient(90deg, var(--accent) ${(100 * now.row_tokens) / alone}%, var(--mark) 0)`,
            }}></div>
        `}
        ${words("in the baseline only", now.baseline_only)}${words("not counted", now.dropped)}${words(
          "responses masked",
          now.masked,
        )}
  `;
}

function Differences({ differences: { groups, total } }) {
  const word = (reason) => (reason === null ? html`<b class="good">in the batch</b>` : html`<${Word}>${reason}<//>`);
  return html`<div class="panel"><h2>What differs from the run's own spec</h2>
    ${
    total === 0 ? html`<p class="quiet">No group: both say the same of each.</p>` : html`
      <${Table} label="groups that differ" heads="group, the run's own, this spec" rows=${groups.map((
        row,
      ) => [html`<${GroupLink} g=${row.group_id} />`, word(row.own), word(row.this)])} />
            ${total > groups.length && html`<p class="quiet">${count(total - groups.length)} more groups differ.</p>`}
    `
  }</div>`;
}

/** A row as one element: where it is said before, context, trained. */
function barOf(row, longest) {
  const at = (token) => `${((100 * token) / longest).toFixed(3)}%`;
  const stops = [];
  const paint = (colour, start, end) => {
    if (end > start) stops.push(`${colour} ${at(start)} ${at(end)}`);
  };
  let place = 0;
  const context = (end) => {
    paint("var(--mark)", place, Math.min(end, row.shared));
    paint("var(--line)", Math.max(place, row.shared), end);
  };
  for (const [start, end] of row.trained) {
    context(start);
    paint("var(--accent)", start, end);
    place = end;
  }
  context(row.tokens);
  stops.push(`transparent ${at(row.tokens)}`);
  return { background: `linear-gradient(90deg, ${stops.join(", ")})` };
}

function Rows({ data: { rows, preview } }) {
  const longest = Math.max(1, ...rows.map((row) => row.tokens));
  const groups = useMemo(() => Map.groupBy(rows, (row) => row.group_id), [rows]);
  if (!rows.length) return null;
  const shared = rows.reduce((sum, row) => sum + row.shared, 0);
  const tokens = rows.reduce((sum, row) => sum + row.tokens, 0);
  return html`<div class="panel"><h2>Rows</h2>
    <p class="row legend"><span><i class="trained"></i>trained</span><span><i class="context"></i>context</span><span><i class="shared"></i>begins like an earlier row of its group</span>
      <span class="quiet">as a tree, ${count(shared)} of the ${
    count(tokens)
  } tokens need not be computed again</span></p>
    ${
    [...groups].map(([group, own]) =>
      html`<section><h3><${GroupLink} g=${group} /></h3>${
        own.map((row) => {
          const branch = row.shared_with_own > 0;
          const said = `${count(row.tokens)} tokens, ${count(row.tokens_trained)} trained in ${row.calls.length} ${
            row.calls.length === 1 ? "call" : "calls"
          }${row.shared ? `, begins like an earlier row for ${count(row.shared)}` : ""}`;
          return html`
            <div
              class=${`lab-row${branch ? " branch" : ""}`}><span class="cut lab-row-name">${branch &&
                html`<span title="a branch of the row above">└ </span>`}<${TrajectoryLink} g=${row.group_id} t=${row
                .trajectory_id} c=${row.calls[0]} /></span>
                    <span class="number">${number(
                      row.return,
                    )}</span><span class="lab-bar" role="img" aria-label=${said} title=${said} style=${barOf(
                      row,
                      longest,
                    )}></span></div>
          `;
        })
      }</section>`
    )
  }
    ${
    preview.rows > rows.length &&
    html`<p class="quiet">${count(preview.rows - rows.length)} more rows are not drawn.</p>`
  }</div>`;
}

function LeftOut({ now }) {
  const groups = useMemo(() => Map.groupBy(Object.entries(now.left_out), ([, reason]) => reason), [now]);
  const kinds = Object.entries(now.reasons);
  return html`<div class="panel"><h2>Left out</h2>${kinds.length === 0 && html`<p class="quiet">No group is.</p>`}
    ${
    kinds.map(([kind, reasons]) =>
      html`<h3>${KINDS[kind]}</h3>${
        Object.entries(reasons).slice(0, LISTED).map(([reason, times]) => {
          const listed = (groups.get(reason) || []).slice(0, LISTED);
          return html`
            <details class="lab-reason">
              <summary><b class="number">${count(times)}</b> <${Word}>${reason}<//></summary>
                    <p>${listed.map(([group]) => html`<${GroupLink} g=${group} />${" "}`)}${times > listed.length &&
                      html`<span class="quiet">and ${count(times - listed.length)} more</span>`}</p></details>
          `;
        })
      }`
    )
  }</div>`;
}

function Commands({ now, spec, text, isOwn }) {
  const run = now.run_id ? ` --run ${quoted(now.run_id)} --version ${now.version}` : "";
  return html`
    <div class="panel">
      <h2>To type</h2>
      <p
        class="quiet">With the text saved as <code>spec.yaml</code>; <code>train.yaml</code> holds the run's other settings, and fields of its own <code>spec</code> that are not set here count on.</p>
      <${Command} text=${`claw pool batch${isOwn ? "" : " --spec spec.yaml"}${run}`} />
      <${Command} text=${`claw train --config train.yaml --set ${quoted(`spec=${JSON.stringify(spec)}`)}`} />
      <${Command} text="claw export --spec spec.yaml --out dataset" />
      <details>
        <summary class="quiet">spec.yaml</summary>
        <pre class="mono lab-file">${text}</pre>
      </details>
    </div>
  `;
}

export default { View: Lab };
