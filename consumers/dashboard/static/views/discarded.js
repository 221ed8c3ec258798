// What is not trained, by reason: each in a sentence, with what to do, and a link to just these rows.
import { html, session, Word } from "/web/shell.js";
import { Link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { filterOf, queryOf } from "../parts/filters.js";
import { concerns } from "../parts/live.js";
import { count } from "../parts/words.js";

const KINDS = { groups: "ready", trajectories: "ready", steps: "trainable" };

function Reasons({ kind, filter }) {
  const without = { ...filter, [KINDS[kind]]: "false" };
  const answer = useAnswer(
    `facets?${queryOf(without, { kind })}`,
    (update) => concerns(update, "trajectory") || concerns(update, "group"),
  );
  return html`
    <section class="panel" aria-label=${kind}>
      <${Awaited} answer=${answer}>${({ total, facets, says }) =>
        html`
          <h2>
            <${Link} to="explorer" values=${{ ...without, kind }}>${count(total)} ${kind}<//> not ${KINDS[kind]}</h2>
          <ul class="why-list">${facets.reason.map(([reason, rows]) =>
            html`
              <li key=${reason}>
                <${Link} to="explorer"
                  values=${{ ...without, kind, reason }}><b>${count(rows)}</b> <${Word}>${reason.replaceAll(
                    "_",
                    " ",
                  )}<//><//>: ${says[reason][0]} <span class="quiet">${says[reason][1]}</span></li>
            `
          )}</ul>
        `}<//></section>
  `;
}

/** Of the run: what its plans hold and do not train, what it skipped, and why ready groups wait. */
function OfRun({ run }) {
  const answer = useAnswer(
    `overview${run ? `?${new URLSearchParams({ run })}` : ""}`,
    (update) => concerns(update, "run"),
  );
  return html`
    <section class="panel" aria-label="The run">
      <${Awaited} answer=${answer}>${({ run: of }) =>
        of
          ? html`<h2>Ready, and left out by run <${Link} to="runs" values=${{
            run: of.run,
          }}><${Word}>${of.run}<//><//></h2>
        <ul class="why-list">${
            [
              ...Object.entries(of.planned.left_out).map((
                [why, rows],
              ) => [rows, "planned trajectories not trained", why]),
              ...Object.entries(of.skipped).map(([why, rows]) => [rows, "groups skipped for good", why]),
              ...of.waiting.reasons.map(({ reason, groups }) => [groups, "of the newest waiting groups", reason]),
            ].map(([rows, what, why]) => html`<li><b>${count(rows)}</b> ${what}: <${Word}>${why}<//></li>`)
          }</ul>`
          : html`<p class="quiet">No run has begun.</p>`}<//></section>
  `;
}

function Discarded({ params }) {
  /** @type {Record<string, any>} */
  const filter = { channel: params.has("channel") ? params.get("channel") : "train", ...filterOf(params) };
  return html`
    <h1>Not trained, by reason</h1>
        <p
      class="quiet">Of ${filter.channel ? html`channel <${Word}>${filter.channel}<//>` : "all channels"}${filter.run &&
        html`, run <${Word}>${filter.run}<//>`}. A call, trajectory or group of its own: put its id into the box above.</p>
        ${Object.keys(KINDS).map((kind) => html`<${Reasons} key=${kind} kind=${kind} filter=${filter} />`)}
        ${session.value.role !== "annotator" && html`<${OfRun} run=${filter.run} />`}
  `;
}

export default { View: Discarded };
