// One group: its members as they fill up, and two of them side by side from where they part.
import { useEffect, useState } from "preact/hooks";
import { html, Text, Word } from "/web/shell.js";
import { change, go, Link, link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { useKeys } from "../parts/keys.js";
import { Windowed } from "../parts/list.js";
import { concerns } from "../parts/live.js";
import { Turn } from "../parts/messages.js";
import { Neighbours, useNeighbours } from "../parts/neighbours.js";
import { Folded, Pairs } from "../parts/table.js";
import { pieceText } from "../parts/token_rows.js";
import { Ago, Command, count, number, quoted, span, TrajectoryLink } from "../parts/words.js";

const ROW = 34;
const ROWS_MAX = 12;

const versions = ([low, high]) => (low === null ? "–" : low === high ? `v${low}` : `v${low}–${high}`);

/** When it closes by itself, counted down. */
function Deadline({ group }) {
  const [now, setNow] = useState(Date.now());
  const open = !group.closed && group.deadline_us;
  useEffect(() => {
    if (!open) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [open]);
  if (group.closed) return html`closed <${Ago} us=${group.closed_us} />`;
  if (!open) return "none";
  const left = (group.deadline_us / 1000 - now) / 1000;
  return html`<time dateTime=${new Date(group.deadline_us / 1000).toISOString()} title=${
    new Date(group.deadline_us / 1000).toISOString()
  }>${left > 0 ? `in ${span(left)}` : `passed ${span(-left)} ago`}</time>`;
}

/** Every return as a dot, the mean as a line, a deviation to both sides as a band. */
function Returns({ group, a, b }) {
  const members = group.members.filter((each) => each.return !== null);
  if (!members.length) return html`<p class="quiet">No member has a return yet.</p>`;
  const values = members.map((each) => each.return);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (value) => (high > low ? 20 + (560 * (value - low)) / (high - low) : 300);
  const { reward_mean: mean, reward_std: deviation } = group;
  const band = mean !== null && deviation > 0;
  const label = `Returns of ${members.length} members from ${number(low)} to ${number(high)}, mean ${
    number(mean)
  }, deviation ${number(deviation)}`;
  return html`<svg class="returns" viewBox="0 0 600 64" role="img" aria-label=${label}>
    ${
    band &&
    html`<rect class="band" x=${Math.max(0, x(mean - deviation))} y="8" width=${
      Math.min(600, x(mean + deviation)) - Math.max(0, x(mean - deviation))
    } height="30" />`
  }
    <line class="axis" x1="0" x2="600" y1="38" y2="38" />
    ${mean !== null && html`<line class="mean" x1=${x(mean)} x2=${x(mean)} y1="4" y2="42" />`}
    ${
    members.map((each) =>
      html`<circle key=${each.trajectory_id} class=${
        each.trajectory_id === a ? "a" : each.trajectory_id === b ? "b" : ""
      } cx=${x(each.return)} cy="23" r=${each.trajectory_id === a || each.trajectory_id === b ? 7 : 5} />`
    )
  }
    <text x=${high > low ? 20 : 300} y="58" text-anchor=${high > low ? "start" : "middle"}>${number(low)}</text>${
    high > low && html`<text x="580" y="58" text-anchor="end">${number(high)}</text>`
  }
    ${
    mean !== null && high > low &&
    html`<text x=${Math.min(500, Math.max(100, x(mean)))} y="58" text-anchor="middle">mean ${number(mean)}</text>`
  }
  </svg>`;
}

function Head({ group, a, b, beside, f }) {
  const ready = group.members.filter((each) => each.ready).length;
  const of = group.expected_size === null ? "" : ` of ${count(group.expected_size)}`;
  const figures = [
    ["members", `${count(group.count)}${of}, ${count(ready)} ready`],
    ["mean return", number(group.reward_mean)],
    ["deviation", number(group.reward_std)],
    ["versions", versions([group.min_version, group.max_version])],
    ["deadline", html`<${Deadline} group=${group} />`],
    ["last fact", html`<${Ago} us=${group.last_progress_us} />`],
  ];
  return html`
    <section class="panel">
      <div class="row head">
        <h1>Group <${Word}>${group.group_id}<//></h1><${Neighbours} of=${beside} f=${f} /></div>
        <p class="chips"><span class=${`chip ${group.ready ? "good" : "bad"}`}>${group.ready
          ? "ready"
          : "not ready"}</span>
          ${group.zero_variance && html`
            ${" "}<span class="chip bad"
              title="all returns are equal: an advantage that compares them is 0 for each">zero variance</span>
          `}
          ${group.channel && html`${" "}<span class="chip"><${Word}>${group.channel}<//></span>`}
          ${group.agent && html`${" "}<span class="chip">agent <${Word}>${group.agent}<//></span>`}
          ${group.tags.map((tag) => html`${" "}<span class="chip"><${Word}>${tag}<//></span>`)}</p>
        <${Pairs} class="row figures" rows=${figures} />
        <${Returns} group=${group} a=${a} b=${b} />
        <${Folded} open class="task" title="Task" text=${group.task} />
        <details open=${!group.ready}><summary>Readiness: ${group.why.state.replace("_", " ")}</summary>
          <div class="why"><${Text} text=${[...group.why.lines, ...group.why.warnings.map((each) => `warning: ${each}`)]
            .join("\n")} /></div>
          <${Command} text=${`claw pool why ${quoted(group.group_id)}`} /></details>
        ${group.batches.length > 0 &&
          html`<p>In ${
            group.batches.map(({ run, batch, version }) =>
              html`${" "}<${Link} to="batch" values=${{ run, n: batch }}>batch ${batch} of <${Word}>${run}<//><//>${
                version === null ? " (not trained yet)" : ` (made v${version})`
              }`
            )
          }</p>`}
      </section>
  `;
}

/** How far from the mean, in deviations, as a bar to the left or the right. */
function Away({ value, group }) {
  const away = value === null || !group.reward_std ? 0 : (value - group.reward_mean) / group.reward_std;
  const width = `${Math.min(50, Math.abs(away) * 20)}%`;
  return html`<span class="away" title=${`${number(away, 2)} deviations from the mean`}><i class=${
    away < 0 ? "below" : "above"
  } style=${{ width }}></i></span>`;
}

function Member({ member, rank, group, marks, current }) {
  const { trajectory_id: t } = member;
  const g = group.group_id;
  const expected = member.calls_expected === null ? "" : `/${count(member.calls_expected)}`;
  const mark = (name, other) =>
    html`
      <button class="mark" aria-pressed=${marks[name] === t} aria-label=${`compare ${
        t.slice(0, 60)
      } as ${name}`} title=${`compare as ${name}`} disabled=${marks[other] === t}
        onClick=${() => change({ [name]: t, k: "" })}>${name.toUpperCase()}</button>
    `;
  const state = member.ready ? "ready" : member.reasons.join(", ") || "not ready";
  return html`
    <div class=${`member ${current ? "current" : ""}`} role="row" key=${t} aria-selected=${current} style=${{
      height: `${ROW}px`,
    }}>
      <span role="cell" class="quiet number rank">${rank}</span>
      <span role="cell" class="marks">${mark("a", "b")}${mark("b", "a")}</span>
      <span role="cell" class="name"><${TrajectoryLink} g=${g} t=${t} /></span>
      <span role="cell" class="number">${number(member.return)}</span>
      <span role="cell" class="wide"><${Away} value=${member.return} group=${group} /></span>
      <span role="cell" class="wide">${member.status}</span>
      <span role="cell" class="number wide"
        title="calls, of those its completion counted">${count(member.calls)}${expected}${member.failed_calls > 0 &&
          html`${" "}<b class="bad" title="failed calls">+${member.failed_calls}</b>`}</span>
      <span role="cell" class="wide">${versions(member.versions)}</span>
      <span role="cell" class=${`state ${member.ready ? "good" : "quiet"}`} title=${state.slice(
        0,
        300,
      )}>${state}${member.trained.map(({ batch, version }) =>
        ` · batch ${batch}${version === null ? "" : ` → v${version}`}`
      )}</span>
      <span role="cell" class="quiet wide"><${Ago} us=${member.changed_us} /></span>
    </div>
  `;
}

const HEADS = [
  ["", "rank"],
  ["pair", "marks"],
  ["trajectory", "name"],
  ["return", "number"],
  ["from mean", "wide"],
  ["status", "wide"],
  ["calls", "number wide"],
  ["versions", "wide"],
  ["readiness", "state"],
  ["changed", "wide"],
];

function Members({ group, marks, at }) {
  const missing = group.expected_size === null ? 0 : Math.max(0, group.expected_size - group.count);
  const rows = group.members.length;
  const height = `${Math.max(1, Math.min(rows, ROWS_MAX)) * ROW + 2}px`;
  return html`<section class="panel members">
    <h2>Members</h2>
    ${
    rows > 0 && html`
      <div role="table" aria-label="Members, the highest return first">
        <div class="member heads" role="row">${HEADS.map(([name, where]) =>
          html`<span role="columnheader" class=${`quiet ${where}`}>${name}</span>`
        )}</div>
        <div class="member-list" style=${{ height }}>
          <${Windowed} count=${rows} height=${ROW} at=${at} label="Members" row=${(index) =>
            html`
              <${Member} member=${group.members[index]} rank=${index +
                1} group=${group} marks=${marks} current=${index === at} />
            `} />
        </div>
      </div>
    `
  }
    ${
    missing > 0 && html`<p class="quiet waiting">${
      Array.from({ length: Math.min(missing, 16) }, () => html`<i class="slot" aria-hidden="true"></i>`)
    } ${count(missing)} of ${count(group.expected_size)} have not begun</p>`
  }
    ${group.left_out > 0 && html`<p class="quiet">${count(group.left_out)} more are not listed here.</p>`}
  </section>`;
}

function Pair({ g, a, b }) {
  const path = `group/pair?${new URLSearchParams({ g, a, b })}`;
  const answer = useAnswer(path, (update) => [a, b].some((t) => concerns(update, "trajectory", g, t)));
  return html`<${Awaited} answer=${answer}>${({ shared, before, sides }) =>
    html`
      <p class="quiet">${shared
        ? `${count(shared)} ${shared === 1 ? "turn is" : "turns are"} the same`
        : "They part at the first turn"}${sides.every(({ turns }) => !turns.length)
        ? ", and nothing else was said."
        : "; what differs from there is marked."}</p>
      ${before.length > 0 &&
        html`<details><summary>${
          before.length < shared ? `the last ${before.length} that both share` : "what both share"
        }</summary>${before.map((turn) => html`<${Turn} turn=${turn} />`)}</details>`}
      <div class="beside">${Array.from({ length: Math.max(...sides.map(({ turns }) => turns.length)) }, (_, index) =>
        sides.map(({ turns }) => html`<${Turn} key=${index} turn=${turns[index]} />`))}</div>
      ${sides.map((side) =>
        side.left_out > 0 &&
        html`<p class="quiet">${
          count(side.left_out)
        } more turns in <${TrajectoryLink} g=${g} t=${side.trajectory_id} />.</p>`
      )}
    `}<//>`;
}

function Ids({ g, t, side, from, name, parts }) {
  const [to, c] = [from + side.tokens.length, side.call_id];
  const text = useAnswer(side.tokens.length ? `tokens?${new URLSearchParams({ g, t, c, from, to })}` : null);
  const pieces = text.data?.length === side.length ? text.data.pieces : null;
  return html`<div class="ids" role="group" aria-label=${`tokens of ${name}`}>${
    from > 0 && html`<span class="quiet">… ${count(from)} before </span>`
  }
    ${
    side.tokens.map(([id, chance, differs], place) =>
      html`
        <span class=${`id ${differs ? "differs" : ""} ${chance === null ? "context" : ""}`}
          title=${`token ${from + place + 1}, id ${id}${
            chance === null
              ? ", of the prompt"
              : `, log-probability ${number(chance)} (${number(100 * Math.exp(chance), 1)} %)`
          }`}>${pieces ? pieceText(pieces[place]) : id}</span>${!pieces && " "}
      `
    )
  }
    ${to < side.length && html`<span class="quiet"> ${count(side.length - to)} more</span>`}
    <${Link} to="tokens" values=${{ g, t, c, from: parts }}>in the token view<//></div>`;
}

function Tokens({ g, a, b, k }) {
  const path = `group/tokens?${new URLSearchParams({ g, a, b, ...(k ? { k } : {}) })}`;
  const answer = useAnswer(path, (update) => [a, b].some((t) => concerns(update, "trajectory", g, t)));
  return html`<${Awaited} answer=${answer}>${({ k: at, calls, parts_at: parts, from, sides }) => {
    const first = sides.find(Boolean);
    const where = !first
      ? "no tokens of it are in the pool"
      : parts < first.prompt
      ? `they part in the prompt, at token ${count(parts + 1)}`
      : sides.every((side) => side && side.length === parts)
      ? "all tokens are the same"
      : `the prompt is the same, ${count(parts)} tokens in all are; they part at token ${
        count(parts - first.prompt + 1)
      } of the reply`;
    return html`
      <p
        class="row"><button disabled=${at === 0} onClick=${() =>
          change({ k: at - 1 })} aria-label="the call before">‹</button> <span>call ${at + 1} of ${calls.map(count)
          .join(" and ")}</span> <button disabled=${at + 1 >= Math.max(...calls)} onClick=${() =>
          change({ k: at + 1 })} aria-label="the next call">›</button>
              ${k &&
                html`${" "}<button onClick=${() =>
                  change({ k: "" })}>where they part</button>`} <span class="quiet">${where}</span></p>
      <div class="beside">${sides.map((side, index) => (side
        ? html`
          <${Ids} key=${index} g=${g} t=${[a, b][index]} side=${side} from=${from} name=${"AB"[index]}
            parts=${parts} />
        `
        : html`<p class="quiet" key=${index}>It has no such call, or its tokens are not in the pool.</p>`)
      )}</div>
    `;
  }}<//>`;
}

function Side({ name, member, g }) {
  return html`
    <h3
      class=${`row side ${name}`}><span class="letter">${name.toUpperCase()}</span> <${TrajectoryLink} g=${g} t=${member
        .trajectory_id} /> <span class="number">return ${number(member.return)}</span> <span class="quiet">${member
        .status}</span></h3>
  `;
}

function Board({ group, params, beside, f }) {
  const { members, group_id: g } = group;
  const valued = members.filter((each) => each.return !== null);
  const best = valued[0] || members[0];
  const worst = valued.length > 1 ? valued[valued.length - 1] : members.find((each) => each !== best);
  const byId = (t) => members.find((each) => each.trajectory_id === t);
  let a = params.get("a") ? byId(params.get("a")) : best;
  let b = params.get("b") ? byId(params.get("b")) : worst;
  const unknown = (params.get("a") && !a) || (params.get("b") && !b);
  if (!params.get("a") && a === b) a = members.find((each) => each !== b);
  if (!params.get("b") && a === b) b = members.find((each) => each !== a);
  const [at, setAt] = [
    members.findIndex((each) => each.trajectory_id === params.get("m")),
    (index) => change({ m: members[Math.max(0, Math.min(index, members.length - 1))]?.trajectory_id }),
  ];
  const mark = (name) => () => {
    if (at < 0) return false;
    change({ [name]: members[at].trajectory_id, k: "" });
    return true;
  };
  useKeys("Group", {
    j: { does: "next member", act: () => setAt(at + 1) },
    k: { does: "member before", act: () => setAt(at - 1) },
    Enter: {
      does: "open the member",
      act: (event) => {
        if (at < 0 || event.target.closest("a, button, summary")) return false;
        go(link("trajectory", { g, t: members[at].trajectory_id }));
        return true;
      },
    },
    a: { does: "compare it, to the left", act: mark("a") },
    b: { does: "compare it, to the right", act: mark("b") },
    c: { does: "to the comparison", act: () => document.getElementById("comparison")?.scrollIntoView() },
    Escape: {
      does: "best and worst again",
      act: () => {
        if (!["a", "b", "m", "k"].some((name) => params.get(name))) return false;
        change({ a: "", b: "", m: "", k: "" });
        return true;
      },
    },
  });
  const marks = { a: a?.trajectory_id, b: b?.trajectory_id };
  return html`<${Head} group=${group} a=${marks.a} b=${marks.b} beside=${beside} f=${f} />
    <${Members} group=${group} marks=${marks} at=${at} />
    ${
    unknown
      ? html`<p class="problem">The pair names a member that is not in this group: mark two of the list with A and B.</p>`
      : a && b && html`<section class="panel pair" id="comparison"><h2>Side by side</h2>
      <div class="beside"><${Side} name="a" member=${a} g=${g} /><${Side} name="b" member=${b} g=${g} /></div>
      ${
        marks.a === marks.b
          ? html`<p class="problem">Both sides are the same member: mark another with A or B.</p>`
          : html`
            <${Pair} g=${g} a=${marks.a} b=${marks.b} />
            <h3>Tokens</h3>
            <${Tokens} g=${g} a=${marks.a} b=${marks.b} k=${params.get("k")} />
          `
      }</section>`
  }`;
}

function View({ params }) {
  const [g, f] = [params.get("g") || "", params.get("f") || ""];
  const answer = useAnswer(
    g ? `group?${new URLSearchParams({ g })}` : null,
    (update) => concerns(update, "group", g) || concerns(update, "trajectory", g) || concerns(update, "run"),
  );
  const beside = useNeighbours("groups", { g }, f);
  if (!g) {
    return html`<p class="panel">No group is named. <${Link} to="explorer" values=${{
      kind: "groups",
    }}>Choose one in the explorer<//></p>`;
  }
  return html`<${Awaited} answer=${answer}>${(group) =>
    html`<${Board} group=${group} params=${params} beside=${beside} f=${f} />`}<//>`;
}

export default { View };
