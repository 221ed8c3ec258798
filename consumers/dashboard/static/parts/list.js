// Long lists drawn in a window: as many rows in the DOM as fit the screen, whatever is behind them.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "/web/shell.js";

const BEYOND = 12;
const PIXELS_MAX = 15e6;

/** count rows of `height` px each; `row(at)` draws one. `seen(first, last)`: which are on the screen, for who loads them. at: the row to
 * keep in sight. Past 15 million pixels, which browsers do not lay out, the scroll bar stands for more rows than it has pixels. */
export function Windowed({ count, height, row, seen, at, label, role = "rowgroup" }) {
  const box = useRef(null);
  const [place, setPlace] = useState({ top: 0, view: 600 });
  const total = count * height;
  const scale = Math.max(1, total / PIXELS_MAX);
  useLayoutEffect(() => {
    const element = box.current;
    let frame = 0;
    const measure = () => {
      frame = 0;
      setPlace({ top: element.scrollTop, view: element.clientHeight });
    };
    const later = () => {
      frame ||= requestAnimationFrame(measure);
    };
    const resized = new ResizeObserver(later);
    resized.observe(element);
    element.addEventListener("scroll", later, { passive: true });
    measure();
    return () => {
      resized.disconnect();
      element.removeEventListener("scroll", later);
      cancelAnimationFrame(frame);
    };
  }, []);
  const top = place.top * scale;
  const first = Math.max(0, Math.min(Math.floor(top / height), count) - BEYOND);
  const last = Math.min(count, Math.ceil((top + place.view) / height) + BEYOND);
  useEffect(() => {
    seen?.(first, last);
  }, [first, last, count]);
  useEffect(() => {
    const element = box.current;
    if (at === undefined || at < 0 || !element) return;
    const [start, end] = [at * height, (at + 1) * height];
    const now = element.scrollTop * scale;
    if (start < now) element.scrollTop = start / scale;
    else if (end > now + element.clientHeight) element.scrollTop = (end - element.clientHeight) / scale;
  }, [at]);
  const rows = [];
  for (let index = first; index < last; index += 1) rows.push(row(index));
  const shift = Math.max(0, place.top - (top - first * height));
  return html`
    <div class="windowed" ref=${box} tabindex="0" role=${role} aria-label=${label}>
      <div class="windowed-all" style=${{ height: `${Math.min(total, PIXELS_MAX)}px` }}>
        <div class="windowed-rows" style=${{ transform: `translateY(${shift}px)` }}>${rows}</div>
      </div>
    </div>
  `;
}
