// What is where on the way from a call to new weights, how quick that is, and what is wrong.
import { useEffect } from "preact/hooks";
import { html, visible, Word } from "/web/shell.js";
import { change, go, isOpen, link, WayTo } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { Curve } from "../parts/curve.js";
import { useBeat } from "../parts/live.js";
import { Ago, Command, count, number, percent, span } from "../parts/words.js";

const SPANS = {
  "": "all, at most a day",
  900: "15 minutes",
  3600: "an hour",
  21600: "6 hours",
  86400: "a day",
  604800: "a week",
};
const NEWEST = { sort: "changed", desc: "true" };
const UNREADY = { kind: "trajectories", ready: "false", ...NEWEST };

function Overview({ params }) {
  const [run, seconds] = [params.get("run") || "", params.get("span") || ""];
  const answer = useAnswer(link("overview", { run, span_s: seconds }).slice(1));
  const log = useAnswer("overview/log");
  useBeat(() => {
    answer.again();
    log.again();
  });
  const again = answer.data?.again_s;
  useEffect(() => {
    if (!again) return undefined;
    const timer = setTimeout(answer.again, 1000 * again + 50);
    return () => clearTimeout(timer);
  }, [answer.data]);
  return html`
    <h1 class="sr-only">Overview</h1>
    <${Awaited} answer=${answer}>${(data) =>
      html`
        <${Alarms} alarms=${[...data.alarms, ...(log.data?.alarms || [])]} problem=${log.problem} />
        <${Way} data=${data} behind=${log.data?.behind} />
        <div class="overview-columns">
          <${Funnel} data=${data} />
          <${Versions} data=${data} />
        </div>
        <${Curves} data=${data} run=${run} seconds=${seconds} />
      `}<//>
  `;
}

function Alarms({ alarms, problem }) {
  return html`<section class="panel alarms" aria-label="What is wrong" aria-live="polite">
    ${!alarms.length && !problem && html`<p class="good">Nothing is wrong that this page knows of.</p>`}
    ${problem && html`<p class="problem">${problem.message}</p>`}
    <ul>${
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

/** The boxes: title, the number that counts, lines below it, and what waits there with the address of its rows. */
function boxes({ pool, run, workers }, behind) {
  const { trajectories, calls, groups, per_minute: rate, last_us: last } = pool;
  const over = trajectories.total - trajectories.open;
  const live = workers.filter(({ state, silent }) => state !== "dead" && !silent);
  const late = live.filter(({ versions_behind: several }) => several > 0);
  return [
    {
      title: "Collect",
      big: count(calls.total),
      of: "calls",
      rate: `${number(rate.calls, 1)} calls a minute`,
      us: last.call,
      waits: trajectories.open,
      what: "being played",
      to: ["explorer", UNREADY],
      more: [
        `${count(trajectories.total)} trajectories`,
        trajectories.evaluation > 0 && `${count(trajectories.evaluation)} more of evaluations`,
        behind > 0 && `${count(behind)} facts not folded yet`,
      ],
    },
    {
      title: "Reward",
      big: count(trajectories.rewarded),
      of: "trajectories have a return",
      rate: `${number(rate.ended, 1)} end a minute`,
      us: last.ended,
      waits: trajectories.over_without_reward,
      what: "over without a reward",
      to: ["explorer", UNREADY],
      more: [`${percent(over ? trajectories.rewarded / over : null)} of those that are over`],
    },
    {
      title: "Curate",
      big: count(calls.trainable),
      of: "calls can be trained",
      waits: calls.total - calls.trainable,
      what: "calls cannot be trained",
      to: ["explorer", { kind: "steps", trainable: "false" }],
      more: [`${count(calls.curated)} judged by people or scorers`],
    },
    {
      title: "Batch",
      big: count(run?.planned.batches ?? 0),
      of: "batches planned",
      waits: run ? run.waiting.groups : groups.ready,
      what: "ready groups wait",
      to: ["explorer", { kind: "groups", ready: "true", ...NEWEST }],
      more: [`${count(groups.ready)} of ${count(groups.total)} groups were ready`],
    },
    {
      title: "Train",
      big: count(run?.batches ?? 0),
      of: "batches trained",
      rate: run?.batches_per_hour && `${number(run.batches_per_hour, 1)} an hour`,
      us: run?.last_batch_us,
      waits: run?.planned.batches_waiting ?? 0,
      what: "planned, not trained",
      to: ["runs", { run: run?.run }],
      more: [run ? html`<${Word}>${run.run}<//> ${run.state}` : "no run yet"],
    },
    {
      title: "Weights",
      big: run?.version ?? "–",
      of: "is the newest version",
      us: run?.versions.find(({ published }) => published)?.made_us,
      waits: late.length,
      what: "workers with an older one",
      to: ["operations", { tab: "workers" }],
      more: [`workers that report: ${count(live.length)}`],
    },
  ];
}

