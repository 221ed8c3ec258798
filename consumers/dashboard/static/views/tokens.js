// The tokens of a call, exactly: text and ids, what sampled each and how likely, what a batch trained of it; and its raw record.
import { h } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { html, session, Text, visible, Word } from "/web/shell.js";
import { change, go, Link, link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { useKeys } from "../parts/keys.js";
import { Windowed } from "../parts/list.js";
import { concerns } from "../parts/live.js";
import { Way } from "../parts/neighbours.js";
import { RawRecord } from "../parts/record.js";
import { Pairs } from "../parts/table.js";
import {
  beside,
  character,
  foldsOf,
  lineOf,
  linesOf,
  modelOf,
  nodesOf,
  pieceText,
  search,
  versionBegins,
} from "../parts/token_rows.js";
import { Copy, count, GroupLink, number, percent, TrajectoryLink } from "../parts/words.js";

const LINE = 26;
const LINE_WITH_IDS = 42;
const BANDS = 4;
const UNLIKELY = ["0.1", "0.01", "0.001"];
const ADDRESS_MS = 300;
const KEPT = ["g", "t", "f", "show", "run", "batch", "unlikely"]; // by the next call, too

function View({ params }) {
  const [g, t, c] = ["g", "t", "c"].map((name) => params.get(name) || "");
  if (params.get("topic")) {
    const place = Object.fromEntries(["topic", "partition", "offset"].map((name) => [name, params.get(name) || ""]));
    return html`
      <h1>Raw record</h1>
      <${RawRecord} place=${place} />
    `;
  }
  if (!g || !t) {
    return html`<p class="problem">This address names no trajectory: find one in the <${Link} to="explorer">explorer<//>.</p>`;
  }
  const query = new URLSearchParams(
    [...params].filter(([name, value]) => value && ["g", "t", "c", "from", "to", "run", "batch"].includes(name)),
  );
  const answer = useAnswer(`tokens?${query}`, (update) => concerns(update, "trajectory", g, t));
  return html`<${Awaited} answer=${answer}>${(data) =>
    html`<${Call} key=${`${g} ${t} ${c}`} data=${data} params=${params} />`}<//>`;
}

function Call({ data, params }) {
  const { g, t, c } = data;
  const calls = (place) => place && go(link("tokens", { ...kept(params), c: place }));
  const isOpen = params.get("record") === "1";
  const mayWatch = session.value.role !== "annotator";
  useKeys("Tokens: calls", {
    "[": { does: "the call before, of this trajectory", act: () => calls(data.previous) },
    "]": { does: "the next call", act: () => calls(data.next) },
    ...(mayWatch ? { r: { does: "its raw record", act: () => change({ record: isOpen ? "" : 1 }) } } : {}),
  });
  const way = (c, sign, label) =>
    html`<${Way} to="tokens" place=${c && { ...kept(params), c }} sign=${sign} label=${label} />`;
  return html`
    <header class="row">
      <h1>Tokens of <${TrajectoryLink} g=${g} t=${t} c=${c}><${Word}>${c}<//><//></h1>
          <nav class="quiet" aria-label="Calls">${way(data.previous, "‹", "the call before: [")} call ${count(
            data.call + 1,
          )} of ${count(data.calls)} ${way(data.next, "›", "the next call: ]")}</nav>
          <span class="quiet">of <${TrajectoryLink} g=${g} t=${t} /> in <${GroupLink} g=${g} /></span>
          ${mayWatch &&
            html`<button aria-expanded=${isOpen} onClick=${() =>
              change({ record: isOpen ? "" : 1 })}>raw record <kbd>r</kbd></button>`}
        </header>
        ${data.note && html`<p class="warn" role="status">${visible(data.note)}</p>`}
        ${data.ids && data.ids.length > 0 && html`<${Tokens} data=${data} params=${params} />`}
        ${!data.pieces && html`<${Messages} g=${g} t=${t} c=${c} />`}
        ${isOpen && mayWatch && html`<${RawRecord} place=${{ g, t, c }} />`}
  `;
}

const kept = (params) => Object.fromEntries(KEPT.map((name) => [name, params.get(name) || ""]));

function Messages({ g, t, c }) {
  const answer = useAnswer(`tokens/messages?${new URLSearchParams({ g, t, c })}`);
  return html`
    <section class="panel messages" aria-label="Messages" tabindex="0">
      <${Awaited} answer=${answer}>${(data) =>
        html`
          ${data.cut && html`<p class="quiet">The last 200,000 characters of its messages.</p>`}
          ${data.messages.length === 0 && html`<p class="quiet">Its bodies say nothing in words.</p>`}
          ${data.messages.map(({ role, content }) =>
            html`<article><b><${Word}>${role}<//></b><${Text} text=${content} /></article>`
          )}
        `}<//></section>
  `;
}

/** The lines, and beside them everything about one token. */
function Tokens({ data, params }) {
  const box = useRef(null);
  const [room, setRoom] = useState(0);
  const model = useMemo(() => modelOf(data), [data]);
  const withIds = params.get("show") === "ids";
  const opened = params.get("open") || "";
  const unlikely = Math.log(Number(params.get("unlikely")) || 0.01);
  const [at, setAt] = useCursor(model, params);
  const hover = useSignal(-1);
  const [word, setWord] = useState("");
  const isOpen = useMemo(() => {
    const places = new Set(opened.split(",").filter(Boolean).map((each) => Number(each) - model.first));
    return (first) => opened === "all" || places.has(first);
  }, [opened, model]);
  const lines = useMemo(() => (room ? linesOf(model, room, isOpen, withIds) : []), [model, room, isOpen, withIds]);
  const styled = useMemo(
    () => ({
      model,
      withIds,
      unlikely,
      toggle: (first) => change({ open: [...opened.split(",").filter(Boolean), first + model.first].join(",") }),
    }),
    [model, withIds, unlikely, opened],
  );
  useLayoutEffect(() => {
    const measure = () => setRoom(Math.max(200, box.current.clientWidth - 28));
    const resized = new ResizeObserver(measure);
    resized.observe(box.current);
    measure();
    return () => resized.disconnect();
  }, []);
  const line = lines[lineOf(lines, at)];
  const jump = (what, step, fits) => {
    const place = search(model, at, step, fits);
    setWord(
      place < 0
        ? `No ${what} token ${step > 0 ? "after" : "before"} this one${
          data.from > 0 || data.to < data.length ? " in this range" : ""
        }.`
        : "",
    );
    if (place >= 0) setAt(place);
  };
  const jumps = {
    n: ["unlikely", (place) => data.logprobs[place] !== null && data.logprobs[place] < unlikely],
    m: ["untrained", (place) => !model.trained[place] && (place === 0 || model.trained[place - 1] === 1)],
    v: ["version-changing", (place) => versionBegins(model, place) !== null],
  };
  const both = Object.entries(jumps).flatMap(([key, [what, fits]]) => [
    [key, { does: `next ${what} token`, act: () => jump(what, 1, fits) }],
    [key.toUpperCase(), { does: `${what} token before`, act: () => jump(what, -1, fits) }],
  ]);
  const inFold = line && line.fold;
  useKeys("Tokens", {
    ArrowRight: { does: "next token", act: () => setAt(inFold ? line.to : at + 1) },
    ArrowLeft: {
      does: "token before",
      act: () => setAt(at > 0 && lines[lineOf(lines, at - 1)]?.fold ? lines[lineOf(lines, at - 1)].from : at - 1),
    },
    ArrowDown: { does: "next line", act: () => setAt(beside(model, lines, at, 1)) },
    ArrowUp: { does: "line before", act: () => setAt(beside(model, lines, at, -1)) },
    ...Object.fromEntries(both),
    Enter: {
      does: "unfold the context",
      act: (event) =>
        inFold && event.target.tagName !== "BUTTON" && event.target.tagName !== "A" ? styled.toggle(line.from) : false,
    },
    x: { does: "unfold or fold all context", act: () => change({ open: opened ? "" : "all" }) },
    i: { does: "ids", act: () => change({ show: withIds ? "" : "ids" }) },
  });
  const pointed = (event) => Number(event.target.closest?.("[data-at]")?.dataset.at ?? -1);
  return html`
    <${Summary} model=${model} unlikely=${unlikely} params=${params} withIds=${withIds} opened=${opened}
      jumps=${jumps} jump=${jump} />
    <div class="tokens-body">
      <div class="tokens-pane panel" ref=${box} onMouseOver=${(event) => {
        hover.value = pointed(event);
      }} onMouseLeave=${() => {
        hover.value = -1;
      }}
        onClick=${(event) => {
          if (pointed(event) >= 0) setAt(pointed(event));
        }}>
            ${lines.length > 0 && html`
              <${Windowed} count=${lines.length} height=${withIds && data.pieces ? LINE_WITH_IDS : LINE} at=${lineOf(
                lines,
                at,
              )} role="grid" label="Tokens, by arrow keys"
                row=${(place) =>
                  html`<${Line} key=${place} line=${lines[place]} number=${place} styled=${styled} here=${
                    at >= lines[place].from && at < lines[place].to ? at : -1
                  } />`} />
            `}
          </div>
      <${Detail} model=${model} at=${at} hover=${hover} unlikely=${unlikely} word=${word}
        fold=${inFold ? line : null} />
    </div>
  `;
}

/** The token that keys move, and that the address keeps.
 * @returns {[number, (place: number) => void]} */
function useCursor(model, params) {
  const first = () => {
    const named = Number(params.get("at") ?? NaN);
    return clamp(
      Number.isInteger(named) ? named - model.first : model.stretch.indexOf(model.answer.sampled.length - 1),
      model.count,
    );
  };
  const [at, set] = useState(first);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return [Math.min(at, model.count - 1), (place) => {
    const next = clamp(place, model.count);
    set(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ at: next + model.first }), ADDRESS_MS);
  }];
}

