// Curves over batches, versions, tokens or time: a canvas for the eye, arrows for the hand, a table for whoever sees neither.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { html, theme, Word } from "/web/shell.js";
import { Table } from "./table.js";
import { number } from "./words.js";

const COLOURS = [
  "var(--accent)",
  "light-dark(#b35900, #ffb066)",
  "var(--good)",
  "light-dark(#8a3fb0, #d3a0f0)",
  "var(--bad)",
  "light-dark(#00788a, #5ad0e0)",
  "light-dark(#7a6a00, #d8c850)",
  "light-dark(#a02c6c, #f58fc0)",
];
const TABLE_ROWS = 200;
const NEAR_PX = 40;
const moment = (us) => new Date(us / 1000).toLocaleString("sv");
const clock = (_, splits, __, ___, step) =>
  splits.map((s) => (step >= 86400 ? moment(s * 1e6).slice(5, 10) : moment(s * 1e6).slice(11, step >= 60 ? 16 : 19)));
const xText = (x, value) => (x === "time" ? moment(value) : `${x} ${number(value)}`);

/** All x of all series, sorted, and for each series its point at each x, or null. */
function joined(series) {
  const xs = [...new Set(series.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, at) => [x, at]));
  return {
    xs,
    rows: series.map(({ points }) => {
      const row = Array(xs.length).fill(null);
      for (const point of points) if (point[1] !== null) row[place.get(point[0])] = point;
      return row;
    }),
  };
}

function options({ box, size, x, series, colours, onIndex }) {
  const edges = series.flatMap((each, at) => (each.edge ? [at + 1] : []));
  const axis = {
    stroke: colours.quiet,
    font: "11px system-ui, sans-serif",
    grid: { stroke: colours.line, width: 1 },
    ticks: { stroke: colours.line, width: 1 },
  };
  return {
    ...size,
    legend: { show: false },
    scales: { x: { time: x === "time" } },
    focus: { alpha: 0.4 },
    padding: [8, 18, 0, 0],
    bands: edges.length === 2
      ? [{ series: edges.reverse(), fill: `color-mix(in srgb, ${colours.lines[0]} 18%, transparent)` }]
      : [],
    cursor: { drag: { x: true, y: false }, points: { size: 7 } },
    axes: [{
      ...axis,
      size: 28,
      ...(x === "time"
        ? { values: clock, space: 60 }
        : { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9] }),
    }, { ...axis, size: 52 }],
    series: [
      {},
      ...series.map((each, at) => ({
        stroke: colours.lines[at],
        width: each.edge ? 0.5 : 1.5,
        dash: each.dashed ? [4, 4] : undefined,
        spanGaps: true,
        points: { show: !each.edge && each.points.length < 60, size: 4 },
      })),
    ],
    hooks: {
      setCursor: [(plot) => {
        if (box.matches(":hover")) onIndex(plot.cursor.idx ?? null);
      }],
    },
  };
}

/** Curves. label: what they are of. series: [{label, points: [[x, y, …], …] in order of x, dashed, edge: one of the two of a band}]; y may be null. x: "time" (UTC
 * microseconds), or the word for one: batch, version, tokens. onPoint({series, point}): a click on a point, or Enter, with the point as it was
 * handed in. Drag: a closer look; double click: all again. Arrows go from point to point. */