function Way({ data, behind }) {
  return html`<ol class="way" aria-label="The way of the data">${
    boxes(data, behind).map(({ title, big, of, rate, us, waits, what, to, more }) =>
      html`
        <li class="panel">
          <h2>
            <${WayTo} to=${to[0]} values=${to[1]}>${title}<//></h2>
            <p><b class="big">${big}</b> ${of}</p>
            <p class="quiet">${rate || ""}${us ? html`${" "}${rate && "· "}last <${Ago} us=${us} />` : ""}</p>
            ${more.filter(Boolean).map((line) => html`<p class="quiet">${line}</p>`)}
            <p class=${waits ? "waits some" : "waits"}><${WayTo} to=${to[0]} values=${to[1]}><b>${count(
              waits,
            )}</b> ${what}<//></p>
          </li>
      `
    )
  }</ol>`;
}

const Reasons = ({ reasons }) =>
  html`<ul class="reasons">${
    Object.entries(reasons).slice(0, 12).map(([reason, several]) =>
      html`<li><b class="number">${count(several)}</b> <span dir="auto">${visible(reason.slice(0, 300))}</span></li>`
    )
  }</ul>`;

function Funnel({ data: { pool: { trajectories, groups }, run } }) {
  const waits = Object.fromEntries(
    (run?.waiting.reasons || []).map((
      { kind, reason, groups: several },
    ) => [kind === "next" ? "complete, in the next batch" : reason, several]),
  );
  const steps = [
    ["captured", trajectories.total, UNREADY],
    ["over", trajectories.total - trajectories.open, UNREADY],
    ["rewarded", trajectories.rewarded, UNREADY],
    ["ready", trajectories.ready, { ...UNREADY, ready: "true" }],
    ["planned", run?.planned.trajectories ?? 0, null],
    ["trained", run?.planned.trained ?? 0, null],
  ];
  const all = Math.max(1, trajectories.total);
  return html`
    <section class="panel funnel">
      <h2>From captured to trained</h2>
      <table>
        <thead>
          <tr>
            <th>trajectories</th>
            <th class="number">count</th>
            <th class="number">of all</th>
            <th aria-hidden="true"></th>
          </tr>
        </thead>
        <tbody>${steps.map(([name, several, values]) =>
          html`
            <tr>
              <th scope="row">${values ? html`<${WayTo} to="explorer" values=${values}>${name}<//>` : name}</th>
              <td class="number">${count(several)}</td>
              <td class="number">${percent(trajectories.total ? several / all : null)}</td>
              <td class="bar-cell" aria-hidden="true"><i style=${{
                width: `${Math.min(100, (100 * several) / all)}%`,
              }}></i></td>
            </tr>
          `
        )}</tbody>
      </table>
      <h3>Left out, by reason</h3>
      <dl class="left-out">
          <${Left} title="over and not ready" reasons=${trajectories.not_ready} />
          <${Left} title="groups that are not ready" reasons=${groups.not_ready} />
          ${run && html`
            <${Left} title=${`ready groups that wait (${count(run.waiting.groups)}${
              run.waiting.looked_at < run.waiting.groups ? `; of the newest ${run.waiting.looked_at}` : ""
            })`} reasons=${waits} />
            <${Left} title="groups that the run skips" reasons=${run.skipped} />
            <${Left} title="planned and not trained" reasons=${run.planned.left_out} />
          `}
        </dl>
    </section>
  `;
}

const Left = ({ title, reasons }) =>
  Object.keys(reasons).length > 0 && html`
    <div>
      <dt>${title}</dt>
      <dd>
        <${Reasons} reasons=${reasons} />
      </dd>
    </div>
  `;