const clamp = (place, size) => Math.max(0, Math.min(place, size - 1));

function Line({ line, number: place, styled, here }) {
  return useMemo(() => {
    const { model } = styled;
    if (line.fold) {
      return html`
        <div role="row"
          class="token-line"><span role="gridcell"><button class="cut fold ${here >= 0 ? "here" : ""}" data-at=${line
            .from} onClick=${() => styled.toggle(line.from)}>
              ▸ ${count(line.to - line.from)} tokens of context <span class="quiet">${foldText(
                model,
                line,
              )}</span></button></span></div>
      `;
    }
    const cells = [];
    for (let at = line.from; at < line.to; at += 1) {
      cells.push(
        h(
          "span",
          { role: "gridcell", class: classOf(styled, at, here), "data-at": at },
          nodesOf(model, at, styled.withIds),
        ),
      );
    }
    return html`<div role="row" aria-rowindex=${place + 1} class="token-line">${cells}</div>`;
  }, [line, styled, here]);
}

function foldText(model, { from, to }) {
  if (!model.answer.pieces) return "";
  const text = (low, high) =>
    model.answer.pieces.slice(low, high).map((piece) => (typeof piece === "string" ? piece : "�")).join("").replace(
      /\s+/g,
      " ",
    );
  return visible(
    `${text(from, Math.min(to, from + 24)).slice(0, 80)} … ${text(Math.max(from, to - 12), to).slice(-30)}`,
  );
}

