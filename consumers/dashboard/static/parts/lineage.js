// Lineage drawn: which versions sampled what, what a batch took, which version it made, what that sampled next.
import { useState } from "preact/hooks";
import { html, Word } from "/web/shell.js";
import { Link } from "./address.js";
import { Awaited, useAnswer } from "./answers.js";
import { concerns } from "./live.js";
import { count, number, TrajectoryLink } from "./words.js";

const [WIDTH, GAP, HEIGHT, HEAD] = [190, 70, 46, 34];
const COLUMNS = ["sampled by", "trained on", "batch", "made weights", "which sampled next"];
const QUESTION = 200;

/** The graph of an answer: nodes {id, column, at, …}, links [from, to]. Pure.
 * @param {any} answer
 * @returns {{nodes: any[], links: any[]}} */
export function graphOf(answer) {
  const columns = COLUMNS.map(() => new Map());
  const links = new Set();
  const node = (column, id, fields) => {
    if (!columns[column].has(id)) {
      columns[column].set(id, { id: `${column} ${id}`, column, at: columns[column].size, ...fields });
    }
    return columns[column].get(id);
  };
  const tie = (from, to) => links.add(`${from.id}\n${to.id}`) && undefined;
  const versions = new Map();
  const version = (name) =>
    versions.get(name) || versions.set(name, node(3, name, { kind: "version", name })).get(name);
  for (const batch of answer.batches) {
    const own = node(2, `${batch.run_id} ${batch.sequence}`, {
      kind: "batch",
      run: batch.run_id,
      sequence: batch.sequence,
      through: [batch.first_version, batch.last_version],
    });
    if (batch.made_version !== null) tie(own, version(`${batch.run_id}/${batch.made_version}`));
    for (const trajectory of batch.trajectories) {
      const member = node(1, `${trajectory.group_id}\n${trajectory.trajectory_id}`, {
        kind: "trajectory",
        ...trajectory,
      });
      tie(member, own);
      for (const name of new Set(trajectory.steps.flatMap((step) => step.sampled_by || []))) {
        tie(node(0, name, { kind: "version", name }), member);
      }
    }
  }
  if (answer.kind === "version") version(answer.id);
  for (const each of answer.next) {
    tie(version(each.by), node(4, `${each.group_id}\n${each.trajectory_id}`, { kind: "next", ...each }));
  }
  const nodes = columns.flatMap((column) => [...column.values()]);
  const places = new Map(nodes.map((each) => [each.id, each]));
  return {
    nodes,
    links: [...links].map((each) => {
      const [a, b] = each.split(/\n(?=[0-4] )/);
      return [places.get(a), places.get(b)];
    }).filter(([a, b]) => a && b),
  };
}

const left = (node) => node.column * (WIDTH + GAP);
const top = (node) => HEAD + node.at * HEIGHT;

function Node({ node, lit, setLit }) {
  const inside = {
    version: () => html`<${Link} to="runs" values=${{ lineage: node.name }}>version <${Word}>${node.name}<//><//>`,
    batch: () =>
      html`
        <${Link} to="runs"
          values=${{ run: node.run, batch: node.sequence }}>batch ${count(
            node.sequence,
          )}<//> <small class="quiet">of <${Word}>${node.run}<//>${node.through[0] !== null &&
            `, in versions ${node.through[0]}–${node.through[1]}`}</small>
      `,
    trajectory: () =>
      html`
        <${TrajectoryLink} g=${node.group_id} t=${node.trajectory_id} /> <small
          class="quiet">return ${number(node.reward)}, advantage ${number(node.advantage)}, ${count(
            node.steps.length,
          )} calls of <${Word}>${node.group_id}<//></small>
      `,
    next: () =>
      html`
        <${TrajectoryLink} g=${node.group_id} t=${node.trajectory_id} /> <small
          class="quiet">return ${number(node.return)}, of <${Word}>${node.group_id}<//></small>
      `,
  };
  return html`
    <div class=${`lineage-node ${node.kind}${lit ? " lit" : ""}`} style=${{
      left: `${left(node)}px`,
      top: `${top(node)}px`,
      width: `${WIDTH}px`,
      height: `${HEIGHT - 8}px`,
    }}
      onMouseEnter=${() => setLit(node.id)} onMouseLeave=${() => setLit(null)} onFocusIn=${() =>
        setLit(node.id)} onFocusOut=${() => setLit(null)}>${inside[node.kind]()}</div>
  `;
}

function Graph({ answer }) {
  const [lit, setLit] = useState(null);
  const { nodes, links } = graphOf(answer);
  const size = {
    width: COLUMNS.length * WIDTH + (COLUMNS.length - 1) * GAP,
    height: HEAD + HEIGHT * Math.max(1, ...nodes.map(({ at }) => at + 1)),
  };
  const beside = new Set(links.filter((ends) => ends.some(({ id }) => id === lit)).flat().map(({ id }) => id));
  const path = (ends) => {
    const [a, b] = ends;
    const [x0, y0, x1, y1] = [left(a) + WIDTH, top(a) + HEIGHT / 2 - 4, left(b), top(b) + HEIGHT / 2 - 4];
    return `M${x0} ${y0}C${x0 + GAP / 2} ${y0} ${x1 - GAP / 2} ${y1} ${x1} ${y1}`;
  };
  return html`
    <div class="lineage-scroll" tabindex="0" role="group" aria-label="Lineage as a graph, from left to right">
      <div class="lineage" style=${{ width: `${size.width}px`, height: `${size.height}px` }}>
        <svg width=${size.width} height=${size.height} aria-hidden="true">${links.map((ends) =>
          html`<path d=${path(ends)} class=${ends.some(({ id }) => id === lit) ? "lit" : ""} />`
        )}</svg>
        ${COLUMNS.map((name, column) =>
          html`<b class="lineage-column" style=${{ left: `${left({ column })}px`, width: `${WIDTH}px` }}>${name}</b>`
        )}
        ${nodes.map((node) =>
          html`<${Node} key=${node.id} node=${node} lit=${node.id === lit || beside.has(node.id)} setLit=${setLit} />`
        )}</div>
    </div>
  `;
}

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
    ${(data.batches.length > 0 || data.next.length > 0) && html`<${Graph} answer=${data} />`}
    ${
          data.left_out.trajectories + data.plans_left_out > 0 &&
          html`<p class="quiet">${count(data.left_out.trajectories)} more trajectories and ${
            count(data.left_out.batches + data.plans_left_out)
          } more batches are not drawn.</p>`
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
      <div class="scrolls" tabindex="0">
        <table>
          <thead>
            <tr>
              <th>call</th>
              <th>trained</th>
              <th>sampled by</th>
              <th>asked</th>
            </tr>
          </thead>
          <tbody>${rows.map((row) =>
            html`
              <tr>
                <td>
                  <${TrajectoryLink} g=${row.trajectory.group_id} t=${row.trajectory.trajectory_id} c=${row.call_id}>
                    <${Word}>${row.call_id}<//><//></td><td>${row.trained ? "yes" : "context"}</td>
                <td><${Word}>${(row.sampled_by || []).join(", ") || "–"}<//></td><td>${row.request
                  ? html`<${Word}>${(row.request.asked || "").slice(0, QUESTION)}<//>`
                  : html`<span class="quiet">retention took the call</span>`}</td></tr>
            `
          )}</tbody>
        </table>
      </div>
    </details>
  `;
}
