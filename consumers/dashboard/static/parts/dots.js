// The groups of a batch as dots: each return of each group on one scale, those that differ most first.
import { html } from "/web/shell.js";
import { count, GroupLink, number } from "./words.js";

const WIDTH = 140;

/** groups: of the answer of /batch. */
export function GroupDots({ groups, total }) {
  const all = groups.flatMap(({ returns }) => returns);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const x = (value) => (high > low ? 6 + ((WIDTH - 12) * (value - low)) / (high - low) : WIDTH / 2);
  return html`
    <div class="scrolls" tabindex="0" role="group" aria-label="Groups by spread">
      <table class="group-dots">
        <thead>
          <tr>
            <th>group</th>
            <th>returns, ${number(low)} to ${number(high)}</th>
            <th class="number">mean</th>
            <th class="number">spread</th>
            <th class="number">trained</th>
          </tr>
        </thead>
        <tbody>${groups.map(({ group_id, returns, mean, spread, trained, members }) =>
          html`
            <tr key=${group_id}>
              <td>
                <${GroupLink} g=${group_id} />
              </td>
              <td>
                <svg viewBox=${`0 0 ${WIDTH} 12`} width=${WIDTH} height="12" role="img"
                  aria-label=${`${members} returns, spread ${
                    number(spread)
                  }`}><line x1="0" x2=${WIDTH} y1="6" y2="6" />${returns.map((value) =>
                    html`
                      <circle cx=${x(value)} cy="6" r="4" />
                    `
                  )}</svg>
              </td>
              <td class="number">${number(mean)}</td>
              <td class=${`number ${spread ? "" : "bad"}`}>${spread ? number(spread) : "equal"}</td>
              <td class="number">${count(trained)} of ${count(members)}</td>
            </tr>
          `
        )}</tbody>
      </table>
    </div>
    ${total > groups.length && html`<p class="quiet">${count(total - groups.length)} more groups are not drawn.</p>`}
  `;
}
