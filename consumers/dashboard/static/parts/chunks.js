// A long page whose parts have heights of their own: only those near the screen are drawn, the others are room.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "/web/shell.js";

const GUESS_PX = 700;

/** count parts; `part(at)` draws one; `seen(first, last)`: which are drawn. to: {part, serial}, or null: that part is drawn, wherever the screen is,
 * until `to` is null again: whoever set it scrolls to what is in it. */
export function Chunks({ count, part, seen, to }) {
  const box = useRef(null);
  const heights = useRef([]);
  const [span, setSpan] = useState([0, 2]);
  const height = (at) => heights.current[at] ?? GUESS_PX;
  const room = (first, last) => {
    let sum = 0;
    for (let at = first; at < last; at += 1) sum += height(at);
    return sum;
  };
  const look = () => {
    if (!box.current) return;
    let first = 0;
    let bottom = box.current.getBoundingClientRect().top;
    while (first < count - 1 && bottom + height(first) < -innerHeight) {
      bottom += height(first);
      first += 1;
    }
    let last = first;
    while (last < count && bottom < 2 * innerHeight) {
      bottom += height(last);
      last += 1;
    }
    setSpan((before) => (before[0] === first && before[1] === last ? before : [first, last]));
  };
  const aim = useRef(to);
  aim.current = to;
  useEffect(() => {
    let frame = 0;
    const later = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        if (!aim.current) look();
      });
    };
    const resized = new ResizeObserver(later);
    resized.observe(box.current);
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      resized.disconnect();
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
    };
  }, [count]);
  const [first, last] = to
    ? [Math.max(0, to.part - 1), Math.min(count, to.part + 2)]
    : [Math.min(span[0], Math.max(0, count - 1)), Math.min(span[1], count)];
  useLayoutEffect(() => {
    for (const element of box.current.children) {
      if (element.dataset.part) heights.current[element.dataset.part] = element.offsetHeight;
    }
    if (to) setSpan((before) => (before[0] === first && before[1] === last ? before : [first, last])); // stays when `to` goes
    else look();
  });
  useEffect(() => {
    seen(first, last);
  }, [first, last, count]);
  const parts = [];
  for (let at = first; at < last; at += 1) {
    parts.push(html`<div class="chunk" data-part=${at} key=${at}>${part(at)}</div>`);
  }
  return html`<div ref=${box}>
    <div key="before" style=${{ height: `${room(0, first)}px` }}></div>${parts}<div key="behind" style=${{
    height: `${room(last, count)}px`,
  }}></div>
  </div>`;
}
