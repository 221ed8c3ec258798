// Scorers: what each version of each slot said, where raters disagree, what it cost, the evidence, and a scorer tried.
import { useEffect, useState } from "preact/hooks";
import { ask, html, session, Text, visible, Word } from "/web/shell.js";
import { change, Link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { queryOf } from "../parts/filters.js";
import { Spark } from "../parts/spark.js";
import { Table } from "../parts/table.js";
import { Ago, Command, count, number, percent, quoted, span, TrajectoryLink } from "../parts/words.js";

const FIGURES = ["agree", "kappa", "weighted_kappa", "alpha", "spearman", "bias"];
const PAIR = ["raters: press for all of it", ...["subjects", ...FIGURES].map((name) => `#${name.replace("_", " ")}`)];
const LISTED = 20;
const nameOf = ({ slot, version }) => (version === null ? slot : `${slot}@${version}`);

/** Bars of a histogram; each is a button for what was said within it. */
function Bars({ scorer, chosen }) {
  const bars = scorer.histogram?.bars || [];
  const most = Math.max(1, ...bars.map(([, , many]) => many));
  return html`<span class="bars" role="group" aria-label=${`values of ${nameOf(scorer)}`}>${
    bars.map(([low, high, many]) => {
      const words = `${low === high ? number(low) : `${number(low)} to ${number(high)}`}: ${count(many)}`;
      return html`
        <button key=${low} aria-label=${words} title=${words} aria-pressed=${chosen && chosen.low === String(low) &&
          !chosen.failed}
          onClick=${() =>
            change({ slot: scorer.slot, version: scorer.version ?? "", low, high, failed: "" })}><i style=${{
            height: `${Math.max(4, (100 * many) / most)}%`,
          }} /></button>
      `;
    })
  }</span>`;
}

const SCORER = ["scorer", "#subjects", "values: press a bar", "#mean", "trend of the mean", "gave up"].concat(
  ["#seconds p50, p95", "#tokens", "#price"],
);

function scorerRow(scorer, chosen) {
  const { slot, version, failed, trend, cost } = scorer;
  const name = nameOf(scorer);
  const own = chosen && chosen.slot === slot && chosen.version === String(version ?? "") ? chosen : null;
  const gaveUp = Object.values(failed).reduce((sum, many) => sum + many, 0) / (scorer.subjects || 1);
  const press = (word) => () => change({ slot, version: version ?? "", failed: word, low: "", high: "" });
  const words = Object.entries(failed).slice(0, 6).map(([word, many]) =>
    html`${" "}<button class="chip" onClick=${press(word)}><${Word}>${word}<//> ${count(many)}</button>`
  );
  return {
    key: name,
    class: own ? "current" : "",
    cells: [
      html`<${Word}>${name}<//>`,
      count(scorer.subjects),
      html`<${Bars} scorer=${scorer} chosen=${own} />`,
      number(scorer.mean),
      html`<${Spark} points=${trend} label=${`mean from ${number(trend[0]?.[1])} to ${number(trend.at(-1)?.[1])}`} />`,
      html`${gaveUp > 0 ? percent(gaveUp) : "–"}${words}`,
      cost ? `${span(cost.seconds_p50)}, ${span(cost.seconds_p95)}` : "–",
      count(cost?.tokens),
      number(cost?.price),
    ],
  };
}

function Verdict({ id }) {
  return html`<${Awaited} answer=${useAnswer(`rewards/verdict?${queryOf({ id })}`)}>${(verdict) =>
    html`
      <div class="verdict">
        <${Text} text=${verdict.detail || "It gave no reasons."} />
        <p
          class="quiet">${verdict.scope}, ${count(verdict.tokens)} tokens in ${span(
            verdict.seconds,
          )}${verdict.spread !== null && `, spread ${number(verdict.spread)}`}; judged first: <${Word}>${verdict
            .subject}<//></p>
            ${verdict.calls.slice(0, LISTED).map((call) => {
              const [g, t, c] = call.split("/").map((part) => decodeURIComponent(part));
              return html`<p key=${call}>the judge's own call <${TrajectoryLink} g=${g} t=${t} c=${c} /></p>`;
            })}</div>
    `}<//>`;
}

/** What a scorer said within a bar, or where it gave up; the evidence on a click; a rule tried on just these. */
function Said({ chosen, tries }) {
  const answer = useAnswer(`rewards/said?${queryOf(chosen, { limit: LISTED })}`);
  const [open, setOpen] = useState("");
  useEffect(() => setOpen(""), [JSON.stringify(chosen)]);
  return html`
    <section class="panel" aria-label="What it said">
      <${Awaited} answer=${answer}>${({ words, total }) =>
        html`
          <h2>
            <${Word}>${nameOf({ ...chosen, version: chosen.version || null })}<//> ${chosen.failed
              ? html`gave up: <${Word}>${chosen.failed}<//>`
              : `said ${number(Number(chosen.low))}${
                chosen.high === chosen.low ? "" : ` to ${number(Number(chosen.high))}`
              }`}: ${count(total)}${total > words.length &&
              `, the newest ${words.length} of them`}</h2>
                <ul class="said-list">${words.map((word) => {
                  const key = [word.g, word.t, word.c, word.step].join("/");
                  return html`
                    <li
                      key=${key}><b>${number(word.value)}</b> <${TrajectoryLink} g=${word.g} t=${word.t} c=${word
                        .c} /> <span class="quiet"><${Ago}
                              us=${word.at_us} /></span> ${word.verdict_id &&
                                html`<button aria-expanded=${open === key} onClick=${() =>
                                  setOpen(open === key ? "" : key)}>why</button>`}${open === key &&
                                html`<${Verdict} id=${word.verdict_id} />`}</li>
                  `;
                })}</ul>
                <${Trial} tries=${tries} places=${[
                  ...new Map(words.map(({ g, t }) => [`${g}/${t}`, [g, t]])).values(),
                ]} />
        `}<//></section>
  `;
}

