// Answers that come in pages, read as they are needed, and again when they change.
import { useEffect, useRef, useState } from "preact/hooks";
import { read } from "./answers.js";
import { onChange } from "./live.js";

const AGAIN_MS = 400;
const PAGES_MAX = 40;

/** Pages of `size` of `path` (with its query, to which `from` and `limit` are added). `need(first, last)`: rows that are on the screen; `page(number)`:
 * {data, problem} or undefined; `again(number)`: reads it once more. `about(update)`: whether a change concerns them. */
export function usePages(path, size, about) {
  const [, draw] = useState(0);
  const latest = useRef({ path: null, pages: new Map(), busy: new Set(), old: new Set(), span: [0, 0], about });
  if (latest.current.path !== path) {
    latest.current = { path, pages: new Map(), busy: new Set(), old: new Set(), span: [0, 0], about };
  }
  const own = latest.current;
  own.about = about;
  const again = async (number) => {
    if (own.busy.has(number)) return;
    own.busy.add(number);
    own.old.delete(number);
    let page;
    try {
      page = { data: await read(`${path}&from=${number * size}&limit=${size}`), problem: null };
    } catch (problem) {
      page = { data: own.pages.get(number)?.data || null, problem };
    }
    own.busy.delete(number);
    own.pages.set(number, page);
    if (own.pages.size > PAGES_MAX) {
      const middle = (own.span[0] + own.span[1]) / 2 / size;
      own.pages.delete(
        [...own.pages.keys()].sort((one, other) => Math.abs(other - middle) - Math.abs(one - middle))[0],
      );
    }
    if (latest.current !== own) return;
    draw((times) => times + 1);
    if (own.old.has(number)) need(...own.span); // what was read is of before a change that came meanwhile
  };
  const need = (first, last) => {
    own.span = [first, last];
    for (let number = Math.floor(first / size); number * size < last; number += 1) {
      if (!own.pages.has(number) || own.old.has(number)) again(number);
    }
  };
  useEffect(() => {
    let timer = 0;
    const end = onChange((update) => {
      if (update !== null && !own.about(update)) return;
      timer ||= setTimeout(() => {
        timer = 0;
        for (const number of [...own.pages.keys(), ...own.busy]) own.old.add(number);
        need(...own.span);
      }, AGAIN_MS);
    });
    return () => {
      clearTimeout(timer);
      end();
    };
  }, [path]);
  return {
    page: (number) => own.pages.get(number),
    row: (at) => own.pages.get(Math.floor(at / size))?.data?.calls[at % size],
    need,
    again,
  };
}
