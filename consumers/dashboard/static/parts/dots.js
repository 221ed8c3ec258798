// The groups of a batch as dots: each return of each group on one scale, those that differ most first.
import { html } from "/web/shell.js";
import { Table } from "./table.js";
import { count, GroupLink, number } from "./words.js";

const WIDTH = 140;

/** groups: of the answer of /batch. */
export function GroupDots({ groups, total }) {
  const all = groups.flatMap(({ returns }) => returns);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const x = (value) => (high > low ? 6 + ((WIDTH - 12) * (value - low)) / (high - low) : WIDTH / 2);
  const dots = (returns, spread) =>
    html`
      <svg viewBox=${`0 0 ${WIDTH} 12`} width=${WIDTH} height="12" role="img"
        aria-label=${`${returns.length} returns, spread ${
          number(spread)
        }`}><line x1="0" x2=${WIDTH} y1="6" y2="6" />${returns.map((value) =>
          html`<circle cx=${x(value)} cy="6" r="4" />`
        )}</svg>
    `;
  return html`
    <${Table} box="scrolls group-dots" label="Groups by spread" heads=${[
      "group",
      `returns, ${number(low)} to ${number(high)}`,
      ..."#mean, #spread, #trained".split(", "),
    ]} rows=${groups.map(({ group_id, returns, mean, spread, trained, members }) => [
      html`<${GroupLink} g=${group_id} />`,
      dots(returns, spread),
      number(mean),
      html`<span class=${spread ? "" : "bad"}>${spread ? number(spread) : "equal"}</span>`,
      `${count(trained)} of ${count(members)}`,
    ])} />
    ${total > groups.length && html`<p class="quiet">${count(total - groups.length)} more groups are not drawn.</p>`}
  `;
}
