// One trajectory: what was said, by whom it was judged, when each call waited for what, and why it is trained or not.
import { useEffect, useRef, useState } from "preact/hooks";
import { html, Text, Word } from "/web/shell.js";
import { change, go, Link, link } from "../parts/address.js";
import { Awaited, read, useAnswer } from "../parts/answers.js";
import { Chunks } from "../parts/chunks.js";
import { Judge } from "../parts/judge.js";
import { useKeys } from "../parts/keys.js";
import { Windowed } from "../parts/list.js";
import { concerns } from "../parts/live.js";
import { Message } from "../parts/messages.js";
import { Neighbours, useNeighbours } from "../parts/neighbours.js";
import { usePages } from "../parts/pages.js";
import { Folded, isNothing, Pairs } from "../parts/table.js";
import { Ago, Command, Copy, count, GroupLink, number, quoted, span } from "../parts/words.js";

const CALLS = 5; // of one chunk of the conversation, and of one answer
const OUTLINE = 500;
const ROW_PX = 26;
const SPANS = { between_us: "between calls", queue_us: "queue", first_us: "first token", generation_us: "generation" };
const seconds = (us) => (us === null || us === undefined ? "–" : span(us / 1e6));

/** Waiting, first token and generation of one call, on the trajectory's own time. */
function Track({ call, head }) {
  if (call.received_us === null) return html`<span class="track"></span>`;
  const whole = Math.max(1, head.ends_us - head.begins_us);
  const bars = [];
  let at = call.received_us - head.begins_us;
  for (const name of ["queue_us", "first_us", "generation_us"]) {
    const width = Math.max(0, call[name] || 0);
    if (width) {
      bars.push(
        html`<i class=${name.slice(0, -3)} style=${{
          left: `${100 * at / whole}%`,
          width: `max(1px, ${100 * width / whole}%)`,
        }}></i>`,
      );
    }
    at += width;
  }
  const words = Object.entries(SPANS).map(([name, title]) => `${title} ${seconds(call[name])}`).join(", ");
  return html`<span class="track" title=${words}>${bars}</span>`;
}

/** Calls as a tree: a branch is indented, what goes on with its call stands under it. */
function Tree({ head, outline, cursor, go: goTo }) {
  const row = (at) => {
    const call = at < OUTLINE ? head.calls[at] : outline.row(at);
    if (!call) return html`<div class="tree-row" key=${at}>…</div>`;
    const kind = call.base === null ? "●" : call.goes_on ? "│" : "├";
    const label = `call ${at + 1}${
      call.base === null ? ", begins" : call.goes_on ? "" : `, branches from call ${call.base + 1}`
    }`;
    return html`
      <button class=${`tree-row ${
        cursor?.at === at ? "current" : ""
      }`} key=${at} role="treeitem" aria-level=${call.depth + 1} aria-label=${label}
        aria-current=${cursor?.at === at ? "true" : null} onClick=${() => goTo(at)}>
            <span class="branch" style=${{
              paddingLeft: `${Math.min(call.depth, 6) * 0.3}rem`,
            }} aria-hidden="true">${kind}</span><span class="number">${at + 1}</span>
            <span class="number quiet" title="tokens: prompt + response">${count(call.prompt)}+${count(
              call.response,
            )}</span>
            <span class=${`number ${
              call.reward > 0 ? "good" : call.reward < 0 ? "bad" : "quiet"
            }`}>${call.reward === null ? "" : number(call.reward)}</span>
            <${Track} call=${call} head=${head} /></button>
    `;
  };
  const seen = (first, last) => {
    if (last > OUTLINE) outline.need(Math.max(first, OUTLINE), last);
  };
  return html`
    <div class="tree" style=${{ height: `${Math.min(head.total, 12) * ROW_PX + 4}px` }}>
      <${Windowed} count=${head.total} height=${ROW_PX} row=${row} seen=${seen} at=${cursor?.at}
        label="Calls as a tree" role="tree" />
    </div>
  `;
}

const Slot = ({ slot }) =>
  html`
    <span class="chip"
      title=${slot.failed ? `its scorer gave up: ${slot.failed}` : null}><${Word}>${slot.source}<//>/<${Word}>${slot
        .name}<//> <b class=${slot.value < 0 || slot.failed ? "bad" : "good"}>${slot.failed
        ? "failed"
        : slot.value === null
        ? "–"
        : number(slot.value)}</b></span>
  `;

