// A batch: what it was made of, how its members did, when each of them waited for what, and what another spec had made of it.
import { useState } from "preact/hooks";
import { html, Word } from "/web/shell.js";
import { change, go, Link, link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { GroupDots } from "../parts/dots.js";
import { useKeys } from "../parts/keys.js";
import { concerns } from "../parts/live.js";
import { Pairs, Table } from "../parts/table.js";
import {
  Ago,
  Command,
  count,
  GroupLink,
  middle,
  number,
  quoted,
  span,
  taskWords,
  TrajectoryLink,
} from "../parts/words.js";
import { Lab } from "./lab.js";

const PAGE = 100;
const [WIDE, HIGH] = [420, 200];
const range = ([low, high]) => (low === null ? "–" : low === high ? `${low}` : `${low}–${high}`);

function View({ params }) {
  const [run, n, after] = [params.get("run"), params.get("n"), Number(params.get("after") || 0)];
  const at = new URLSearchParams({ run: run || "", n: n || "", limit: String(PAGE), after: String(after) });
  const known = run && n !== null;
  const answer = useAnswer(known ? `batch?${at}` : null, (update) => concerns(update, "run", run));
  const replies = useAnswer(answer.data && params.get("tab") !== "lab" ? `batch/replies?${at}` : null);
  const beside = (which) => () => {
    const other = answer.data?.[which] ?? null;
    if (other !== null) change({ n: other, after: null });
  };
  const tab = (name) => () => change({ tab: name });
  useKeys("Batch", {
    "[": { does: "batch before", act: beside("previous") },
    "]": { does: "batch after", act: beside("next") },
    l: { does: "its members, or the lab as of it", act: tab(params.get("tab") === "lab" ? null : "lab") },
    Escape: { does: "its run", act: () => go(link("runs", { run })) },
  });
  if (!known) {
    return html`<p class="panel">Which batch? A point of a curve opens one: <${Link} to="runs">Runs<//>.</p>`;
  }
  return html`<${Awaited} answer=${answer}>${(data) =>
    html`
      <${Head} data=${data} beside=${beside} />
      <div role="tablist" class="row tabs" aria-label="Batch">
        <button role="tab" aria-selected=${params.get("tab") !== "lab"} onClick=${tab(null)}>Members</button>
        <button role="tab" aria-selected=${params.get("tab") === "lab"} onClick=${tab(
          "lab",
        )}>Lab, as of this batch</button>
      </div>
      ${params.get("tab") === "lab" ? html`<${Lab} params=${params} batch=${n} />` : html`
        <${Tiles} data=${data} />
        <div class="sided">
          <${Scatter} data=${data} after=${after} />
          <section class="panel">
            <h2>Groups by spread</h2>
            <${GroupDots} groups=${data.groups} total=${data
              .groups_total} />
          </section>
        </div>
        <${Lanes} data=${data} />
        <${Members} data=${data} replies=${replies.data?.replies || []} after=${after} />
      `}
    `}<//>`;
}

function Head({ data, beside }) {
  const { run_id: run, sequence, trained } = data;
  const made = trained && `${run}/${trained.version}`;
  return html`
    <section class="panel row batch-head">
      <h1>Batch ${count(sequence)} of <${Word}>${run}<//></h1>
      <button onClick=${beside("previous")} disabled=${data.previous === null} aria-label="batch before">[</button>
      <button onClick=${beside("next")} disabled=${data.next === null} aria-label="batch after">]</button>
      <p>Sampled by ${data.sampled_by.map(({ versions, members }, at) =>
        html`${at > 0 && ", "}version ${range(versions)} (${count(members)})`
      )}; planned for version ${count(data.version)} <${Ago} us=${data.planned_us} />. ${trained
        ? html`Trained <${Ago} us=${trained.at_us} />, made <${Link} to="runs" values=${{
          lineage: made,
        }}>version ${count(trained.version)}<//>.`
        : data.given_up
        ? html`<b class="bad">Given up: its plan could not be read any more.</b>`
        : html`<b>Not trained yet.</b>`} ${data.oldest_version !== null &&
        ` Tokens older than version ${count(data.oldest_version)} are context only.`}</p>
      ${trained && html`
        <details>
          <summary>metrics, and its data taken out</summary>
          <p>This batch, and all data since the base:</p>
          <${Command} text=${`claw lineage ${quoted(made)} --json`} />
          <${Command} text=${`claw lineage ${quoted(made)} --all --json`} />
          <p
            class="quiet">Plan: <span class="mono">${data.position.topic} partition ${data.position
              .partition} offset ${data.position.offset}</span>, seed ${data.seed}.</p>
          <${Pairs} class="runs-values" rows=${Object.entries(trained.metrics).sort().map((
            [name, value],
          ) => [html`<${Word}>${name}<//>`, number(value, 5)])} />
        </details>
      `}
    </section>
  `;
}

function Tiles({ data: { tiles, sampled_by } }) {
  const known = sampled_by.flatMap(({ versions }) => versions.filter((each) => each !== null));
  const figures = [
    ["return", `${number(tiles.return_mean)} ± ${number(tiles.return_deviation)}`],
    ["groups of equal returns", `${count(tiles.equal_groups)} of ${count(tiles.groups)}`, tiles.equal_groups],
    ["replies cut off", `${count(tiles.truncated)} of ${count(tiles.replies)}`, tiles.truncated],
    ["reply, p50 and p95", `${number(tiles.length_p50, 0)}, ${number(tiles.length_p95, 0)} tokens`],
    ["versions", known.length ? range([Math.min(...known), Math.max(...known)]) : "–"],
    ["sampled tokens", count(tiles.tokens)],
  ];
  return html`<${Pairs} class="tiles" rows=${
    figures.map(([name, text, bad]) => [name, html`<span class=${bad ? "bad" : ""}>${text}</span>`])
  } />`;
}

/** Return over length, a cross where a reply was cut off. */
function Scatter({ data: { dots, total, members }, after }) {
  const drawn = dots.map((dot, at) => [...dot, members[at - after]]).filter(([, tokens]) => tokens !== null);
  if (!drawn.length) {
    return html`
      <section class="panel">
        <h2>Return and length</h2>
        <p class="quiet">Its plan tells no lengths.</p>
      </section>
    `;
  }
  const [most, low, high] = [
    Math.max(...drawn.map(([, tokens]) => tokens), 1),
    Math.min(...drawn.map(([value]) => value)),
    Math.max(...drawn.map(([value]) => value)),
  ];
  const x = (tokens) => 40 + ((WIDE - 50) * tokens) / most;
  const y = (value) => (high > low ? HIGH - 30 - ((HIGH - 45) * (value - low)) / (high - low) : HIGH / 2);
  const cut = drawn.filter(([, , truncated]) => truncated).length;
  return html`
    <section class="panel">
      <h2>Return and length</h2>
      <svg class="scatter" viewBox=${`0 0 ${WIDE} ${HIGH}`} role="img" aria-label=${`${drawn.length} members, returns ${
        number(low)
      } to ${number(high)}, up to ${count(most)} tokens, ${cut} cut off`}>
          <path class="axis" d=${`M40 5V${HIGH - 20}H${WIDE}`} />
          <text x="36" y=${y(high) + 4} text-anchor="end">${number(high)}</text>
          ${high > low && html`<text x="36" y=${y(low) + 4} text-anchor="end">${number(low)}</text>`}
          <text x="40" y=${HIGH - 5}>0</text><text x=${WIDE} y=${HIGH - 5} text-anchor="end">${count(
            most,
          )} tokens</text>
          ${drawn.map(([value, tokens, truncated, row]) => {
            const mark = truncated
              ? html`<path class="cut" d=${`M${x(tokens) - 4} ${y(value) - 4}l8 8m0 -8l-8 8`} />`
              : html`<circle cx=${x(tokens)} cy=${y(value)} r="4" />`;
            return row
              ? html`<a href=${
                link("trajectory", { g: row.group_id, t: row.trajectory_id })
              } tabindex="-1" aria-hidden="true">${mark}</a>`
              : mark;
          })}</svg>
      <p class="quiet"><span class="bad">✕ a reply was cut off</span>${total > dots.length &&
        `; the ${count(dots.length)} with the largest advantages are drawn`}</p>
    </section>
  `;
}

const PARTS = [["queue", "queue"], ["first", "to the first token"], ["generation", "generation"], [
  "between",
  "between calls: tools, the agent",
]];

/** A lane as one element: what a member waited for, call by call; the older the version, the paler its generation. */
function laneOf(calls, place, newest) {
  const stops = [];
  let end = null;
  const paint = (colour, from, to) => {
    if (to > from) stops.push(`transparent ${end ?? place(from)}%`, `${colour} ${place(from)}% ${place(to)}%`);
    if (to > from) end = place(to);
  };
  let last = null;
  for (const [received, queue, first, generation, version] of calls) {
    if (last !== null) paint("var(--line)", last, received);
    const [sent, began] = [received + Math.max(0, queue || 0), received + Math.max(0, queue || 0) + (first || 0)];
    const shade = Math.max(30, 100 - 25 * (newest - (version ?? newest)));
    paint("var(--lane-queue)", received, sent);
    paint("var(--lane-first)", sent, began);
    paint(`color-mix(in oklab, var(--accent) ${shade}%, var(--paper))`, began, began + (generation || 0));
    last = Math.max(last ?? 0, began + (generation || 0));
  }
  return { background: `linear-gradient(90deg, ${[...stops, `transparent ${end ?? 0}%`].join(", ")})` };
}

function Lanes({ data: { members, planned_us, trained } }) {
  const [all, setAll] = useState(false);
  const rows = members.filter(({ lane }) => lane.length).sort((a, b) => a.lane[0][0] - b.lane[0][0]);
  if (!rows.length) return null;
  const ends = rows.flatMap(({ lane }) =>
    lane.map(([at, queue, first, generation]) => at + (queue || 0) + (first || 0) + (generation || 0))
  );
  const begin = Math.min(...rows.map(({ lane }) => lane[0][0]));
  const known = [...ends, planned_us, trained?.at_us ?? planned_us];
  const whole = Math.max(1, Math.max(...known) - begin);
  const place = (us) => Math.round((100000 * (us - begin)) / whole) / 1000;
  const newest = Math.max(...rows.flatMap(({ lane }) => lane.map((call) => call[4] ?? 0)));
  const marks = [["planned", planned_us], ["trained", trained?.at_us]].filter(([, us]) => us && us >= begin);
  return html`<section class="panel"><h2>Where the time went</h2>
    <p class="row legend">${
    PARTS.map(([name, text]) => html`<span><i class=${name}></i>${text}</span>`)
  }<span class="quiet">paler: an older version; ${span(whole / 1e6)} from end to end${
    marks.map(([name, us]) => `, ${name} at ${span((us - begin) / 1e6)}`)
  }</span></p>
    <div class="lanes scrolls" tabindex="0" role="group" aria-label="Members in time">${
    rows.slice(0, all ? PAGE : 32).map(({ group_id, trajectory_id, lane }) =>
      html`
        <div
          class="lane"><span class="cut"><${TrajectoryLink} g=${group_id} t=${trajectory_id}><${Word}>${`${
            middle(group_id, 12)
          } ${trajectory_id}`}<//><//></span><span
                class="lane-bar" role="img" aria-label=${`${lane.length} calls`} style=${laneOf(
                  lane,
                  place,
                  newest,
                )}>${marks.map(([name, us]) =>
                  html`<i class=${name} style=${{ left: `min(${place(us)}%, 100% - 2px)` }}></i>`
                )}</span></div>
      `
    )
  }</div>
    ${rows.length > 32 && !all && html`<button onClick=${() => setAll(true)}>all ${count(rows.length)}</button>`}
  </section>`;
}

const MEMBER =
  "task, its reply ends, #return, #advantage, #tokens, #versions, #calls trained, group, why it is left out";

function memberRow(row, reply) {
  const sign = row.advantage > 0 ? "good" : row.advantage < 0 ? "bad" : "";
  return [
    html`
      <${TrajectoryLink} g=${row.group_id} t=${row.trajectory_id}>
        <${Word}>${row.task ? taskWords(row.task) : row.trajectory_id}<//><//>
    `,
    reply && html`<${Word}>${reply.length > 79 ? `…${reply.slice(-79)}` : reply}<//>`,
    number(row.return),
    html`<span class=${sign}>${number(row.advantage)}</span>`,
    row.truncated
      ? html`<span class="bad" title="a reply was cut off">${count(row.tokens)} ✕</span>`
      : count(row.tokens),
    range(row.versions),
    `${count(row.calls_trained)} of ${count(row.calls)}`,
    html`<${GroupLink} g=${row.group_id} />`,
    row.why_not && html`<${Word}>${row.why_not}<//>`,
  ];
}

function Members({ data, replies, after }) {
  const turn = (next) => () => change({ after: next || null });
  return html`<section class="panel batch-members"><h2>Members by |advantage|</h2>
    <${Table} box="wide" label="Members by |advantage|" heads=${MEMBER} rows=${
    data.members.map((row, at) => ({
      key: `${row.group_id} ${row.trajectory_id}`,
      cells: memberRow(row, replies[at]),
    }))
  } />
    ${
    data.total > PAGE &&
    html`<p class="row"><span>${count(after + 1)}–${count(Math.min(data.total, after + PAGE))} of ${
      count(data.total)
    }</span>
      <button disabled=${after === 0} onClick=${turn(Math.max(0, after - PAGE))}>before</button><button disabled=${
      after + PAGE >= data.total
    } onClick=${turn(after + PAGE)}>next</button></p>`
  }</section>`;
}

export default { View };
