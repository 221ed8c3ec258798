// Lists of groups, trajectories and steps: filtered, searched, sorted by any column, live without moving what is read.
import { useEffect, useRef, useState } from "preact/hooks";
import { html, Word } from "/web/shell.js";
import { change, go, Link, link } from "../parts/address.js";
import { Awaited, read, useAnswer } from "../parts/answers.js";
import { filterOf, FILTERS, optionsOf, queryOf } from "../parts/filters.js";
import { useKeys } from "../parts/keys.js";
import { Windowed } from "../parts/list.js";
import { concerns } from "../parts/live.js";
import { useSparse } from "../parts/sparse.js";
import { Ago, Command, count, middle, number, quoted, taskWords } from "../parts/words.js";

const KINDS = ["groups", "trajectories", "steps"];
/** Columns where the address names none, as it would. */
const SHOWN = {
  groups: "id,task,return,deviation,members,ready,response_tokens,version_max,changed,reasons",
  trajectories: "id,task,reply,return,distance,response_tokens,finish,status,version_max,changed",
  steps: "id,task,reply,reward,response_tokens,finish,trainable,version_max,started,reasons",
};
/** A column that the log has, not the pool: it is read for the rows that are looked at. */
const REPLY = { type: "reply", says: "How its last reply ends." };
const WIDTHS = {
  ids: "minmax(9rem, 1.5fr)",
  reply: "minmax(10rem, 3fr)",
  task: "minmax(9rem, 3fr)",
  version_max: "minmax(8.5rem, 1fr)",
  number: "minmax(5.5rem, 1fr)",
  count: "minmax(5.5rem, 1fr)",
  time_us: "minmax(6.5rem, 1fr)",
  flag: "minmax(5rem, 1fr)",
  word: "minmax(5.5rem, 1.5fr)",
  words: "minmax(7rem, 2fr)",
};
const RIGHT = new Set(["number", "count"]);
const ROW = 32;
const MARKS_MAX = 50;
const ENDINGS_MAX = 60;
const NAMES = ["g", "t", "c"];

const label = (name) => name.replaceAll("_", " ");
const idsOf = (ids) => Object.fromEntries(ids.map((id, at) => [NAMES[at], id]));
const idsIn = (key) =>
  idsOf(
    key.split("/").map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    }),
  );
/** Two trajectories of one group, which can be compared; else false. */
const pairOf = ([one, other, ...more]) =>
  Boolean(other?.t && !more.length && one.g === other.g && one.t !== other.t) && { g: one.g, a: one.t, b: other.t };
const OF_CLIENT = new Set(["id", "reply"]);
const timeOf = (kind) => (kind === "steps" ? "started" : "changed");
/** Columns to ask for: a version is shown with its run, and a reply is read again when its row has another time. */
const columnsOf = (kind, columns) =>
  [...new Set([...columns, timeOf(kind), ...(columns.includes("version_max") ? ["run"] : [])])].filter((name) =>
    !OF_CLIENT.has(name)
  ).join(",");
const widthOf = (name, types) => WIDTHS[name] ?? WIDTHS[types[name].type];
const targetOf = (kind, ids, f) => (kind === "groups" ? ["group", { g: ids.g, f }] : ["trajectory", { ...ids, f }]);

/** How the replies of the rows that are looked at end, read once for each change of a row: {key: {of, text}}. */
function useEndings(kind, rows, wanted) {
  const [endings, setEndings] = useState({});
  const busy = useRef(false);
  useEffect(() => {
    const missing = wanted && !busy.current
      ? rows.filter((row) => endings[row.key]?.of !== JSON.stringify(row.values)).slice(0, ENDINGS_MAX)
      : [];
    if (!missing.length) return;
    busy.current = true;
    const take = (texts) => {
      busy.current = false;
      const fresh = missing.map((row) => [row.key, { of: JSON.stringify(row.values), text: texts[row.key] || "" }]);
      setEndings((before) => ({ ...before, ...Object.fromEntries(fresh) }));
    };
    read(`endings?${queryOf({ key: missing.map((row) => row.key) }, { kind })}`)
      .then((answer) => take(answer.endings), () => busy.current = false); // whatever draws next asks again
  });
  return endings;
}

