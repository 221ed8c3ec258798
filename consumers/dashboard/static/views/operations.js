// How the system is run: who reads what and how far behind, topics, workers, dead letters and their way back, generations.
import { useState } from "preact/hooks";
import { ask, html, session, visible, Word } from "/web/shell.js";
import { change, Link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { useBeat } from "../parts/live.js";
import { Command, count, number, percent, span } from "../parts/words.js";

const TABS = {
  workers: ["Workers", Workers],
  groups: ["Consumer groups", Groups],
  topics: ["Topics", Topics],
  letters: ["Dead letters", Letters],
  generations: ["Generations", Generations],
};

function Operations({ params: shown }) {
  const tab = TABS[shown.get("tab")] ? shown.get("tab") : "workers";
  const View = TABS[tab][1];
  return html`
    <h1 class="sr-only">Operations</h1>
    <nav class="tabs" aria-label="Operations">${Object.entries(TABS).map(([name, [title]]) =>
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

function Groups() {
  return html`<${Awaited} answer=${useBeating("operations/groups")}>${({ groups, streams }) =>
    html`
      <p class="quiet">Trainers, gateways and pages follow topics without a group: they are not listed.</p>
      ${!groups.length &&
        html`<p>No consumer group has read these topics yet. <code>claw streams</code> is the first that should.</p>`}
      ${groups.map(({ group, state, members, lag, places }) =>
        html`
          <details open=${lag > 0 || group === streams}>
            <summary><b><${Word}>${group}<//></b> ${state}, ${count(members)} member${members === 1
              ? ""
              : "s"}, <span class=${lag ? "warn" : "quiet"}>${count(lag)} behind</span></summary>
                <div class="scrolls" tabindex="0"><table><thead><tr><th>topic</th><th class="number">partition</th><th class="number">goes on at</th><th class="number">end</th><th class="number">behind</th></tr></thead>
                <tbody>${places.slice(0, 500).map(({ topic, partition, offset, end, behind }) =>
                  html`
                    <tr>
                      <td>${topic}</td>
                      <td class="number">${partition}</td>
                      <td class="number">${offset === null ? "never" : count(offset)}</td>
                      <td class="number">${count(end)}</td>
                      <td class="number">${count(behind)}</td>
                    </tr>
                  `
                )}</tbody></table></div>
              </details>
        `
      )}
    `}<//>`;
}

function Topics() {
  return html`<${Awaited} answer=${useBeating("operations/topics")}>${({ topics, missing }) =>
    html`
      ${missing.length > 0 && html`
        <p class="problem">The broker lacks ${missing.join(", ")}.</p>
        <${Command} text="claw topics create" />
      `}
      <div class="wide" tabindex="0">
        <table>
          <thead>
            <tr>
              <th>topic</th>
              <th>policy</th>
              <th class="number">records, at most</th>
              <th class="doc">what</th>
            </tr>
          </thead>
          <tbody>${topics.map(({ topic, policy, partitions, replication, records, doc, offsets }) =>
            html`
              <tr>
                <td>
                  <details>
                    <summary>${topic}</summary>
                    <p
                      class="quiet">${partitions} partitions, ${replication} replica${replication === 1
                        ? ""
                        : "s"}; offsets by partition, from the first that retention left to the end:</p>
                    <ol start="0" class="offsets">${offsets.map(([begin, end]) =>
                      html`<li class="number">${count(begin)}–${count(end)}</li>`
                    )}</ol>
                  </details>
                </td>
                <td>${policy}</td>
                <td class="number">${count(records)}</td>
                <td class="quiet doc">${doc}</td>
              </tr>
            `
          )}</tbody>
        </table>
      </div>
    `}<//>`;
}

/** The share of its time in which an engine had a call, and what the last change of weights took. */
const busy = ({ serving, idle, paused }) => {
  const all = (serving || 0) + (idle || 0) + (paused || 0);
  return all ? percent((serving || 0) / all) : "–";
};

function Workers() {
  return html`<${Awaited} answer=${useBeating("operations/workers")}>${({ workers, total }) =>
    html`
      ${!total && html`
        <p>No worker has reported yet. One starts with:</p>
        <${Command} text="claw rollout --model DIR" />
      `}
      ${total > workers.length && html`<p class="quiet">${count(workers.length)} of ${count(total)}</p>`}
      ${total > 0 && html`
        <div class="wide" tabindex="0">
          <table>
            <thead>
              <tr>
                <th>worker</th>
                <th>state</th>
                <th>version</th>
                <th class="number">behind</th>
                <th class="number">calls</th>
                <th class="number">KV cache</th>
                <th class="number">busy</th>
                <th>last sync</th>
                <th>why</th>
              </tr>
            </thead>
            <tbody>${workers.map((worker) =>
              html`
                <tr>
                  <th scope="row">
                    <${Word}>${worker.worker}<//></th>
                      <td class=${worker.silent || worker.state === "behind" ? "bad" : ""}>${worker.silent
                        ? `silent for ${span(worker.age_s)}`
                        : worker.state}</td>
                      <td>${worker.version === null
                        ? "–"
                        : html`<${Word}>${worker.run || "base"}<//>/${worker.version}`}</td><td class="number">${count(
                          worker.versions_behind,
                        )}</td>
                      <td class="number">${count(worker.in_flight)}</td><td class="number">${percent(
                        worker.kv_usage,
                      )}</td><td class="number">${busy(worker.seconds)}</td>
                      <td class="quiet">${Object.entries(worker.sync_ms).map(([phase, ms]) =>
                        `${phase} ${number(ms, 0)} ms`
                      ).join(", ").slice(0, 200)}</td><td>${worker.why && visible(worker.why.slice(0, 300))}</td></tr>
              `
            )}</tbody>
          </table>
        </div>
      `}
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
      class="letters-head"><label><input type="checkbox" checked=${Boolean(all)} onChange=${({ target }) =>
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
    ${!total && html`<p>${all ? "None of this reason." : "All were redriven."}</p>`}
    ${may && total > 0 &&
      html`<div class="redrive"><button disabled=${!chosen.size} onClick=${() =>
        redrive([...chosen], true)}>Try to redrive ${chosen.size} (dry run)</button>
      <button onClick=${() => {
        setChosen(new Set(letters.map(({ id }) => id)));
        setPlan(null);
      }}>choose all ${letters.length} here</button></div>`}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${plan && html`<${Plan} plan=${plan} act=${() => redrive(plan.would_redrive, false)} />`}
    <ul class="letters">${letters.map((letter) =>
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

function Generations() {
  return html`<${Awaited} answer=${useAnswer("operations/generations")}>${({ shown, there, prefix }) =>
    html`
      <p>This page shows <b>generation ${shown}</b> of the pool of <b>${prefix}</b>; on the broker ${there.length === 1
        ? "there is"
        : "there are"} ${there.join(", ")}.</p>
      ${there.filter((each) => each !== shown).map((each) =>
        html`
          <p>Generation ${each} is a dashboard of its own:</p>
          <${Command} text=${`claw dashboard --generation ${each} --port 0 --open`} />
        `
      )}
      <p>The pool as it was at a time, or at the offsets of a manifest, is another generation. This makes the next one, and changes nothing in this one:</p>
      <${Command} text=${`claw rebuild --to 2026-11-20T12:00:00 --generation ${Math.max(shown, ...there) + 1}`} />
      <p>Then it is opened with:</p><${Command} text=${`claw dashboard --generation ${
        Math.max(shown, ...there) + 1
      } --port 0 --open`} />
    `}<//>`;
}

export default { name: "operations", title: "Operations", key: "p", roles: ["reader", "operator"], View: Operations };