function classOf({ model, unlikely }, at, here) {
  const names = ["token"];
  const logprob = model.answer.logprobs[at];
  if (model.stretch[at] < 0) names.push("context");
  else names.push(model.trained[at] ? "trained" : "untrained");
  if (model.heat[at] >= 0) names.push(`h${model.heat[at]}`);
  if (logprob !== null && logprob < unlikely) names.push("unlikely");
  if (model.version[at] >= 0) names.push(`band${model.version[at] % BANDS}`);
  if (model.part.has(at)) names.push("part");
  if (model.special.has(model.answer.ids[at])) names.push("special");
  if (at === here) names.push("here");
  return names.join(" ");
}

function Summary({ model, unlikely, params, withIds, opened, jumps, jump }) {
  const { answer } = model;
  const own = answer.logprobs.filter((logprob) => logprob !== null);
  const rare = own.filter((logprob) => logprob < unlikely).length;
  const mean = own.length ? own.reduce((sum, logprob) => sum + logprob, 0) / own.length : null;
  const range = (from, to, label) => html`<button onClick=${() => change({ from, to, at: "" })}>${label}</button>`;
  const size = answer.to - answer.from;
  return html`<section class="row tokens-summary" aria-label="Summary">
    <span>${count(answer.prompt_length)} of prompt + ${count(answer.length - answer.prompt_length)} of reply</span>
    ${
    size < answer.length && html`<span>${count(answer.from)}–${count(answer.to)} are here
      ${answer.from > 0 && range(Math.max(0, answer.from - size), answer.from, "before")} ${
      answer.to < answer.length && range(answer.to, Math.min(answer.length, answer.to + size), "after")
    }</span>`
  }
    ${
    mean !== null &&
    html`<span>mean log-probability ${number(mean)} of ${count(own.length)} sampled · ${count(rare)} unlikely${" "}
      <select aria-label="Unlikely below" value=${params.get("unlikely") || "0.01"} onChange=${(event) =>
      change({ unlikely: event.target.value })}>
        ${
      UNLIKELY.map((bound) => html`<option value=${bound}>below ${percent(Number(bound))}</option>`)
    }</select></span>`
  }
    <${Batch} answer=${answer} />
    <span class="tokens-keys">${
    Object.entries(jumps).map(([key, [what, fits]]) =>
      html`<button onClick=${() => jump(what, 1, fits)}>${what} <kbd>${key}</kbd></button>${" "}`
    )
  }
      <button aria-pressed=${withIds} disabled=${!answer.pieces} onClick=${() =>
    change({ show: withIds ? "" : "ids" })}>ids <kbd>i</kbd></button>
      ${
    foldsOf(model).length > 0 && html`<button aria-pressed=${opened !== ""} onClick=${() =>
      change({ open: opened ? "" : "all" })}>context <kbd>x</kbd></button>`
  }</span>
    <span class="legend" aria-hidden="true">likely ${
    [0, 1, 2, 3, 4, 5, 6, 7].map((level) => html`<i class="h${level}"></i>`)
  } unlikely
      ${
    model.versions.slice(0, 8).map(({ run, version }, place) =>
      html`${" "}<b class=${`band${place % BANDS}`}><${Word}>${run}<//>/${version}</b>`
    )
  } <b class="trained">trained</b> <b class="untrained">not trained</b></span>
  </section>`;
}

function Batch({ answer }) {
  if (!answer.batch) {
    return html`<span class="quiet">no batch has planned its group: what is marked may be trained</span>`;
  }
  const name = ([run, batch]) => `${batch} ${run}`;
  const choose = (event) => {
    const [batch, ...run] = event.target.value.split(" ");
    change({ run: run.join(" "), batch });
  };
  const own = answer.batches.find(({ run, batch }) => run === answer.batch[0] && batch === answer.batch[1]);
  return html`<span>trained in <select aria-label="Batch" value=${name(answer.batch)} onChange=${choose}>${
    answer.batches.slice(-100).map(({ run, batch, made_version: made }) =>
      html`
        <option value=${name([run, batch])}>batch ${batch} of ${run.slice(0, 60)}${made === null
          ? ", not trained yet"
          : `, version ${made}`}</option>
      `
    )
  }</select>
    ${
    own && (own.left_out
      ? html`${" "}<span class="bad">left out: ${visible(own.left_out)}</span>`
      : ` with return ${number(own.return)}`)
  }</span>`;
}

/** Everything about the token that is pointed at, else the one that keys chose. */
function Detail({ model, at: chosen, hover, unlikely, word, fold }) {
  const at = hover.value >= 0 && hover.value < model.count ? hover.value : chosen;
  if (fold && at === chosen) {
    return html`
      <aside class="panel token-detail" aria-live="polite" aria-label="Token">
        <p>${count(fold.to - fold.from)} tokens of context, folded: <kbd>Enter</kbd> unfolds them.</p>
        <p>${word}</p>
      </aside>
    `;
  }
  const { answer } = model;
  const [logprob, stretch, made, version] = [
    answer.logprobs[at],
    answer.sampled[model.stretch[at]],
    character(model, at),
    model.versions[model.version[at]],
  ];
  const place = at + model.first;
  const id = answer.ids[at];
  const rare = logprob < unlikely;
  const broken = answer.pieces && typeof answer.pieces[at] !== "string" && !model.part.has(at);
  const scores = Object.entries(stretch?.scores || {}).map(([name, score]) => `${name} ${number(score)}`).join(", ");
  const ofReply = stretch
    ? [
      [
        "advantage",
        model.trained[at] && stretch.advantage !== null
          ? number(stretch.advantage)
          : visible(stretch.advantage_why || "none: it is not trained"),
      ],
      ["reward of the call", stretch.rewards.length ? visible(stretch.rewards.join(", ")) : "none"],
      ["quality", stretch.quality === null ? null : number(stretch.quality)],
      ["scores", scores && visible(scores)],
      ["tags", stretch.tags.map((tag, at) => html`${at > 0 && ", "}<${Word}>${tag}<//>`)],
      [
        "sampled by",
        html`
          <${TrajectoryLink} g=${answer.g} t=${answer.t} c=${stretch.c}>
            <${Word}>${stretch.c}<//><//>${stretch.temperature !== null &&
              ` at temperature ${number(stretch.temperature)}`}
        `,
      ],
    ]
    : [];
  const rows = [
    [
      "place",
      `${count(place + 1)} of the line, ${stretch ? `${count(place + 1 - stretch.start)} of its reply` : "context"}`,
    ],
    ["id", html`${id}${model.special.has(id) && " (special)"} <${Copy} text=${String(id)} />`],
    ["bytes", answer.pieces && bytesOf(answer.pieces[at])],
    [
      "character",
      made
        ? html`${visible(made.text)} <span class="made-whole">${made.text}</span> of tokens ${
          made.from + model.first
        }–${made.to + model.first}`
        : broken && "its bytes make no whole character here",
    ],
    [
      "log-probability",
      logprob === null
        ? stretch && "not captured"
        : html`${logprob < -1e30 ? "−∞" : logprob} <span class=${rare ? "bad" : "quiet"}>${percent(Math.exp(logprob))}${
          rare && ", unlikely"
        }</span>`,
    ],
    [
      "version",
      version
        ? html`<${Word}>${version.run}<//>/${version.version}${versionBegins(model, at) && ", begins here"}`
        : stretch && "not known",
    ],
    [
      "loss",
      stretch && model.trained[at]
        ? (answer.batch ? "trained" : "may be trained")
        : html`masked: ${visible(stretch ? stretch.untrained_why || "context only" : "context")}`,
    ],
    ["return", answer.return === null ? null : number(answer.return)],
    ...ofReply,
  ];
  return html`
    <aside class="panel token-detail" aria-live="polite" aria-label="Token">
      <p class="token-text">${answer.pieces ? pieceText(answer.pieces[at]) : id}</p>
      <${Pairs} rows=${rows} />
      <p role="status">${word}</p>
    </aside>
  `;
}

const hex = (text) =>
  [...new TextEncoder().encode(text)].map((byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ");
const bytesOf = (piece) =>
  (typeof piece === "string"
    ? hex(piece)
    : piece.map((part, place) => (place % 2 ? part : hex(part))).filter(Boolean).join(" ")).slice(0, 400);

export default { View };