function Value({ name, type, value, run }) {
  if (value === null || value === undefined || (Array.isArray(value) && !value.length)) {
    return html`<span class="quiet">–</span>`;
  }
  if (name === "task") return html`<${Word}>${taskWords(value)}<//>`;
  if (name === "version_max" && run) {
    return html`<span title=${run}><${Word}>${middle(run, 9)}<//>/${count(value)}</span>`;
  }
  if (name === "distance" && value > 0) return `+${number(value)}`;
  if (type === "time_us") return html`<${Ago} us=${value} />`;
  if (type === "number") return number(value);
  if (type === "count") return count(value);
  if (type === "flag") return html`<span class=${value ? "good" : "quiet"}>${value ? "yes" : "no"}</span>`;
  if (type === "words") return value.slice(0, 6).map((each, at) => html`${at > 0 && ", "}<${Word}>${each}<//>`);
  return html`<${Word}>${value}<//>`;
}

function Ids({ kind, row, f }) {
  const [view, values] = targetOf(kind, idsOf(row.ids), f);
  return html`
    <${Link} to=${view} values=${values} tabindex="-1" title=${row.ids.join(" / ")}>
      <${Word}>${middle(row.ids.at(-1), 13)}<//><//>${row.ids.length > 1 && row.ids.at(-1).length < 9 &&
        html`${" "}<small class="quiet"><${Word}>${middle(row.ids[0], 9)}<//></small>`}
  `;
}

function Row({ index, row, kind, columns, types, current, marked, choose, mark, f, ending }) {
  const style = { height: `${ROW}px` };
  if (!row) {
    return html`
      <div class="cells quiet" role="row" key=${index} style=${style}
        aria-rowindex=${index + 1}><span></span><span role="cell">…</span></div>
    `;
  }
  return html`
    <div class=${`cells ${current ? "current" : ""} ${
      row.values ? "" : "gone"
    }`} role="row" key=${index} style=${style} aria-rowindex=${index + 1} aria-selected=${marked}
      onClick=${() => choose(index)}>
        <span role="cell"><input type="checkbox" tabindex="-1" checked=${marked} aria-label=${`mark ${
          row.ids.at(-1).slice(0, 60)
        }`} onClick=${(event) => event.stopPropagation()} onChange=${() => mark(row.key)} /></span>
        ${columns.map((name) =>
          html`<span role="cell" class=${RIGHT.has(types[name].type) ? "number" : name === "reply" && name}>${
            name === "id"
              ? html`<${Ids} kind=${kind} row=${row} f=${f} />${
                !row.values && html`${" "}<small class="bad">gone</small>`
              }`
              : name === "reply"
              ? html`<${Value} value=${ending && ending.slice(-79)} />`
              : row.values &&
                html`<${Value} name=${name} type=${types[name].type} value=${row.values[name]} run=${row.values.run} />`
          }</span>`
        )}
      </div>
  `;
}

/** Heads that sort: the first press takes the largest first where it is a number or a time. */
function Heads({ columns, types, sort, desc }) {
  const press = (name) => () =>
    change({
      sort: name,
      desc: (name === sort ? !desc : !["word", "words", "ids"].includes(types[name].type)) ? "true" : "",
      at: "",
    });
  return html`<div class="cells heads" role="row"><span></span>${
    columns.map((name) =>
      html`<span role="columnheader" class=${RIGHT.has(types[name].type) ? "number" : ""} aria-sort=${
        name === sort ? (desc ? "descending" : "ascending") : "none"
      }>
    <button onClick=${press(name)} disabled=${name === "reply"} title=${types[name].says}>${label(name)}${
        name === sort && (desc ? " ↓" : " ↑")
      }</button></span>`
    )
  }</div>`;
}

function Search({ params, field }) {
  const inAddress = params.get("text") || "";
  const [text, setText] = useState(inAddress);
  useEffect(() => {
    setText(inAddress);
  }, [inAddress]);
  useEffect(() => {
    if (text === inAddress) return undefined;
    const timer = setTimeout(() => change({ text, at: "" }), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return html`
    <label
      class="search">Text <input type="search" ref=${field} value=${text} placeholder="ids, tags, tasks, notes" onInput=${(
        event,
      ) => setText(event.target.value)} maxlength="1000" /></label>
  `;
}

/** Chips of what is asked for, and a form for all of it. */
function Filters({ filter }) {
  const chips = Object.entries(filter).filter(([name]) => name !== "text").flatMap(([name, value]) =>
    [value].flat().map((each) => [name, each, value])
  );
  const without = (name, each, all) =>
    change({ [name]: Array.isArray(all) ? all.filter((one) => one !== each) : "", at: "" });
  const field = ([name, { type, label: title, hint }]) => {
    const value = filter[name];
    const set = (event) =>
      change({
        [name]: type === "list"
          ? event.target.value.split("\n").map((each) => each.trim()).filter(Boolean)
          : event.target.value,
        at: "",
      });
    if (type === "flag") {
      return html`<label>${title} <select value=${
        value || ""
      } onChange=${set}><option value="">any</option><option value="true">yes</option><option value="false">no</option></select></label>`;
    }
    if (type === "list") {
      return html`<label>${title}, one a line <textarea rows="1" placeholder=${hint || ""} onChange=${set} value=${
        (value || []).join("\n")
      }></textarea></label>`;
    }
    return html`<label>${title} <input type=${type} step="any" value=${value || ""} onChange=${set} /></label>`;
  };
  return html`
    ${chips.map(([name, each, all]) =>
      html`
        ${" "}<button class="chip" title="take this filter out"
          onClick=${() => without(name, each, all)}>${FILTERS[name].label} <${Word}>${each}<//> ×</button>
      `
    )}
        <details class="more-filters">
      <summary>filters</summary>
      <div class="row form">${Object.entries(FILTERS).filter(([name]) => name !== "text").map(field)}</div>
    </details>
  `;
}

function Columns({ types, columns, kind }) {
  const toggle = (name) => {
    const next = columns.includes(name)
      ? columns.filter((each) => each !== name)
      : Object.keys(types).filter((each) => each === name || columns.includes(each));
    change({ cols: next.join(",") === SHOWN[kind] ? "" : next.join(",") });
  };
  return html`
    <details class="columns">
      <summary>columns</summary>
      <div class="row form">${Object.entries(types).filter(([name]) => name !== "id").map(([name, { says }]) =>
        html`
          <label title=${says}><input type="checkbox" checked=${columns.includes(name)} onChange=${() =>
            toggle(name)} /> ${label(name)}</label>
        `
      )}</div>
    </details>
  `;
}

function Facets({ query, order, filter }) {
  const answer = useAnswer(order && `facets?${query}#${order}`); // after the rows, whose order it names
  const last = useRef(null);
  if (answer.data) last.current = answer.data;
  const press = (field, text, before) => () => {
    const rest = before.filter((each) => each !== text);
    const more = field === "tag" ? [...rest, text] : text;
    change({ [field]: before.includes(text) ? rest : more, at: "" });
  };
  if (!last.current) {
    return html`
      <aside class="facets">
        <p class="quiet">Counting…</p>
      </aside>
    `;
  }
  const { facets, says } = last.current;
  const Bar = ({ field, value, rows }) => {
    const before = [filter[field] ?? []].flat();
    const flag = { true: "yes", false: "no" }[String(value)];
    return html`<li><button aria-pressed=${before.includes(String(value))} title=${
      field === "reason" ? says[value].join(" ") : String(value)
    } onClick=${press(field, String(value), before)}><${Word}>${
      field === "task" ? taskWords(value) : field === "run" ? middle(value, 20) : flag ?? value
    }<//> <span class="quiet">${count(rows)}</span></button></li>`;
  };
  return html`<aside class="facets" aria-label="Counts per value">${
    Object.entries(facets).filter(([, values]) => values.length).map(([field, values]) =>
      html`
        <details open=${field !== "task" && field !== "time" || filter[field] !== undefined} key=${field}>
          <summary>${label(field)}</summary>
          <ul class="plain">${values.slice(0, 12).map(([value, rows]) =>
            html`<${Bar} key=${value} field=${field} value=${value} rows=${rows} />`
          )}
          ${values.length > 12 &&
            html`<li class="quiet">and ${values.length > 29 ? "18 or more" : values.length - 12} others</li>`}</ul>
        </details>
      `
    )
  }</aside>`;
}