/** What counts of what people said. */
const Said = ({ word }) =>
  html`<span class="chip said"><${Word}>${word.who}<//>: <${Word}>${word.says}<//></span>${
    word.comment && html`<${Text} text=${word.comment} />`
  }${
    word.edit && html`
      <p class="quiet">would rather have:</p>
      <${Text} text=${String(word.edit)} />
    `
  }`;

function Judged({ head, goTo }) {
  const place = (
    { at, call_id },
  ) => (at === null || at === undefined
    ? (call_id ? html`<${Word}>${call_id}<//>` : "the trajectory")
    : html`<button class="plain" onClick=${() => goTo(at)}>call ${at + 1}</button>`);
  const at = new Map(head.calls.map((call) => [call.call_id, call.at]));
  if (!head.rewards.length && !head.words.length) return html`<p class="quiet">Nobody judged it yet.</p>`;
  return html`<ul class="plain">${
    head.rewards.slice(0, 100).map((slot, key) => html`<li key=${key}><${Slot} slot=${slot} /> ${place(slot)}</li>`)
  }
    ${
    head.words.slice(-100).map((word, key) =>
      html`<li key=${`w${key}`}><${Said} word=${word} /> ${
        place({ at: at.get(word.call_id), call_id: word.call_id })
      }</li>`
    )
  }</ul>
    ${
    head.rewards.length + head.rewards_left_out > 100 &&
    html`<p class="quiet">and ${
      count(head.rewards.length + head.rewards_left_out - 100)
    } more rewards, each at its call</p>`
  }`;
}

function Why({ head, t }) {
  const { why, warnings, batches } = head;
  return html`<h2>Why ${
    why &&
    html`<span class=${`chip ${["trained", "planned", "next", "ready"].includes(why.state) ? "good" : "bad"}`}>${
      why.state.replace("_", " ")
    }</span>`
  }</h2>
    ${why && why.lines.slice(0, 100).map((line, key) => html`<${Text} key=${key} text=${line.trim()} />`)}
    ${warnings.map((line, key) => html`<p class="warn" key=${key}>${line}</p>`)}
    ${
    batches.slice(-20).map((batch) =>
      html`
        <p key=${`${batch.run_id} ${batch.sequence}`}>
          <${Link} to="batch" values=${{ run: batch.run_id, n: batch.sequence }}>batch ${batch
            .sequence} of <${Word}>${batch.run_id}<//><//>${": "}
              ${count(batch.trained)} calls trained, ${count(batch.masked)} context only, return ${number(
                batch.reward,
              )}${batch.version === null ? ", not trained yet" : ` → version ${batch.version}`}</p>
      `
    )
  }
    <${Command} text=${`claw pool why ${quoted(t)}`} />`;
}

