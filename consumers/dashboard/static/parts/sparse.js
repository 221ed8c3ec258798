// A long list of which only what is looked at is there: pages by offset in an order that stands still, each read again when it changed.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { read } from "./answers.js";
import { onChange } from "./live.js";

const PAGE = 100;
const PAGES_MAX = 30;
const AGAIN_MS = 400;

/** Rows of `/rows?query`: {total, fresh (rows that came since), place, row(at), seen(first, last), take, problem, reading, order, shown (the order
 * that they stand in)}. at: key of the row whose place is sought. about(update): whether a change concerns the list. `take`: the order is made anew, with what came; follow: at each change. */
export function useSparse(query, at, about, follow) {
  const [, setDrawn] = useState(0);
  const draw = () => setDrawn((drawn) => drawn + 1);
  const state = useRef(null);
  const latest = useRef({});
  Object.assign(latest.current, { about, at, follow });
  useLayoutEffect(() => {
    const own = {
      pages: new Map(),
      order: "",
      shown: "",
      seek: true,
      total: null,
      fresh: 0,
      place: null,
      first: 0,
      last: PAGE,
      problem: null,
      stamp: 0,
      alive: true,
      busy: false,
      timer: 0,
      loaded: 0,
    };
    state.current = own;
    const later = (wait) => {
      own.timer ||= setTimeout(load, wait);
    };
    const wanting = () => {
      const pages = [];
      for (let page = Math.floor(own.first / PAGE); page * PAGE < Math.max(own.last, 1); page += 1) pages.push(page);
      return pages.filter((page) => (own.pages.get(page)?.stamp ?? -1) < own.stamp);
    };
    const load = async () => {
      own.timer = 0;
      if (own.busy || !own.alive) return;
      own.busy = true;
      own.loaded = Date.now();
      for (const page of wanting()) {
        const { stamp, order } = own;
        try {
          const place = own.seek && latest.current.at ? { at: latest.current.at } : {};
          const answer = await read(
            `rows?${query}&${new URLSearchParams({
              ...(order ? { order } : {}),
              offset: String(page * PAGE),
              limit: String(PAGE),
              ...place,
            })}`,
          );
          if (!own.alive) return;
          if (order !== own.order) break; // asked before what is new was taken in: it would bring the earlier order back
          if (answer.order !== own.shown) own.pages.clear(); // made anew, or by a server that was started again
          if (own.seek) own.place = answer.place;
          Object.assign(own, {
            seek: false,
            shown: answer.order,
            order: answer.order,
            total: answer.total,
            fresh: answer.new,
            reading: answer.reading,
            problem: null,
          });
          own.pages.delete(page);
          own.pages.set(page, { stamp, rows: answer.rows });
          while (own.pages.size > PAGES_MAX) own.pages.delete(own.pages.keys().next().value);
        } catch (problem) {
          own.problem = problem;
          break;
        } finally {
          if (own.alive) draw();
        }
      }
      own.busy = false;
      if (own.alive && !own.problem && wanting().length) later(0);
      if (own.alive && own.total === 0 && own.fresh) own.take();
    };
    own.seen = (first, last) => {
      Object.assign(own, { first, last });
      if (wanting().length) later(60);
    };
    own.take = () => {
      Object.assign(own, { order: "", seek: true, fresh: 0, stamp: own.stamp + 1 });
      later(0);
    };
    own.again = () => {
      own.problem = null;
      own.stamp += 1;
      later(0);
    };
    const end = onChange((update) => {
      if (update !== null && !latest.current.about(update)) return;
      own.stamp += 1;
      if (latest.current.follow) own.order = "";
      later(Math.max(0, AGAIN_MS - (Date.now() - own.loaded)));
    });
    load();
    return () => {
      own.alive = false;
      clearTimeout(own.timer);
      end();
    };
  }, [query]);
  const own = state.current;
  return {
    total: own?.total ?? null,
    fresh: own?.fresh ?? 0,
    place: own?.place ?? null,
    problem: own?.problem ?? null,
    growing: own?.reading ?? false,
    order: own?.order ?? "",
    shown: own?.shown ?? "",
    row: (index) => own?.pages.get(Math.floor(index / PAGE))?.rows[index % PAGE],
    seen: (first, last) => own?.seen(first, last),
    take: () => own?.take(),
    again: () => own?.again(),
  };
}
