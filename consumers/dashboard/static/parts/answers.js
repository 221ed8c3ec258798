// What the API answers, read again when it changes.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { ask, html, Problem } from "/web/shell.js";
import { onChange } from "./live.js";

const AGAIN_MS = 400;
const TIMEOUT_MS = 30000;

/** GET of an address of the API. Throws Problem, also when no answer comes. */
export function read(path) {
  let timer;
  const late = new Promise((_, refuse) => {
    timer = setTimeout(
      () => refuse(new Problem(0, "no answer came within 30 seconds; reload to ask again")),
      TIMEOUT_MS,
    );
  });
  return Promise.race([ask("GET", path), late]).finally(() => clearTimeout(timer));
}

/** The answer of `path` (null or empty: nothing is asked): {data, problem, reading, again}. `about(update)`: whether a change concerns it; it is
 * then read again, at most every 0.4 s, and what was there stays until the answer comes. One that says `again_s` is older than
 * what there is, and no change will tell of that any more: it is read again so many seconds later. */
export function useAnswer(path, about = () => false) {
  const [answer, setAnswer] = useState({ path: null, data: null, problem: null });
  const latest = useRef({});
  latest.current.about = about;
  useLayoutEffect(() => { // asked at once, not after the next paint
    if (!path) return undefined;
    let [alive, busy, due, timer, loaded, renewal] = [true, false, false, null, 0, null];
    const load = async () => {
      timer = null;
      clearTimeout(renewal);
      if (busy) {
        due = true;
        return;
      }
      [busy, due, loaded] = [true, false, Date.now()];
      let next;
      try {
        next = { path, data: await read(path), problem: null };
      } catch (problem) {
        next = { path, data: null, problem };
      }
      busy = false;
      if (!alive) return;
      setAnswer((
        before,
      ) => (next.problem && before.path === path && next.problem.status === 0
        ? { ...before, problem: next.problem }
        : next)
      );
      if (due) later();
      else if (Number.isFinite(next.data?.again_s)) renewal = setTimeout(later, next.data.again_s * 1000);
    };
    const later = () => {
      timer ??= setTimeout(load, Math.max(0, AGAIN_MS - (Date.now() - loaded)));
    };
    latest.current.again = load;
    load();
    const end = onChange((update) => {
      if (update === null || latest.current.about(update)) later();
    });
    return () => {
      alive = false;
      clearTimeout(timer);
      clearTimeout(renewal);
      end();
    };
  }, [path]);
  const own = answer.path === path ? answer : { data: null, problem: null };
  return {
    data: own.data,
    problem: own.problem,
    reading: Boolean(path) && !own.data && !own.problem,
    again: () => latest.current.again?.(),
  };
}

/** What stands where an answer is awaited or went wrong: never nothing. */
export function Awaited({ answer, children }) {
  const { data, problem, reading, again } = answer;
  return html`
    ${problem &&
      html`<p class="problem" role="alert">${problem.message} <button onClick=${again}>Ask again</button></p>`}
    ${reading && html`<p class="quiet reading" role="status">Reading…</p>`}
    ${data && children(data)}
  `;
}