export function Curve({ label, series, x = "batch", height = 170, onPoint }) {
  const [box, marks, plot] = [useRef(null), useRef(null), useRef(null)];
  const [at, setAt] = useState(null);
  const [lit, setLit] = useState(0);
  const key = JSON.stringify(series);
  const data = useMemo(() => joined(series), [key]);
  const scaled = useMemo(
    () => [
      data.xs.map((each) => (x === "time" ? each / 1e6 : each)),
      ...data.rows.map((row) => row.map((point) => (point ? point[1] : null))),
    ],
    [data, x],
  );
  const look = `${x} ${height} ${theme.value} ${
    series.map((each) => `${each.label} ${each.dashed || ""} ${each.edge || ""}`).join("\n")
  }`;
  const dark = useDark();

  useEffect(() => {
    const element = box.current;
    if (!data.xs.length || !element) return undefined;
    const colour = (mark) => getComputedStyle(mark).color;
    const colours = {
      quiet: colour(marks.current.querySelector(".curve-quiet")),
      line: colour(marks.current.querySelector(".curve-line")),
      lines: [...marks.current.querySelectorAll(".legend i")].map(colour),
    };
    const size = { width: Math.max(120, element.clientWidth), height };
    const made = new uPlot(options({ box: element, size, x, series, colours, onIndex: setAt }), scaled, element);
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: Math.max(120, element.clientWidth), height }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [look, dark, !data.xs.length]);
  useEffect(() => {
    const made = plot.current;
    if (!made || made.data === scaled) return;
    const xs = made.data[0];
    const closer = made.scales.x.min > xs[0] || made.scales.x.max < xs[xs.length - 1];
    made.setData(scaled, !closer);
    if (closer) made.redraw();
  }, [scaled]);

  const index = at !== null && at < data.xs.length ? at : data.xs.length - 1;
  const value = (row) => data.rows[row][index] || (at === null ? data.rows[row].findLast(Boolean) : null);
  const said = data.xs.length
    ? `${xText(x, data.xs[index])}: ${series.map((each, row) => `${each.label} ${number(value(row)?.[1])}`).join(", ")}`
    : "no points";
  const show = (next) => {
    const to = Math.max(0, Math.min(data.xs.length - 1, next));
    setAt(to);
    plot.current?.setCursor({ left: plot.current.valToPos(scaled[0][to], "x"), top: 10 }, false);
  };
  const choose = (row) => {
    const point = data.rows[row]?.[index];
    if (point && onPoint) onPoint({ series: series[row], point });
  };
  const click = () => {
    const made = plot.current;
    if (!made || !onPoint || made.cursor.idx === null) return;
    const near = data.rows.map((
      row,
      each,
    ) => [
      row[made.cursor.idx] ? Math.abs(made.valToPos(row[made.cursor.idx][1], "y") - made.cursor.top) : Infinity,
      each,
    ]).sort(([a], [b]) => a - b)[0];
    if (near[0] < NEAR_PX) choose(near[1]);
  };
  const steps = {
    ArrowLeft: () => show(index - 1),
    ArrowRight: () => show(at === null ? index : index + 1),
    Home: () => show(0),
    End: () => show(data.xs.length - 1),
    ArrowUp: () => setLit((lit + series.length - 1) % series.length),
    ArrowDown: () => setLit((lit + 1) % series.length),
    Enter: () => choose(lit),
  };
  const pressed = (event) => {
    if (!steps[event.key] || !data.xs.length) return;
    event.preventDefault();
    event.stopPropagation();
    steps[event.key]();
  };
  return html`<figure class="curve">
    <figcaption class="row" ref=${marks}><b>${label}</b> ${
    at !== null && data.xs.length > 0 && html`<span class="quiet">${xText(x, data.xs[index])}</span>`
  }<i class="curve-quiet" hidden></i><i class="curve-line" hidden></i>
      <span class="row legend curve-legend">${
    series.map((each, row) =>
      html`
        <span
          class=${row === lit && series.length > 1 && onPoint ? "lit" : ""}><i style=${{
            color: COLOURS[row % COLOURS.length],
          }} aria-hidden="true"></i><${Word}>${each.label}<//> <b class="number">${number(value(row)?.[1])}</b></span>
      `
    )
  }</span>
    </figcaption>
    ${
    data.xs.length
      ? html`
        <div class=${`curve-plot${onPoint ? " opens" : ""}`} ref=${box} style=${{
          height: `${height}px`,
        }} tabindex="0" role="slider" aria-label=${label}
          aria-valuemin="0" aria-valuemax=${data.xs.length - 1}
          aria-valuenow=${index} aria-valuetext=${said} onClick=${click} onKeyDown=${pressed}
          onMouseLeave=${() => setAt(null)}></div>
      `
      : html`<p class="quiet">no points yet</p>`
  }
    ${data.xs.length > 0 && html`<${AsTable} series=${series} data=${data} x=${x} />`}
  </figure>`;
}

function AsTable({ series, data, x }) {
  const [open, setOpen] = useState(false);
  const every = Math.ceil(data.xs.length / TABLE_ROWS);
  const drawn = data.xs.map((_, at) => at).filter((at) => at % every === 0 || at === data.xs.length - 1);
  return html`<details class="curve-table" onToggle=${({ currentTarget }) =>
    setOpen(currentTarget.open)}><summary>as a table</summary>
    ${
    open && html`<${Table} first label="points" heads=${[
      x,
      ...series.map(({ label }) => `#${label}`),
    ]} rows=${
      drawn.map((at) => [
        x === "time" ? moment(data.xs[at]) : number(data.xs[at]),
        ...data.rows.map((row) => number(row[at]?.[1])),
      ])
    } />`
  }
    ${open && every > 1 && html`<p class="quiet">one of ${every} points</p>`}</details>`;
}

/** Whether the system's theme is dark: canvases are drawn anew when it changes. */
function useDark() {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return dark;
}
