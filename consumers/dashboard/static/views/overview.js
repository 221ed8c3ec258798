// One run: its curves, what of the pool is its and where that stands, its last batch, who has which version, and what is wrong.
import { html, visible, Word } from "/web/shell.js";
import { change, go, isOpen, Link, link, WayTo } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { Curve } from "../parts/curve.js";
import { GroupDots } from "../parts/dots.js";
import { concerns, useBeat } from "../parts/live.js";
import { Table } from "../parts/table.js";
import { Ago, Command, count, number, span } from "../parts/words.js";

const ALL = "*";
const RUNS_MAX = 8;
const GROUPS_MAX = 16;
/** @type {[string, [string, string][]][]} [title, [[metric, label], …]]: the first is drawn of each run where all are shown. */
const CURVES = [
  ["return", [["reward", "mean"], ["reward_p10", "p10"], ["reward_p90", "p90"]]],
  ["shares", [["zero_variance_share", "groups of equal returns"], ["truncated_share", "replies cut off"]]],
  ["tokens of a reply", [["response_tokens_p50", "p50"], ["response_tokens_p95", "p95"], [
    "response_tokens_mean",
    "mean",
  ]]],
  ["staleness in versions", [["staleness_mean", "mean"], ["staleness_max", "most"]]],
  ["engine and trainer", [["kl_k3", "KL"], ["max_logprob_gap", "largest gap"]]],
  ["seconds of a batch", [["wait_s", "wait"], ["train_s", "train"]]],
];
const METRICS = CURVES.flatMap(([, lines]) => lines.map(([metric]) => metric));

function Overview({ params }) {
  const run = params.get("run") || "";
  const answer = useAnswer(link("overview", { run }).slice(1));
  const log = useAnswer("overview/log");
  const { runs = [], run: newest = null } = answer.data || {};
  const drawn = run === ALL ? runs.slice(0, RUNS_MAX) : run || newest ? [newest || { run }] : [];
  const curves = useCurves(drawn.map((each) => each.run)); // of a run that the address names beside all else, not after it
  useBeat(() => {
    answer.again();
    log.again();
  });
  return html`<${Awaited} answer=${answer}>${(data) =>
    html`
      <${Head} data=${data} all=${run === ALL} />
      <${Alarms} alarms=${[...data.alarms, ...(log.data?.alarms || [])]} problem=${log.problem} />
      ${curves.data && html`<${Curves} runs=${curves.data.runs} />`}
      ${data.run && data.pool.of_all &&
        html`<p class="warn">No call names this run: the numbers below are of all runs.</p>`}
      <${Stations} data=${data} behind=${log.data?.behind} />
      <div class="sided">
        <${LastBatch} run=${data.run} />
        <${LeftOut} data=${data} />
      </div>
      <${Versions} data=${data} />
    `}<//>`;
}

function Head({ data: { run, runs }, all }) {
  if (!runs.length) {
    return html`
      <h1>No run has begun</h1>
      <p class="quiet"><code>claw train --config FILE</code> begins one, <code>claw demo</code> plays a small one.</p>
    `;
  }
  const current = all ? ALL : run.run;
  const names = [...new Set([...runs.map((each) => each.run), ...(all ? [] : [current])])];
  return html`
    <div class="row overview-head">
      <h1>Run <select aria-label="Run" value=${current} onChange=${({ target }) => change({ run: target.value })}>
        <option value=${ALL} selected=${all}>all runs</option>${names.map((name) =>
          html`<option value=${name} selected=${name === current}>${visible(name.slice(0, 60))}</option>`
        )}</select></h1>
      ${!all &&
        html`<p><b>${run.state}</b>${run.batch_s > 0 && ` · a batch takes ${span(run.batch_s)}`}${" "}${
          run.last_batch_us && html`
            · the last one <${Ago} us=${run.last_batch_us} />
          `
        } · started <${Ago} us=${run.started_us} /></p>`}
    </div>
  `;
}