function Trial({ tries, places }) {
  const [slot, setSlot] = useState(tries[0] || "");
  const [state, setState] = useState(/** @type {any} */ ({}));
  if (!tries.length) {
    return html`<p class="quiet">To try a scorer on these, start the dashboard with <code>--rewards rewards.yaml</code>.</p>`;
  }
  const go = async () => {
    setState({ busy: true });
    try {
      setState(await ask("POST", "rewards/trial", { slot, places }));
    } catch (problem) {
      setState({ problem });
    }
  };
  return html`
    <div
      class="row"><label>Try <select value=${slot} onChange=${({ target }) => setSlot(target.value)}>${tries.map((
        each,
      ) => html`<option value=${each}>${each}</option>`)}</select></label> <button disabled=${state.busy ||
        session.value.role !== "operator" || !places.length} onClick=${go}>${state.busy
        ? "Trying…"
        : `on these ${places.length}`}</button> <span class="quiet">nothing is written</span></div>
        ${state.problem && html`<p class="problem" role="alert">${state.problem.message}</p>`}
        ${state.trials &&
          html`<ul aria-label="What it would say">${
            state.trials.map((each) =>
              html`<li><b>${
                each.failed ? html`<${Word}>${each.failed}<//>` : each.values.map((value) => number(value)).join(", ")
              }</b> <${TrajectoryLink}
          g=${each.g} t=${each.t} /> <${Text} text=${each.detail.slice(0, 400)} /></li>`
            )
          }</ul>`}
  `;
}

/** Two raters in full, as `claw rewards agree` says it. */
const Report = ({ left, right }) =>
  html`<${Awaited} answer=${useAnswer(`rewards/agreement?${queryOf({ left, right })}`)}>${({ lines }) =>
    html`
      <pre class="report" tabindex="0">${visible(lines.join("\n"))}</pre>
      <${Command} text=${`claw rewards agree ${quoted(left)} ${quoted(right)}`} />
    `}<//>`;

function Agreement({ params }) {
  const answer = useAnswer("rewards/agreement");
  const [left, right] = [params.get("left"), params.get("right")];
  const press = (pair) => () => change({ left: pair.left, right: pair.right });
  const pairRow = (pair) => ({
    key: `${pair.left} ${pair.right}`,
    cells: [
      html`
        <button aria-expanded=${pair.left === left && pair.right === right}
          onClick=${press(pair)}><${Word}>${pair.left}<//> with <${Word}>${pair.right}<//></button>
      `,
      count(pair.figures.subjects),
      ...FIGURES.map((name) => number(pair.figures[name])),
    ],
  });
  return html`
    <section class="panel" aria-label="Agreement">
      <h2>Where raters disagree</h2>
      <${Awaited} answer=${answer}>${({ pairs }) =>
        pairs.length
          ? html`<${Table} first box="wide" label="Pairs of raters" heads=${PAIR} rows=${pairs.map(pairRow)} />`
          : html`<p class="quiet">No two raters have a slot of one name: people judge in <${Link} to="curation">Curation<//>.</p>`}<//>
        ${left && right && html`<${Report} left=${left} right=${right} />`}</section>
  `;
}

function Rewards({ params }) {
  const chosen = params.get("slot") && {
    slot: params.get("slot"),
    version: params.get("version") || "",
    low: params.get("low") || "",
    high: params.get("high") || "",
    failed: params.get("failed") || "",
  };
  return html`
    <h1>Rewards</h1>
    <${Awaited} answer=${useAnswer("rewards")}>${({ scorers, caught_up, tries }) =>
      html`${!caught_up && html`<p class="warn" role="status">Still reading what was said: figures grow.</p>`}
      <section class="panel" aria-label="Scorers">${
        scorers.length
          ? html`<${Table} first box="wide" label="Scorers" heads=${SCORER} rows=${
            scorers.map((each) => scorerRow(each, chosen))
          } />`
          : html`
            <p>Nobody has scored anything. Scorers start with:</p>
            <${Command} text="claw rewards run --config rewards.yaml" />
          `
      }</section>
      ${chosen && html`<${Said} chosen=${chosen} tries=${tries} />`}
      ${scorers.length > 0 && html`<${Agreement} params=${params} />`}`}<//>
  `;
}

export default { View: Rewards };