/** A search through conversations, three seconds at a time. */
function Conversations({ kind, query, filter, f }) {
  const [state, setState] = useState(null);
  const run = async (before) => {
    const settle = (after) => setState((now) => (now?.query === before.query ? after : now)); // else another search is on
    setState({ ...before, busy: true });
    try {
      const answer = await read(
        `conversations?${query}${before?.after ? `&${new URLSearchParams({ after: before.after })}` : ""}`,
      );
      settle({
        query: before.query,
        matches: [...before.matches, ...answer.matches].slice(0, 500),
        looked: before.looked + answer.looked,
        lost: before.lost + answer.lost,
        tooLong: before.tooLong + answer.too_long.length,
        after: answer.after,
      });
    } catch (problem) {
      settle({ ...before, problem, busy: false });
    }
  };
  const begin = () => run({ query, matches: [], looked: 0, lost: 0, tooLong: 0, after: null });
  useEffect(() => {
    setState(null);
  }, [query]);
  if (!filter.text) return null;
  const said = state &&
    `${count(state.matches.length)} with it among the first ${count(state.looked)} looked through${
      state.lost ? `; of ${count(state.lost)} the calls are not in the log any more` : ""
    }${
      state.tooLong
        ? `; ${count(state.tooLong)} trajectories have too many calls for this: open one and search there`
        : ""
    }`;
  return html`<section class="conversations" aria-live="polite">
    ${
    !state
      ? html`
        <button onClick=${begin}>look into conversations, too</button> <span
          class="quiet">within what the other filters leave, 3 seconds at a time</span>
      `
      : html`<p>In conversations: ${said}. ${
        state.busy
          ? html`<span class="quiet">Looking…</span>`
          : state.after
          ? html`<button onClick=${() => run(state)}>go on</button>`
          : "That is all."
      }</p>`
  }
    ${state?.problem && html`<p class="problem" role="alert">${state.problem.message}</p>`}
    ${
    state && html`<ul class="row plain">${
      state.matches.map((ids) => {
        const [view, values] = targetOf(kind, ids, f);
        return html`
          <li key=${Object.values(ids).join("/")}>
            <${Link} to=${view} values=${values}>
              <${Word}>${Object.values(ids).at(-1)}<//><//> ${kind !== "groups" &&
                html`<small class="quiet"><${Word}>${ids.g}<//></small>`}</li>
        `;
      })
    }</ul>`
  }
  </section>`;
}

/** What can be done with the marked rows, or with all that the filter finds. */
function Acts({ kind, filter, marks, total }) {
  const ids = marks.map(idsIn);
  const groups = [...new Set(ids.map(({ g }) => g))];
  const pair = pairOf(ids);
  const own = ids.map((each) => quoted(each.c ?? each.t ?? each.g)).join(" ");
  const within = kind !== "groups" && groups.length === 1 ? ` --group=${quoted(groups[0])}` : "";
  const commands = marks.length
    ? [
      `claw pool curate ${own}${within} --quality=1 --why='…' --dry-run`,
      ...(kind === "steps" ? [] : [`claw pool evict ${own}${within} --why='…' --dry-run`]),
    ]
    : [
      ...(kind === "steps" && filter.text // which the command seeks in conversations, too
        ? []
        : [`claw pool ${kind} ${optionsOf(filter)} --limit=${Math.max(1, total)} --json > ${kind}.jsonl`]),
      "claw export --out=dataset --spec=spec.yaml",
    ];
  return html`<details class="panel acts" open=${marks.length > 0}><summary>${
    marks.length ? `${marks.length} marked` : `all ${count(total)} of this filter`
  }: judge, evict, compare, export</summary>
    ${
    marks.length > 0 && html`<p>${
      pair
        ? html`<${Link} to="group" values=${pair}>Compare the two<//> <kbd>c</kbd>`
        : html`<span class="quiet">Two marked trajectories of one group can be compared.</span>`
    }
      <button onClick=${() =>
      change({ m: "" })}>unmark all</button></p>`
  }
    <p>${
    !marks.length
      ? "Judge all calls that meet it"
      : kind === "steps"
      ? "Judge these"
      : "Judge the calls of these, or evict them"
  }, <${Link} to="curation" values=${{
    tab: "filter",
    kind,
    ...filter,
    place: ids.map((each) => JSON.stringify(Object.values(each))),
  }}>here, counted first<//>.</p>
    <p class="quiet">From a shell:</p>
    ${commands.map((text) => html`<${Command} text=${text} />`)}
  </details>`;
}

/** The rows of the address, asked for beside what their columns are. */
function useRows(params, kind) {
  const [sort, desc] = [params.get("sort") || "", params.get("desc") === "true"];
  const names = (params.get("cols") || SHOWN[kind]).split(",");
  const order = { kind, sort, desc: desc ? "true" : "" };
  const query = queryOf(filterOf(params), { ...order, columns: columnsOf(kind, names) });
  const list = useSparse(
    query,
    params.get("at"),
    (update) => ["group", "trajectory"].some((each) => concerns(update, each)),
    params.get("follow") === "1",
  );
  return { list, names, sort, desc, f: queryOf(filterOf(params), order) };
}

function List({ params, types, kind, rows: { list, names, sort, desc, f } }) {
  const filter = filterOf(params);
  const columns = ["id", ...names.filter((name) => types[name] && name !== "id")];
  const marks = params.getAll("m");
  const [chosen, setChosen] = useState({ order: "", index: -1 });
  const index = chosen.order === list.shown ? chosen.index : list.place ?? -1; // by an effect it came after a key of who sees the rows
  const choose = (at) => setChosen({ order: list.shown, index: at });
  const field = useRef(null);
  const follow = params.get("follow") === "1";
  useEffect(() => {
    if (list.fresh && (follow || list.growing)) list.take();
  }, [list.fresh, follow]);
  const row = index >= 0 ? list.row(index) : undefined;
  useEffect(() => {
    if (!row) return undefined;
    const timer = setTimeout(() => change({ at: row.key }), 200);
    return () => clearTimeout(timer);
  }, [row?.key]);
  const move = (to) => choose(Math.max(0, Math.min(to, (list.total || 1) - 1)));
  const mark = (key) =>
    change({ m: marks.includes(key) ? marks.filter((each) => each !== key) : [...marks, key].slice(-MARKS_MAX) });
  const open = (event) => {
    if (!row || event.target.closest("a, button, summary, input")) return false;
    go(link(...targetOf(kind, idsOf(row.ids), f)));
    return true;
  };
  useKeys("Explorer", {
    f: { does: "search in this list", act: () => field.current?.focus() },
    j: { does: "next row", act: () => move(index + 1) },
    k: { does: "row before", act: () => move(index - 1) },
    Enter: { does: "open the row", act: open },
    x: { does: "mark the row", act: () => row && mark(row.key) },
    c: {
      does: "compare the two marked",
      act: () => {
        const pair = pairOf(marks.map(idsIn));
        if (pair) go(link("group", pair));
        return Boolean(pair);
      },
    },
    n: { does: "take in what is new", act: () => list.fresh > 0 && list.take() },
    Escape: {
      does: "unmark all",
      act: () => {
        if (!marks.length) return false;
        change({ m: "" });
        return true;
      },
    },
  });
  const [onScreen, setOnScreen] = useState([0, 0]);
  const rows = [];
  for (let at = onScreen[0]; at < onScreen[1]; at += 1) if (list.row(at)?.values) rows.push(list.row(at));
  const endings = useEndings(kind, rows, columns.includes("reply"));
  const see = (first, last) => {
    list.seen(first, last);
    setOnScreen([first, last]);
  };
  const widths = `1.6rem ${columns.map((name) => widthOf(name, types)).join(" ")}`;
  const least = `${
    2 + columns.reduce((sum, name) => sum + parseFloat(widthOf(name, types).match(/[\d.]+rem/)[0]) + 0.5, 0)
  }rem`;
  return html`
    <div class="row tools"><${Search} params=${params} field=${field} /><${Filters} filter=${filter} />
          <${Columns} types=${types} columns=${columns} kind=${kind} />
          <label class="follow"><input type="checkbox" checked=${follow} onChange=${() =>
            change({ follow: follow ? "" : "1" })} /> follow</label></div>
    <${Conversations} kind=${kind} query=${f} filter=${filter} f=${f} />
    <div class="sided found">
      <${Facets} query=${queryOf(filter, { kind })} order=${list.order} filter=${filter} />
      <section class="list" aria-label=${kind}>
          <p class="count" role="status">${list.total === null
            ? "Reading…"
            : `${count(list.total)} ${list.total === 1 ? kind.slice(0, -1) : kind}`}${list.growing && " so far"}
            ${list.fresh > 0 &&
              html`${" "}<button class="fresh primary" onClick=${list.take}>${count(list.fresh)} new: take ${
                list.fresh === 1 ? "it" : "them"
              } in</button>`}</p>
          ${list.problem &&
            html`<p class="problem" role="alert">${list.problem.message} <button onClick=${list.again}>Ask again</button></p>`}
          ${list.total === 0 && !list.problem &&
            html`<p class="quiet empty">${
              Object.keys(filter).length
                ? `No ${kind} meet the filter. `
                : `The pool has no ${kind} yet: agents that call the gateway fill it, and claw streams has to run.`
            }
        ${
              Object.keys(filter).length > 0 && html`<${Link} to="explorer" values=${{ kind }}>Take all filters out<//>`
            }</p>`}
          <div class="across" style=${{
            "--columns": widths,
            "--least": least,
          }}><div class="table" role="table" aria-label=${kind} aria-rowcount=${list.total ?? -1}>
            <${Heads} columns=${columns} types=${types} sort=${sort ||
              timeOf(kind)} desc=${desc || !sort} />
            <div class="body" style=${{
              "--rows": `${Math.max(3, list.total ?? 8) * ROW + 2}px`,
            }}><${Windowed} count=${list.total ?? 0} height=${ROW} at=${index} seen=${see} label=${`${kind}, ${
              count(list.total ?? 0)
            } rows`} row=${(at) => {
              const each = list.row(at);
              return html`
                <${Row} index=${at} row=${each} kind=${kind} columns=${columns} types=${types}
                  current=${at === index} ending=${endings[each?.key]?.text} marked=${Boolean(
                    each && marks.includes(each.key),
                  )} choose=${choose} mark=${mark} f=${f} />
              `;
            }} /></div></div></div>
          <${Acts} kind=${kind} filter=${filter} marks=${marks} total=${list.total ?? 0} />
        </section>
    </div>
  `;
}

function View({ params }) {
  const kind = KINDS.includes(params.get("kind")) ? params.get("kind") : "trajectories";
  const [answer, rows] = [useAnswer("columns"), useRows(params, kind)];
  const unknown = params.get("kind") && kind !== params.get("kind");
  return html`
    <div class="row" role="group"
      aria-label="List"><h1>Explorer</h1>${KINDS.map((each) =>
        html`${" "}<${Link} to="explorer" values=${{
          ...filterOf(params),
          kind: each,
          follow: params.get("follow"),
        }} aria-current=${each === kind ? "true" : null} class="kind">${each}<//>`
      )}</div>
        ${unknown &&
          html`<p class="problem">The pool lists groups, trajectories and steps, not <${Word}>${
            params.get("kind")
          }<//>.</p>`}
        <${Awaited} answer=${answer}>${(columns) =>
          html`<${List} key=${kind} params=${params} types=${
            kind === "groups" ? columns[kind] : { ...columns[kind], reply: REPLY }
          } kind=${kind} rows=${rows} />`}<//>
  `;
}

export default { View };