const about = (of) =>
  html`<${Pairs} rows=${
    Object.entries(of).filter(([, value]) => !isNothing(value)).map(([name, value]) => [
      name.replaceAll("_", " "),
      typeof value === "object" ? html`<${Text} text=${JSON.stringify(value)} />` : html`<${Word}>${value}<//>`,
    ])
  } />`;
/** Of a step, its metadata that has no words of its own here. */
const METADATA = ["model_id", "worker_id", "agent", "channel", "tags", "attempt"];
const MORE = ["sampling", "usage", "integrity", "curation", "digest", "position"];
const some = (of, names) => Object.fromEntries(names.map((name) => [name, of[name]]));

/** State, action, reward and metadata of one step. */
function Step({ call: { step, about: captured, base, tools } }) {
  const versions = step.spans.map(({ run_id, version, start, end }) => `${run_id} ${version} [${start}, ${end})`);
  const rest = step.rewards_total - step.rewards.length;
  const action = some(step, ["finish_reason", "response_id", "status"]);
  const state = {
    prompt_id: step.prompt_id,
    base_call: step.base_call_id,
    base_tokens_kept: step.base_keep || null,
    tools: tools.join(", "),
  };
  const metadata = {
    trainable: step.trainable ? "yes" : `no: ${step.reasons.join(", ")}`,
    versions: versions.join(", "),
    ...some(step, METADATA),
    ...captured,
    ...some(step, MORE),
  };
  return html`
    <dl class="step">
      <dt>State</dt>
      <dd>${count(step.prompt_length)} prompt tokens${base &&
        `: ${count(base.repeated)} messages of the call before, and what stands here`}${about(state)}</dd>
      <dt>Action</dt>
      <dd>${count(step.response_length)} response tokens${about(action)}</dd>
      <dt>Reward</dt>
      <dd>${step.rewards.length
        ? step.rewards.map((slot, key) => html`<${Slot} key=${key} slot=${slot} />${" "}`)
        : "none of its own"}${rest > 0 && ` and ${count(rest)} more`}${step.reward_total !== null &&
        ` total ${number(step.reward_total)}`}</dd>
      <dt>Metadata</dt>
      <dd>${about(metadata)}</dd>
    </dl>
  `;
}

function Call({ ids, call, cursor, plain, words, goTo }) {
  const [open, setOpen] = useState("");
  const { at, step, base, problem } = call;
  const times = step.timings;
  const toggle = (name) => () => setOpen(open === name ? "" : name);
  const place = { g: ids.g, t: ids.t, c: call.call_id };
  return html`
    <section class="panel call" id=${`call-${at}`} aria-label=${`call ${at + 1}`} tabindex="-1">
      <header class="row"><b>call ${at + 1}</b> <${Word}>${call.call_id}<//>
          ${base &&
            html`<span class=${base.left ? "chip branched" : "quiet"}>${
              base.left
                ? `leaves call ${base.at + 1} after ${count(base.repeated)} messages, without its last ${
                  count(base.left)
                }`
                : `repeats ${count(base.repeated)} messages, up to`
            } ${
              base.at !== at - 1 || base.left
                ? html`<button class="plain" onClick=${() => goTo(base.at)}>call ${base.at + 1}</button>`
                : "the call before"
            }</span>`}
          ${step.rewards.slice(0, 8).map((slot, key) => html`<${Slot} key=${key} slot=${slot} />`)}
          ${words.map((word, key) => html`<${Said} key=${key} word=${word} />`)}
          ${!step.trainable && step.position &&
            html`<span class="chip bad">not trainable: <${Word}>${step.reasons.join(", ")}<//></span>`}
          ${call.trained.slice(-3).map(([run, sequence]) =>
            html`<${Link} class="chip" key=${`${run} ${sequence}`} to="batch" values=${{
              run,
              n: sequence,
            }}>trained in batch ${sequence}<//>`
          )}
          <span class="row rest">${times &&
            html`<span class="quiet">${seconds(times.done_us - times.received_us)}</span>`}
            ${step.attempts.length > 1 && html`<span class="quiet">${step.attempts.length} attempts</span>`}
            <button aria-expanded=${open === "step"} onClick=${toggle(
              "step",
            )}>step</button> <${Link} to="tokens" values=${{ ...place, f: ids.f }}>tokens<//></span></header>
        ${open === "step" && html`<${Step} call=${call} />`}
        ${problem && html`<p class="quiet">${problem}</p>`}
        ${call.messages.map((message, n) =>
          html`
            <${Message} key=${message.n} id=${`m-${at}-${n}`} place=${place} message=${message} plain=${plain}
              current=${cursor?.at === at && cursor.n === n} />
                  ${call.left_out > 0 && n + 1 === call.messages.length / 2 &&
                    html`<p class="quiet">… ${count(call.left_out)} messages of this call are not drawn …</p>`}
          `
        )}
      </section>
  `;
}

function Find({ params, path, goTo }) {
  const q = params.get("q") || "";
  const answer = useAnswer(q ? `trajectory/find?${path}&q=${encodeURIComponent(q)}` : null);
  const [at, setAt] = useState(-1);
  const hits = answer.data?.hits || [];
  const to = (index) => {
    setAt(index);
    goTo(hits[index].at, q);
  };
  useEffect(() => {
    setAt(-1);
    if (hits.length) to(0);
  }, [answer.data && q]);
  const submit = (event) => {
    event.preventDefault();
    const text = event.target.elements.q.value;
    if (text !== q) change({ q: text });
    else if (hits.length) to((at + 1) % hits.length);
  };
  return html`
    <form class="row find" role="search"
      onSubmit=${submit}><input name="q" type="search" placeholder="find ( / )" aria-label="Find in the conversation" maxlength="200" value=${q} />
        <span class="quiet" role="status">${q && answer.data &&
          (hits.length
            ? `${at + 1} of ${count(answer.data.total)} calls, Enter for the next`
            : "no call adds that")}${answer.problem?.message}</span></form>
  `;
}

/** Where the keys are, and how one gets there: once what stands around it was read, so that nothing above it grows any more. */
function useCursor(head, { row, page }, goneTo) {
  const [cursor, setCursor] = useState(null);
  const [aim, setAim] = useState(null);
  const serial = useRef(0);
  const goTo = (at, n = 0) => {
    serial.current += 1;
    setAim({
      at: Math.max(0, Math.min(at, head.total - 1)),
      n,
      part: Math.floor(Math.max(0, Math.min(at, head.total - 1)) / CALLS),
      serial: serial.current,
    });
  };
  useEffect(() => {
    const call = aim && row(aim.at);
    const parts = aim
      ? [aim.part - 1, aim.part, aim.part + 1].filter((part) => part >= 0 && part * CALLS < head.total)
      : [];
    if (!call || !parts.every(page)) return;
    const last = call.messages.length - 1;
    const n = typeof aim.n === "string"
      ? Math.max(0, call.messages.findIndex((each) => JSON.stringify(each).toLowerCase().includes(aim.n.toLowerCase())))
      : Math.min(aim.n, last);
    const element = document.getElementById(n > 0 ? `m-${aim.at}-${n}` : `call-${aim.at}`);
    if (!element) return;
    (document.getElementById(`m-${aim.at}-${n}`) || element).focus({ preventScroll: true });
    element.scrollIntoView({ block: "start" });
    setCursor({ at: aim.at, n, last });
    setAim(null);
    goneTo(call.call_id);
  });
  return { cursor, aim, goTo };
}

function Conversation({ ids, head, params, path }) {
  const concernsIt = (update) => concerns(update, "trajectory", ids.g, ids.t);
  const outline = usePages(`trajectory/calls?${path}`, OUTLINE, concernsIt);
  const pages = usePages(`trajectory/messages?${path}`, CALLS, concernsIt);
  const latest = useRef(null);
  const { cursor, aim, goTo } = useCursor(head, pages, (c) => {
    latest.current = c;
    change({ c });
  });
  const c = params.get("c");
  useEffect(() => {
    if (!c || c === latest.current) return;
    const place = head.calls.find((call) => call.call_id === c);
    if (place) goTo(place.at);
    else {read(`trajectory?${path}&c=${encodeURIComponent(c)}`).then(({ at }) => {
        if (at !== null) goTo(at);
      }, () => {});}
  }, [c]);
  const plain = Boolean(params.get("raw"));
  const [ofCall, setOfCall] = useState(false);
  const at = cursor || { at: -1, n: 0, last: 0 };
  useKeys("In the conversation", {
    j: { does: "next message", act: () => (at.n < at.last ? goTo(at.at, at.n + 1) : goTo(at.at + 1, 0)) },
    k: {
      does: "message before",
      act: () => (at.n > 0 ? goTo(at.at, at.n - 1) : goTo(at.at - 1, at.at > 0 ? Infinity : 0)),
    },
    n: { does: "next call", act: () => goTo(at.at + 1) },
    p: { does: "call before", act: () => goTo(at.at - 1) },
    t: { does: "tokens of the call", act: () => go(link("tokens", { ...ids, c: c || head.calls[0]?.call_id })) },
    f: {
      does: "find in the conversation",
      act: () => /** @type {HTMLElement} */ (document.querySelector(".find input")).focus(),
    },
  });
  const part = (index) => {
    const page = pages.page(index);
    if (!page?.data) {
      return page?.problem
        ? html`<p class="problem" role="alert">${page.problem.message} <button onClick=${() =>
          pages.again(index)}>Ask again</button></p>`
        : html`<p class="quiet reading">Reading…</p>`;
    }
    return page.data.calls.map((call) =>
      html`
        <${Call} key=${call.call_id} ids=${ids} call=${call} cursor=${cursor} plain=${plain} goTo=${goTo}
          words=${head.words.filter(({ call_id }) => call_id === call.call_id).slice(-5)} />
      `
    );
  };
  return html`
    <aside class="panel call-side"><h2>Calls <small class="quiet">${count(head.total)}</small></h2>
          <${Tree} head=${head} outline=${outline} cursor=${cursor} go=${goTo} />
          <p class="row legend">${Object.entries(SPANS).map(([name, title]) =>
            html`<span key=${name}><i class=${name.slice(0, -3)}></i>${title} ${seconds(head.time_us[name])}</span>`
          )}</p>
          <h2>Judged</h2><${Judged} head=${head} goTo=${goTo} /><${Why} head=${head} t=${ids.t} />
          ${c &&
            html`<p><label><input type="checkbox" checked=${ofCall} onChange=${({ target }) =>
              setOfCall(target.checked)} /> judge this call, not the trajectory</label></p>`}
          <${Judge} subject=${{ g: ids.g, t: ids.t, c: ofCall && c ? c : undefined }} /></aside>
    <div class="conversation"><div class="row find-bar"><${Find} params=${params} path=${path} goTo=${goTo} />
          <button aria-pressed=${plain} onClick=${() =>
            change({ raw: plain ? "" : "1" })} title="texts as they are, without Markdown">plain text</button></div>
          <${Chunks} count=${Math.ceil(head.total / CALLS)} part=${part} to=${aim} seen=${(first, last) =>
            pages.need(first * CALLS, Math.min(last * CALLS, head.total))} />
          ${!head.total && html`<p class="quiet">No call of it was captured yet.</p>`}</div>
  `;
}

function Head({ ids, row, head, neighbours }) {
  return html`
    <header class="head">
      <h1>
        <${Word}>${row.trajectory_id}<//></h1> <${Copy} text=${row
          .trajectory_id} /> <${Neighbours} of=${neighbours} f=${ids.f} />
        <p>of <${GroupLink} g=${row.group_id} /> · <span class=${`chip ${row.ready ? "good" : ""}`}>${row
          .status}${row.ready ? ", ready" : ""}</span>
          ${row.return_total !== null && html`${" "}· return <b>${number(row.return_total)}</b>`} · ${count(
            head.total + row.calls_left_out,
          )} calls · ${count(head.response_tokens)} tokens said
          ${row.min_version !== null &&
            html`${" "}· version ${
              row.min_version === row.max_version ? row.min_version : `${row.min_version} to ${row.max_version}`
            } of <${Word}>${row.policy_run_id || "?"}<//>`}
          ${row.agent && html`${" "}· <${Word}>${row.agent}<//>`} · <${Word}>${row.channel}<//> ${row.tags.slice(0, 30)
            .map((tag) => html`<span class="chip" key=${tag}><${Word}>${tag}<//></span>${" "}`)}
          · <${Ago} us=${row.last_progress_us} /></p>
        ${!row.ready && row.reasons.length > 0 && html`<p class="quiet">not ready: ${row.reasons.join(", ")}</p>`}
        <${Folded} title="task" text=${row.task} /><${Folded} title="metadata" text=${row.metadata} /></header>
  `;
}

function Trajectory({ params }) {
  const [g, t, f] = ["g", "t", "f"].map((name) => params.get(name) || "");
  const ids = { g, t, f };
  const path = new URLSearchParams({ g, t }).toString();
  const answer = useAnswer(
    g && t ? `trajectory?${path}` : null,
    (update) =>
      concerns(update, "trajectory", g, t) || concerns(update, "group", g) || concerns(update, "run") ||
      concerns(update, "act"),
  );
  const neighbours = useNeighbours("trajectories", { g, t }, f);
  if (!g || !t) {
    return html`
      <p
        class="problem">Which trajectory? An address of this view names one: /trajectory?g=GROUP&t=TRAJECTORY. <${Link} to="explorer">Choose one<//></p>
    `;
  }
  return html`<${Awaited} answer=${answer}>${(head) =>
    html`
      <${Head} ids=${ids} row=${head.trajectory} head=${head} neighbours=${neighbours} />
      <div class="sided columns" key=${path}>
        <${Conversation} ids=${ids} head=${head} params=${params} path=${path} />
      </div>
    `}<//>`;
}

export default { View: Trajectory };