function Alarms({ alarms, problem }) {
  return html`<section class="panel alarms" aria-label="What is wrong" aria-live="polite">
    ${!alarms.length && !problem && html`<p class="good">Nothing is wrong that this page knows of.</p>`}
    ${problem && html`<p class="problem">${problem.message}</p>`}
    <ul class="plain">${
    alarms.map(({ level, what, todo, command, to }) =>
      html`<li class=${level}>
      <b class="alarm-level">${level === "problem" ? "problem" : "note"}</b> <span dir="auto">${
        visible(what.slice(0, 600))
      }</span>
      ${to && html`${" "}<${WayTo} to=${to[0]} values=${to[1]}>show<//>`}
      ${todo && html`${" "}<span class="quiet">${todo}</span>`}${command && html`<${Command} text=${command} />`}
    </li>`
    )
  }</ul></section>`;
}

function useCurves(runs) {
  return useAnswer(
    runs.length && link("runs/curves", { run: runs, metric: METRICS }).slice(1),
    (update) => runs.some((run) => concerns(update, "run", run)),
  );
}

function Curves({ runs }) {
  const [first, ...others] = runs;
  const line = (of, [metric, label], at) => ({
    label,
    run: of.run,
    dashed: at > 0,
    edge: /_p[19]0$/.test(metric),
    points: of.batch.map((batch, n) => [batch, of.metrics[metric][n] ?? null, batch]),
  });
  const open = isOpen("batch") ? ({ series, point }) => go(link("batch", { run: series.run, n: point[2] })) : undefined;
  return html`<section class="panel curves" aria-label="Curves">${
    CURVES.map(([title, lines]) =>
      html`
        <${Curve} key=${title} label=${others.length ? `${title}: ${lines[0][1]}` : title} height=${110} onPoint=${open}
          series=${others.length
            ? runs.map((run) => line(run, [lines[0][0], run.run], 0))
            : lines.map((each, at) => line(first, each, at)).filter(({ points }) =>
              points.some(([, value]) => value !== null)
            )} />
      `
    )
  }</section>`;
}

const Counted = ({ of, children }) =>
  html`<${WayTo} to=${of.to[0]} values=${of.to[1]}><b>${count(of.count)}</b> ${children}<//>`;

function Stations({ data: { pool, run, runs, workers }, behind }) {
  const here = run && { run: run.run };
  const working = workers.filter(({ state, silent }) => state !== "dead" && !silent).length;
  const stations = [
    [
      "Collect",
      html`<${Counted} of=${pool.calls}>calls<//>`,
      `${number(pool.calls_per_minute, 1)} a minute`,
      html`<${Counted} of=${pool.trajectories_open}>played now<//>`,
      behind > 0 && `${count(behind)} facts not folded yet`,
    ],
    [
      "Reward",
      html`<${Counted} of=${pool.trajectories_ready}>ready<//>`,
      html`of <${Counted} of=${pool.trajectories}>trajectories<//>`,
    ],
    ["Curate", html`<${Counted} of=${pool.calls_untrainable}>not trainable<//>`],
    [
      "Batch",
      html`<${Counted} of=${pool.groups_ready}>ready<//>`,
      html`of <${Counted} of=${pool.groups}>groups<//>`,
      run && `${count(run.waiting.groups)} wait`,
    ],
    [
      "Train",
      run
        ? html`<${Counted} of=${{ count: run.batches, to: ["runs", here] }}>batches<//>`
        : html`<${Counted} of=${{ count: runs.length, to: ["runs", {}] }}>${runs.length === 1 ? "run" : "runs"}<//>`,
      run?.batches_per_hour && `${number(run.batches_per_hour, 1)} an hour`,
      run?.planned.batches_waiting > 0 && `${count(run.planned.batches_waiting)} planned, not trained`,
    ],
    ["Weights", run && html`version <b>${run.version ?? "–"}</b>`, `${count(working)} workers`],
  ];
  return html`<ol class="row stations panel" aria-label="The way of the data">${
    stations.map(([title, ...lines]) =>
      html`<li class="row"><h2>${title}</h2>${lines.filter(Boolean).map((line) => html`<span>${line}</span>`)}</li>`
    )
  }</ol>`;
}

