// Runs: the curves of every metric, several runs overlaid; a point opens its batch; lineage from a call to the weights and on.
import { useMemo, useState } from "preact/hooks";
import { html, Word } from "/web/shell.js";
import { change, go, Link, link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { Curve } from "../parts/curve.js";
import { useKeys } from "../parts/keys.js";
import { Lineage } from "../parts/lineage.js";
import { concerns } from "../parts/live.js";
import { Table } from "../parts/table.js";
import { Ago, Command, count, GroupLink, number, quoted, span } from "../parts/words.js";

const RUNS_MAX = 8;
const PAGE = 100;
const AXES = { batch: "batch", version: "version", tokens: "trained tokens", time: "time" };
const FIRST = [
  "reward",
  "zero_variance_share",
  "staleness_mean",
  "entropy",
  "kl_k3",
  "clip_share",
  "ess",
  "grad_norm",
  "trained_tokens",
  "wait_s",
  "train_s",
];

function View({ params }) {
  const list = useAnswer("runs?limit=200", (update) => concerns(update, "run"));
  const named = params.getAll("run");
  const names = named.length ? named.slice(0, RUNS_MAX) : (list.data?.runs || []).slice(0, 1).map(({ run }) => run);
  const lineage = params.get("lineage");
  return html`
    <div class="row">
      <h1>Runs</h1>
      <${Ask} value=${lineage || ""} />
    </div>
        ${lineage
          ? html`<${Lineage} id=${lineage} />`
          : html`<${Awaited} answer=${list}>${(data) =>
            data.runs.length === 0
              ? html`
                <p
                  class="panel">No run has written to this log yet. <code>claw demo</code> plays a small one, <code>claw train --config train.yaml</code> starts one.</p>
              `
              : html`<${Chosen} data=${data} names=${names} params=${params} />`}<//>`}
  `;
}

function Ask({ value }) {
  const submit = (event) => {
    event.preventDefault();
    const id = new FormData(event.currentTarget).get("id");
    go(link("runs", { lineage: String(id).trim() }));
  };
  return html`
    <form class="row runs-ask"
      onSubmit=${submit}><label>Lineage of <input name="id" value=${value} placeholder="call, trajectory, group or RUN/VERSION" /></label><button>Show</button></form>
  `;
}

function Chosen({ data, names, params }) {
  useKeys("Runs", {
    x: {
      does: "next x axis",
      act: () => {
        const all = Object.keys(AXES);
        change({ x: all[(all.indexOf(params.get("x") || "batch") + 1) % all.length] });
      },
    },
  });
  const toggle = (run) =>
    change({
      run: names.includes(run) ? names.filter((each) => each !== run) : [...names, run],
    });
  const box = (run) =>
    html`<input type="checkbox" aria-label=${`draw ${run}`} checked=${names.includes(run)} disabled=${
      !names.includes(run) && names.length >= RUNS_MAX
    } onChange=${() => toggle(run)} />`;
  return html`
    <section class="panel" aria-label="All runs">
      <${Table} box="scrolls wide" label="All runs" heads=", run, model, state, #batches, #version, #reward, last batch" rows=${data
        .runs
        .map((row) => ({
          class: names.includes(row.run) ? "chosen" : "",
          cells: [
            box(row.run),
            html`
              <${Link} to="runs" values=${{ run: row.run }}>
                <${Word}>${row.run}<//><//>
            `,
            html`<${Word}>${row.model}<//>`,
            row.state,
            count(row.batches),
            count(row.version),
            number(row.reward),
            row.age_s === null ? "–" : `${span(row.age_s)} ago`,
          ],
        }))} />
      ${data.total > data.runs.length &&
        html`<p class="quiet">${
          count(data.total - data.runs.length)
        } older runs are not listed; their names work in the address.</p>`}</section>
    <${Curves} names=${names} all=${data.metrics} params=${params} />
    ${names.length === 2 && html`<${Command} text=${`claw runs compare ${names.map(quoted).join(" ")}`} />`}
    ${names.length === 1 && html`<${Whole} run=${names[0]} />`}
  `;
}

function Curves({ names, all, params }) {
  const x = AXES[params.get("x")] ? params.get("x") : "batch";
  const chosen = params.getAll("m");
  const metrics = chosen.includes("*")
    ? all
    : chosen.length
    ? chosen.filter((name) => all.includes(name))
    : FIRST.filter((name) => all.includes(name));
  const choice = chosen.includes("*") ? [] : metrics; // no name: all of them
  const path = names.length && metrics.length ? link("runs/curves", { run: names, metric: choice }).slice(1) : null;
  const answer = useAnswer(path, (update) => names.some((run) => concerns(update, "run", run)));
  const pick = (name) =>
    change({ m: metrics.includes(name) ? metrics.filter((each) => each !== name) : [...metrics, name] });
  const opened = ({ series, point }) => go(link("batch", { run: series.run, n: point[2] }));
  return html`<section class="panel" aria-label="Curves"><div class="row"><h2>Curves</h2>
      <label>over <select aria-label="x axis" value=${x} onChange=${({ currentTarget }) =>
    change({ x: currentTarget.value === "batch" ? null : currentTarget.value })}>${
    Object.entries(AXES).map(([name, label]) => html`<option value=${name}>${label}</option>`)
  }</select></label>
      <details class="runs-metrics"><summary>${metrics.length} of ${all.length} metrics</summary><p><button onClick=${() =>
    change({ m: "*" })}>all</button> <button onClick=${() => change({ m: null })}>the usual ones</button></p>
        <div>${
    all.map((name) =>
      html`<label><input type="checkbox" checked=${metrics.includes(name)} onChange=${() =>
        pick(name)} /> <${Word}>${name}<//></label>`
    )
  }</div></details></div>
    ${!metrics.length && html`<p class="quiet">No batch was trained yet: curves begin with the first.</p>`}
    <${Awaited} answer=${answer}>${(data) =>
    html`<${Drawn} data=${data} metrics=${metrics} x=${x} opened=${opened} />`}<//></section>`;
}

function Drawn({ data, metrics, x, opened }) {
  const thinned = data.runs.filter(({ every }) => every > 1);
  const series = useMemo(() =>
    Object.fromEntries(metrics.map((name) => [
      name,
      data.runs.map((run) => ({
        label: run.run,
        run: run.run,
        points: run.batch.map((
          batch,
          at,
        ) => [x === "time" ? run.at_us[at] : run[x][at], run.metrics[name]?.[at] ?? null, batch]),
      })),
    ])), [data, x, metrics.join("\n")]);
  return html`<div class="runs-curves">${
    metrics.map((name) =>
      html`<${Curve} key=${name} label=${name} series=${series[name] || []} x=${x} onPoint=${opened} />`
    )
  }</div>
    ${
    thinned.map((run) =>
      html`<p class="quiet">Of <${Word}>${run.run}<//> one of ${run.every} batches is drawn, and the last.</p>`
    )
  }
    <p class="quiet">A click on a point, or Enter, opens its batch. Drag for a closer look.</p>`;
}

const HELD_OUT = { true: "held out", false: "not held out of training", null: "" };

function Whole({ run }) {
  const answer = useAnswer(link("runs/whole", { run }).slice(1), (update) => concerns(update, "run", run));
  return html`<${Awaited} answer=${answer}>${(data) =>
    html`
      <div class="runs-whole">
        <section
          class="panel"><h2>State</h2><p>${data.state}${data.reason &&
            html`: <${Word}>${data.reason}<//>`}; started <${Ago} us=${data.started_us} />, ${count(
              data.incarnations,
            )} ${data.incarnations === 1 ? "start" : "starts"}, ${count(data.published)} versions published.
            ${data.version !== null &&
              html`${" "}<${Link} to="runs" values=${{ lineage: `${run}/${data.version}` }}>What is in version ${
                count(data.version)
              }<//>`}</p>
            ${data.newest_export &&
              html`<p>Newest export: version ${
                count(data.newest_export.version)
              }, <span class="mono"><${Word}>${data.newest_export.uri}<//></span></p>`}
            ${data.evaluations.length > 0 && html`
              <h3>Evaluations</h3>
              <${Table} label="Evaluations" heads="#version, #greedy, pass@k, tasks" rows=${data.evaluations
                .slice(-200).reverse().map((each) => [
                  `${count(each.version)}${each.best ? " ★" : ""}`,
                  number(each.greedy),
                  Object.entries(each.pass_at).map(([k, share]) => `${k}: ${number(share)}`).join(", "),
                  HELD_OUT[each.held_out],
                ])} />
            `}</section>
        <${Skipped} run=${run} reasons=${data.skipped} />
        <section class="panel">
          <h2>Settings</h2>
          <${Table} first label="Settings" rows=${Object.entries(data.settings).map(([name, value]) =>
            [name, JSON.stringify(value)].map((each) => html`<${Word}>${each}<//>`)
          )} />
        </section>
      </div>
    `}<//>`;
}

function Skipped({ run, reasons }) {
  const [open, setOpen] = useState(false);
  const total = Object.values(reasons).reduce((sum, each) => sum + each, 0);
  const answer = useAnswer(
    open ? link("runs/skipped", { run, limit: PAGE }).slice(1) : null,
    (update) => concerns(update, "run", run),
  );
  return html`<section class="panel"><h2>Skipped</h2>${total === 0 && html`<p class="quiet">No group was.</p>`}
    ${
    Object.entries(reasons).map(([reason, times]) =>
      html`<span class="chip">${count(times)} <${Word}>${reason}<//></span>${" "}`
    )
  }
    ${
    total > 0 && html`<details onToggle=${({ currentTarget }) =>
      setOpen(currentTarget.open)}><summary>which groups</summary>${
      open && html`<${Awaited} answer=${answer}>${(data) =>
        html`
          <${Table} label="Skipped groups" rows=${data.groups.map((
            { group_id, reason },
          ) => [html`<${GroupLink} g=${group_id} />`, html`<${Word}>${reason}<//>`])} />
          ${data.total > data.groups.length &&
            html`<p class="quiet">and ${count(data.total - data.groups.length)} more</p>`}
        `}<//>`
    }</details>`
  }</section>`;
}

export default { View };
