// A small curve in a table's cell: the eye sees where it goes, the label says it.
import { html } from "/web/shell.js";

const [WIDTH, HEIGHT] = [120, 24];

/** points: [x, y] in order of x. label: what it shows, in words. low: the least y that the lower edge stands for. */
export function Spark({ points, label, low = null }) {
  if (points.length < 2) return html`<span class="quiet">–</span>`;
  const ys = points.map(([, y]) => y);
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const bottom = low ?? Math.min(...ys);
  const x = (value) => ((value - first) / (last - first || 1)) * WIDTH;
  const y = (value) => HEIGHT - 2 - ((value - bottom) / (Math.max(...ys) - bottom || 1)) * (HEIGHT - 4);
  const line = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return html`
    <svg class="spark" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} width=${WIDTH} height=${HEIGHT} role="img" aria-label=${label}>
      <title>${label}</title>
      <polyline points=${line} />
    </svg>
  `;
}