function LastBatch({ run }) {
  const n = run?.last_batch ?? null;
  const answer = useAnswer(
    n === null ? null : `batch?${new URLSearchParams({ run: run.run, n, limit: "1" })}`,
    (update) => concerns(update, "run", run?.run),
  );
  return html`<section class="panel"><h2>Last batch</h2>${
    n === null
      ? html`<p class="quiet">${run ? "None was planned yet." : "Choose one run to see it."}</p>`
      : html`<${Awaited} answer=${answer}>${({ tiles, groups, groups_total }) =>
        html`
          <p>
            <${Link} to="batch"
              values=${{ run: run.run, n }}>Batch ${count(n)}<//>: return ${number(
                tiles.return_mean,
              )} ± ${number(tiles.return_deviation)}, ${count(tiles.equal_groups)} of ${count(
                tiles.groups,
              )} groups of equal returns, ${count(tiles.truncated)} replies cut off.</p>
          <${GroupDots} groups=${groups.slice(0, GROUPS_MAX)} total=${groups_total} />
        `}<//>`
  }</section>`;
}

/** Reasons with their numbers: each that the pool has as a filter is a link. */
function LeftOut({ data: { pool, run } }) {
  const plain = (words) => Object.entries(words).slice(0, 12).map(([reason, several]) => ({ reason, count: several }));
  const waiting = (run?.waiting.reasons || []).map(({ kind, reason, groups }) => ({
    reason: kind === "next" ? "complete, in the next batch" : reason,
    count: groups,
  }));
  const some = run && run.waiting.looked_at < run.waiting.groups ? `, of the newest ${run.waiting.looked_at}` : "";
  const lists = [
    ...Object.entries(pool.left_out),
    [`ready groups that wait${some}`, waiting, "lab"],
    ["groups that the run skips", plain(run?.skipped || {}), "runs"],
    ["planned and not trained", plain(run?.planned.left_out || {}), "runs"],
  ].filter(([, reasons]) => reasons.length);
  return html`<section class="panel"><h2>Left out, by reason</h2>
    ${!lists.length && html`<p class="quiet">Nothing is.</p>`}
    <dl class="left-out">${
    lists.map(([title, reasons, view]) =>
      html`
        <div>
          <dt>${title} ${view && html`<${WayTo} to=${view} values=${{ run: run.run }}>which<//>`}</dt>
          <dd>
            <ul class="row plain reasons">${reasons.map(({ reason, count: several, to }) =>
              html`<li><b class="number">${count(several)}</b> <span dir="auto">${
                to
                  ? html`<${WayTo} to=${to[0]} values=${to[1]}>${visible(reason.slice(0, 300))}<//>`
                  : visible(reason.slice(0, 300))
              }</span></li>`
            )}</ul>
          </dd>
        </div>
      `
    )
  }</dl></section>`;
}

function Versions({ data: { run, workers } }) {
  const others = workers.filter((worker) => !run || worker.run !== run.run);
  const chip = ({ worker, silent, state, run: of, version }) =>
    html`<span class="chip"><${Word}>${worker}<//> ${silent ? "silent" : state}${" "}${
      of && of !== run?.run && html`· <${Word}>${of}<//>/${version}`
    }</span>${" "}`;
  const versionRow = ({ version, made_us, batch, reward, published, workers: holders }) => [
    version,
    html`${made_us ? html`<${Ago} us=${made_us} />` : version === 0 ? "at the start" : "–"}${
      !published && html`${" "}<span class="quiet">not published</span>`
    }`,
    batch !== null && html`<${Link} to="batch" values=${{ run: run.run, n: batch }}>batch ${batch}<//>`,
    number(reward),
    html`${workers.filter(({ worker }) => holders.includes(worker)).slice(0, 20).map(chip)}${
      holders.length > 20 && `and ${holders.length - 20} more`
    }`,
  ];
  return html`<section class="panel"><h2>Versions, and who has them</h2>
    ${
    run &&
    html`<${Table} label="Versions" heads="#version, made, by, #reward, workers" rows=${
      run.versions.map(versionRow)
    } />`
  }
    ${
    others.length > 0 &&
    html`<p class="quiet">${run ? "Other workers" : "Workers"}: ${others.slice(0, 20).map(chip)}</p>`
  }
  </section>`;
}

export default { View: Overview };