function Versions({ data: { run, runs, workers } }) {
  const others = workers.filter((worker) => !run || worker.run !== run.run);
  return html`<section class="panel"><h2>Policy versions, and who has them</h2>
    ${
    runs.length > 1 && html`<label class="picks">run <select value=${run?.run} onChange=${({ target }) =>
      change({ run: target.value })}>${
      runs.map(({ run: name, state }) =>
        html`<option value=${name} selected=${name === run?.run}>${visible(name.slice(0, 60))} (${state})</option>`
      )
    }</select></label>`
  }
    ${!run && html`<p class="quiet">No run has begun. <code>claw train --config FILE</code> begins one.</p>`}
    ${
    run && html`
      <div class="scrolls" tabindex="0">
        <table>
          <thead>
            <tr>
              <th class="number">version</th>
              <th>made</th>
              <th class="number">reward</th>
              <th>workers</th>
            </tr>
          </thead>
          <tbody>${run.versions.map(({ version, made_us, reward, published, workers: holders }) =>
            html`
              <tr>
                <td class="number">${version}</td>
                <td>${made_us ? html`<${Ago} us=${made_us} />` : version === 0 ? "at the start" : "–"}${!published &&
                  html`${" "}<span class="quiet">not published</span>`}</td>
                <td class="number">${number(reward)}</td>
                <td>${holders.slice(0, 20).map((name) =>
                  html`<span class="chip"><${Word}>${name}<//></span>${" "}`
                )}${holders.length > 20 && `and ${holders.length - 20} more`}</td>
              </tr>
            `
          )}</tbody>
        </table>
      </div>
    `
  }
    ${
    others.length > 0 &&
    html`<p class="quiet">${run ? "Other workers" : "Workers"}: ${
      others.slice(0, 20).map((worker) =>
        html`<span class="chip"><${Word}>${worker.worker}<//> ${worker.silent ? "silent" : worker.state}${
          worker.run && html`${" "}· <${Word}>${worker.run}<//>/${worker.version}`
        }</span>${" "}`
      )
    }</p>`
  }
  </section>`;
}

function Curves({ data: { pool: { curves }, run }, seconds }) {
  const at = (values) => values.map((value, index) => [curves.start_us + index * curves.bucket_s * 1e6, value]);
  const minute = (values) => at(values).map(([us, value]) => [us, (value * 60) / curves.bucket_s]);
  const since = seconds ? (Date.now() - seconds * 1000) * 1000 : 0;
  const made = (metric) => (run?.curves[metric] || []).filter(([us]) => us >= since);
  const open = isOpen("runs")
    ? ({ point }) => point[2] !== undefined && go(link("runs", { run: run.run, batch: point[2] }))
    : undefined;
  const each = `per ${span(curves.bucket_s)}`;
  return html`
    <section class="panel">
      <div class="curve-head"><h2>Over time</h2>
        <label class="picks">of the last <select value=${seconds} onChange=${({ target }) =>
          change({ span: target.value })}>${Object.entries(SPANS).sort(([a], [b]) => Number(a) - Number(b)).map((
            [value, text],
          ) => html`<option value=${value} selected=${value === seconds}>${text}</option>`)}</select></label></div>
      <div class="curves">
        <${Curve} label="reward" x="time" onPoint=${open} series=${[{ label: "of batches", points: made("reward") }, {
          label: `return, mean ${each}`,
          points: at(curves.returns),
          dashed: true,
        }]} />
        <${Curve} label="throughput per minute" x="time" series=${[{ label: "calls", points: minute(curves.calls) }, {
          label: "trajectories over",
          points: minute(curves.ended),
        }]} />
        <${Curve} label="staleness in versions" x="time" onPoint=${open} series=${[{
          label: "mean",
          points: made("staleness_mean"),
        }, { label: "most", points: made("staleness_max"), dashed: true }]} />
        <${Curve} label="trained tokens a second" x="time" onPoint=${open} series=${[{
          label: "of batches",
          points: made("trained_tokens_per_s"),
        }]} />
      </div>
    </section>
  `;
}

export default { name: "overview", title: "Overview", key: "o", roles: ["reader", "operator"], View: Overview };
