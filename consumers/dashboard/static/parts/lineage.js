// Lineage as a table of links: which versions sampled what, which batch took it, which version that made, what that sampled next.
import { html, Word } from "/web/shell.js";
import { Link } from "./address.js";
import { Awaited, useAnswer } from "./answers.js";
import { concerns } from "./live.js";
import { Table } from "./table.js";
import { Ago, Command, count, number, quoted, TrajectoryLink } from "./words.js";

const QUESTION = 200;

const version = (name) => html`<${Link} to="runs" values=${{ lineage: name }}>version <${Word}>${name}<//><//>`;
const asked = (steps) => Math.min(...steps.flatMap(({ request }) => request ? [request.received_us] : []));
const calls = (steps) => `${count(steps.length)} ${steps.length === 1 ? "call" : "calls"}`;
const samplers = (steps) => [...new Set(steps.flatMap((step) => step.sampled_by || []))];

/** Its links, in the order of time: [relation, what, microseconds or nothing, link]. */
function linksOf({ batches, next }) {
  const links = [];
  for (const batch of batches) {
    const own = `batch ${count(batch.sequence)}`;
    const steps = batch.trajectories.flatMap((each) => each.steps);
    for (const name of samplers(steps)) {
      const of = steps.filter((step) => step.sampled_by?.includes(name));
      links.push(["sampled by", `${calls(of)} of ${own}`, asked(of), version(name)]);
    }
    for (const { group_id, trajectory_id, reward, advantage, steps } of batch.trajectories) {
      links.push([
        "trained on",
        html`return ${number(reward)}, advantage ${number(advantage)}, ${
          calls(steps)
        } of <${Word}>${group_id}<//>, sampled by <${Word}>${samplers(steps).join(", ") || "–"}<//>`,
        asked(steps),
        html`<${TrajectoryLink} g=${group_id} t=${trajectory_id} />`,
      ]);
    }
    links.push([
      "in batch",
      html`of run <${Word}>${batch.run_id}<//>${
        batch.first_version !== null && `, in versions ${batch.first_version}–${batch.last_version}`
      }`,
      batch.trained_us,
      html`<${Link} to="batch" values=${{ run: batch.run_id, n: batch.sequence }}>${own}<//>`,
    ]);
    if (batch.made_version !== null) {
      links.push(["made weights", `by ${own}`, batch.trained_us, version(`${batch.run_id}/${batch.made_version}`)]);
    }
  }
  for (const each of next) {
    links.push([
      "sampled next",
      html`return ${number(each.return)}, of <${Word}>${each.group_id}<//>, by version <${Word}>${each.by}<//>`,
      each.changed_us,
      html`<${TrajectoryLink} g=${each.group_id} t=${each.trajectory_id} />`,
    ]);
  }
  return links;
}

const Links = ({ answer }) =>
  html`<${Table} box="wide" label="Links" heads="relation, what, when, link" rows=${
    linksOf(answer).map(([relation, what, us, link]) => [
      relation,
      what,
      html`<${Ago} us=${us < Infinity ? us : null} />`,
      link,
    ])
  } />`;

/** The lineage of a call, trajectory, group or version (RUN/NUMBER). */
export function Lineage({ id }) {
  const answer = useAnswer(
    `lineage?${new URLSearchParams({ id })}`,
    (update) => concerns(update, "run") || concerns(update, "group"),
  );
  return html`
    <section class="panel" aria-label="Lineage">
      <${Awaited} answer=${answer}>${(data) =>
        html`<h2>${data.kind === "unknown" ? "Nothing is known of" : data.kind} <${Word}>${data.id}<//></h2>
    ${
          data.kind === "unknown" &&
          html`<p>No group, trajectory or call of the pool has this id, no plan names it, and it is no version (RUN/NUMBER) that was published.</p>`
        }
    ${
          data.kind === "version" && html`
            <p
              class="quiet">of model <${Word}>${data.weights.model_id}<//>, digest <span class="mono">${data.weights
                .digest.slice(0, 12)}</span>, ${data.weights.checkpoint_uri
                ? html`<${Word}>${data.weights.checkpoint_uri}<//>`
                : "no export"}${data.weights.sequence === null && "; the initial weights: nothing was trained"}</p>
          `
        }
    ${
          data.kind !== "unknown" && data.kind !== "version" && !data.batches.length &&
          html`<p>No batch names it${data.skipped.length ? ":" : ": it waits, or it is not ready."}</p>`
        }
    ${
          (data.skipped || []).slice(0, 50).map((each) =>
            html`<p>run <${Word}>${each.run_id}<//> skipped group <${Word}>${each.group_id}<//>: <${Word}>${each.reason}<//></p>`
          )
        }
    ${(data.batches.length > 0 || data.next.length > 0) && html`<${Links} answer=${data} />`}
    ${
          data.left_out.trajectories + data.plans_left_out > 0 &&
          html`
            <p class="quiet">${count(data.left_out.trajectories)} more trajectories and ${count(
              data.left_out.batches + data.plans_left_out,
            )} more batches are not listed. All of them:</p>
            <${Command} text=${`claw lineage ${quoted(data.id)} --json`} />
          `
        }
    <${Calls} batches=${data.batches} />`}<//></section>
  `;
}

function Calls({ batches }) {
  const rows = batches.flatMap((batch) =>
    batch.trajectories.flatMap((trajectory) => trajectory.steps.map((step) => ({ ...step, trajectory, batch })))
  ).slice(0, 100);
  if (!rows.length) return null;
  return html`
    <details>
      <summary>calls behind it</summary>
      <${Table} label="Calls" heads="call, trained, sampled by, asked" rows=${rows.map((row) => [
        html`
          <${TrajectoryLink} g=${row.trajectory.group_id} t=${row.trajectory.trajectory_id} c=${row.call_id}>
            <${Word}>${row.call_id}<//><//>
        `,
        row.trained ? "yes" : "context",
        html`<${Word}>${samplers([row]).join(", ") || "–"}<//>`,
        row.request
          ? html`<${Word}>${(row.request.asked || "").slice(0, QUESTION)}<//>`
          : html`<span class="quiet">retention took the call</span>`,
      ])} />
    </details>
  `;
}
