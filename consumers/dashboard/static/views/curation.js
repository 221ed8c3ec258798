// Curation and labels: what waits for a person, acts by filter that are counted first, and everything that people did.
import { useEffect, useRef, useState } from "preact/hooks";
import { html, loadSession, session, Text, Word } from "/web/shell.js";
import { change, Link, link } from "../parts/address.js";
import { Awaited, useAnswer } from "../parts/answers.js";
import { filterOf, FILTERS } from "../parts/filters.js";
import { act, Judge, quality, Said, scores, undo, Words, words } from "../parts/judge.js";
import { useKeys } from "../parts/keys.js";
import { concerns } from "../parts/live.js";
import { Turn } from "../parts/messages.js";
import { Folded, Table } from "../parts/table.js";
import { Ago, Command, count, GroupLink, middle, quoted, TrajectoryLink } from "../parts/words.js";

const TABS = { queue: "Review", filter: "By filter", history: "History" };
const NAMES = Object.keys(FILTERS);
const isList = (name) => FILTERS[name]?.type === "list";
const TURNS = 30;
const [PAGE, ITEMS_MAX] = [50, 500]; // of the queue
/** What is asked where the address has no `ask` of its own. */
const ASK = {
  single: "How well does it do what its task asks? Judge the end, not the way.",
  pair: "Which of the two does better what the task asks?",
};
/** @type {[string, string, number, string, number | null][]} key, words, side that is chosen, outcome, strength */
const PAIR = [
  ["1", "◀◀ left, clearly", 0, "chosen", 1],
  ["2", "◀ left, barely", 0, "chosen", 0.25],
  ["3", "= a tie", 0, "tie", null],
  ["4", "right, barely ▶", 1, "chosen", 0.25],
  ["5", "right, clearly ▶▶", 1, "chosen", 1],
  ["x", "both bad", 0, "both_bad", null],
];

/** `channel=val agent=coder "some words"`: options of `claw pool`, and words for its text. */
function typedFilter(typed) {
  const fields = {};
  const rest = [];
  for (const [, name, quoted, bare] of typed.matchAll(/(?:([a-z_]+)=)?(?:"([^"]*)"|(\S+))/g)) {
    if (name && name !== "text") {
      fields[name] = isList(name) ? [...(fields[name] || []), quoted ?? bare] : quoted ?? bare;
    } else rest.push(quoted ?? bare);
  }
  if (rest.length) fields.text = rest.join(" ");
  return fields;
}
const typedOf = (params) =>
  NAMES.flatMap((name) =>
    params.getAll(name).map((value) => (/\s/.test(value) ? `${name}="${value}"` : `${name}=${value}`))
  ).join(" ");

/** The filter in the address, to be typed. A name that is no filter stays in the address, and the answer says so. */
function FilterField({ params }) {
  const now = typedOf(params);
  const [typed, setTyped] = useState(now);
  useEffect(() => setTyped(now), [now]);
  const apply = (event) => {
    event.preventDefault();
    change({ ...Object.fromEntries(NAMES.map((name) => [name, ""])), ...typedFilter(typed), g: "", t: "", o: "" }, {
      replace: false,
    });
  };
  return html`
    <form class="row grow"
      onSubmit=${apply}><label class="grow">Filter <input value=${typed} placeholder='channel=val agent=coder "some words"'
        onInput=${({ target }) =>
          setTyped(target.value)} /></label><button disabled=${typed === now}>Apply</button></form>
  `;
}

const Choice = ({ label, name, value, options }) =>
  html`<label>${label} <select value=${value} onChange=${({ target }) =>
    change({ [name]: target.value, g: "", t: "", o: "", before: "" }, { replace: false })}>
  ${options.map((each) => html`<option value=${each} selected=${each === value}>${each}</option>`)}</select></label>`;

const Whole = ({ label, name, value, min }) =>
  html`<label>${label} <input type="number" class="whole" min=${min} value=${value} onChange=${({ target }) =>
    change({ [name]: target.value, g: "", t: "", o: "" }, { replace: false })} /></label>`;

/** Of two, what both begin with is folded; of a long one, what came long before its end. */
function Conversation({ side, place }) {
  const same = side.turns.filter((turn) => turn.same).length;
  const [hidden, setHidden] = useState(Math.max(same > 1 ? same : 0, side.turns.length - TURNS));
  return html`
    <article class="panel side">
      <h3>
        ${place && html`
          <span class="place">${place}</span>
        `}<${Word}>${side.trajectory_id}<//> <small class="quiet">${side.status}, ${side.calls} ${side.calls === 1
          ? "call"
          : "calls"}${side.left_out > 0 && `, ${side.left_out} not shown`}</small>
        ${side.tags.map((tag) => html`${" "}<span class="chip"><${Word}>${tag}<//></span>`)}</h3>
        ${hidden > 0 &&
          html`<button onClick=${() => setHidden(Math.max(0, hidden - TURNS))}>show ${
            hidden <= same ? "turns that both share" : "earlier turns"
          } (${count(hidden)})</button>`}
        ${side.turns.slice(hidden).map((turn, index) => html`<${Turn} key=${hidden + index} turn=${turn} />`)}
        ${side.turns.length === 0 &&
          html`<p class="quiet">No conversation in words: its calls were made by token ids, or their text is lost.</p>`}
        <${Words} title="Others said" words=${side.others} />
        <${Words} title="Scorers said" words=${side.scorers} />
      </article>
  `;
}

function Pair({ shown, name, moves, done }) {
  const spent = useRef(false);
  const prefer = async ([, label, side, result, strength]) => {
    if (!session.value.may_judge || spent.current) return; // nobody has seen yet what a key at the same moment would judge
    spent.current = true;
    const ids = shown.sides.map(({ trajectory_id }) => trajectory_id);
    const body = {
      group_id: shown.group_id,
      chosen: ids[side],
      rejected: ids[1 - side],
      outcome: result,
      name,
      ...(strength === null ? {} : { strength }),
    };
    const putBack = done(); // the next pair comes at once: a second key is meant for it
    if (!await act("preferences", body, `${label} — u takes it back`)) {
      spent.current = false;
      putBack();
    }
  };
  useKeys(
    "Prefer",
    Object.fromEntries(PAIR.map((each) => [each[0], { does: each[1], act: () => prefer(each) }])),
  );
  return html`
    <section class="panel judge" aria-label="Prefer">
      <div class="row">${PAIR.map((each) =>
        html`<button disabled=${!session.value.may_judge} onClick=${() => prefer(each)}>${each[1]} <kbd>${
          each[0]
        }</kbd></button>`
      )}
          ${moves}</div>
      <div class="written">
        <${Words} title="You said" words=${shown.mine.map((word) => ({ ...word, who: null }))} />
        <${Words} title="Others said" words=${shown.others} />
      </div>
      <${Said} />
    </section>
  `;
}

const steps = (number) => `${count(number)} ${number === 1 ? "step" : "steps"}`;
const erased = ({ groups, trajectories: number }) =>
  groups ? `${count(groups)} ${groups === 1 ? "group" : "groups"}, ${trajectories(number)}` : trajectories(number);
const trajectories = (number) => `${count(number)} ${number === 1 ? "trajectory" : "trajectories"}`;
const keyOf = ({ group_id, trajectory_id, other_id }) =>
  JSON.stringify([group_id, ...[trajectory_id, other_id || ""].sort()]);

function Queue({ params }) {
  const mode = params.get("mode") === "pair" ? "pair" : "single";
  const order = params.get("order") || "doubt";
  const name = params.get("name") || "overall";
  const [seen, setSeen] = useState(/** @type {Set<string>} */ (new Set()));
  const judged = useRef([]);
  const asked = link("queue", {
    mode,
    order,
    seed: params.get("seed"),
    overlap: params.get("overlap"),
    people: params.getAll("people"),
    evaluation: params.get("evaluation"),
    limit: Math.min(PAGE * (1 + Math.floor(seen.size / PAGE)), ITEMS_MAX), // what is skipped stays open, and stands first
    ...filterOf(params),
  }).slice(1);
  const onScreen = useRef({ asked: "", key: "" });
  const queue = useAnswer(
    asked,
    (update) => concerns(update, "act") || concerns(update, "trajectory"),
  );
  useEffect(() => { // another tab signed somebody else in: this one begins anew under that name
    if (queue.data && queue.data.who !== session.value.who) loadSession();
  }, [queue.data]);
  const items = queue.data?.items || [];
  const address = { group_id: params.get("g"), trajectory_id: params.get("t"), other_id: params.get("o") };
  const isNew = (item) => !seen.has(keyOf(item));
  // Who is about to press a key judges what they see, whatever comes first by now.
  const kept = onScreen.current.asked === asked &&
    items.find((each) => keyOf(each) === onScreen.current.key && isNew(each));
  const current = address.group_id && address.trajectory_id ? address : kept || items.find(isNew);
  onScreen.current = { asked, key: current ? keyOf(current) : "" };
  const at = current ? items.findIndex((each) => keyOf(each) === keyOf(current)) : -1;
  const open = (item, options) =>
    change(item ? { g: item.group_id, t: item.trajectory_id, o: item.other_id } : { g: "", t: "", o: "" }, options);
  const show = (item) => item && open(item);
  const before = () => (at > 0 ? items[at - 1] : judged.current.pop());
  /** On to what this tab has not shown yet, be it that this one was judged or skipped. */
  const pass = () => {
    const others = items.filter((each) => isNew(each) && keyOf(each) !== keyOf(current));
    setSeen((all) => new Set([...all, keyOf(current)]));
    open(others.find((each) => items.indexOf(each) > at) || others[0], { replace: false });
  };
  /** Goes on at once; what it returns brings the item back, whose judgement did not get into the log. */
  const done = () => {
    const key = keyOf(current);
    judged.current.push(current);
    pass();
    return () => setSeen((all) => new Set([...all].filter((each) => each !== key)));
  };
  const back = async () => {
    const answer = await undo();
    const [place] = answer?.undone?.subjects || [];
    if (!place) return;
    const item = { group_id: place.g, trajectory_id: place.t, other_id: place.o };
    setSeen((all) => new Set([...all].filter((each) => each !== keyOf(item))));
    open(item);
  };
  useKeys("Review", {
    j: { does: "the next one", act: () => show(items[Math.min(items.length - 1, at + 1)]) },
    k: { does: "the one before; above the first, what you judged last", act: () => show(before()) },
    s: { does: "skip: not again in this tab", act: () => current && pass() },
    u: { does: "take your latest act back, and show it", act: () => back() },
  });
  const moves = html`
    <button onClick=${pass}>Skip <kbd>s</kbd></button>
    <button disabled=${!session.value.may_judge} onClick=${back}>Undo <kbd>u</kbd></button>
  `;
  const path = current &&
    link("subject", { group_id: current.group_id, trajectory_id: current.trajectory_id, other_id: current.other_id })
      .slice(1);
  const subject = useAnswer(
    path ?? null,
    (update) => concerns(update, "act") || concerns(update, "trajectory", current.group_id),
  );
  return html`
    <div class="row">
      <${Choice} label="Show" name="mode" value=${mode} options=${["single", "pair"]} />
      <${Choice} label="Order" name="order" value=${order} options=${["doubt", "newest", "draw"]} />
      ${order === "draw" && html`<${Whole} label="Seed" name="seed" value=${params.get("seed") || 0} />`}
      <${Whole} label="People each" name="overlap" min="1" value=${params.get("overlap") || 1} />
      <label>Shared by <input value=${params.getAll("people").join(", ")} placeholder="ann, bob: by lot" onChange=${(
        { target },
      ) => change({ people: words(target.value), g: "", t: "", o: "" })} /></label>
      <label class="check"><input type="checkbox" checked=${params.get("evaluation") === "true"} onChange=${(
        { target },
      ) => change({ evaluation: target.checked ? "true" : "", g: "", t: "", o: "" })} /> evaluation, too</label>
      <${FilterField} params=${params} />
    </div>
    <div class="sided review">
      <aside class="panel">
        <${Awaited} answer=${queue}>${(data) =>
          html`
            <p role="status"><b>${count(data.open)}</b> waiting, you judged <b>${count(
              data.progress[data.who] || 0,
            )}</b> of ${count(data.total)}</p>
            <p>${Object.entries(data.progress).map(([who, number]) =>
              html`<span class="chip"><${Word}>${who}<//> ${count(number)}</span>${" "}`
            )}</p>
            <ol class="queue">${data.items.map((item) =>
              html`
                <li key=${keyOf(item)}>
                  <${Link} to="curation" values=${{
                    ...Object.fromEntries([...params].filter(([name]) => !NAMES.includes(name))),
                    ...filterOf(params),
                    g: item.group_id,
                    t: item.trajectory_id,
                    o: item.other_id,
                  }}
                    aria-current=${current && keyOf(item) === keyOf(current) ? "true" : null}>
                    <${Word}>${middle(item.trajectory_id)}<//>${item.other_id &&
                      html`${" "}· <${Word}>${middle(item.other_id)}<//>`}<//></li>
              `
            )}</ol>
          `}<//></aside>
          <div class="subject"><p class="ask"><b><${Text} text=${params.get("ask") || ASK[mode]} /></b></p>${current
            ? html`<${Awaited} answer=${subject}>${(data) =>
              html`
                <p class="quiet">group <${GroupLink} g=${data.group_id} /> · <${TrajectoryLink} g=${data
                  .group_id} t=${current.trajectory_id}>all of it<//></p>
                <${Folded} title="task" text=${data.sides[0].task} />
                <div class="sides">${data.sides.map((side, index) =>
                  html`<${Conversation} key=${side.trajectory_id} side=${side} place=${
                    data.sides.length > 1 && ["Left", "Right"][index]
                  } />`
                )}</div>
                ${data.sides.length > 1
                  ? html`<${Pair} key=${path} shown=${data} name=${name} moves=${moves} done=${done} />`
                  : html`
                    <${Judge} key=${path} subject=${{ g: data.group_id, t: current.trajectory_id }} name=${name}
                      review=${{ ...data.sides[0], moves }} judged=${done} />
                  `}
              `}<//>`
            : queue.data && html`
              <p class="quiet">${queue.data.total
                ? "Nothing more waits for you here."
                : "No trajectory that is over meets this filter."}</p>
              ${queue.data.open > 0 &&
                html`<p><button class="primary" onClick=${() => setSeen(new Set())}>Go through what you skipped (${
                  count(items.length)
                })</button></p>`}
              <${Said} />
            `}</div>
        </div>
  `;
}

const KINDS = {
  steps: "the steps that meet it",
  trajectories: "all steps of the trajectories that meet it",
  groups: "all steps of the groups that meet it",
};

/** A dry run first; the act itself is for exactly what was counted. */
function useCounted(path, body, counted, doing) {
  const [answer, setAnswer] = useState(null);
  const asked = JSON.stringify(body);
  const ready = answer !== null && answer.asked === asked;
  const send = async (dry_run) => {
    const told = await act(
      path,
      { ...body, dry_run, ...(dry_run ? {} : { expected: answer.digest }) },
      (data) => (dry_run ? counted(data) : doing(data)),
    );
    setAnswer(dry_run && told ? { asked, ...told } : null);
  };
  return { answer: ready ? answer : null, count: () => send(true), go: () => send(false) };
}

function Subjects({ subjects }) {
  return html`<ul class="subjects">${
    subjects.map(({ g, t, c }) =>
      html`
        <li>
          ${t
            ? html`
              <${TrajectoryLink} g=${g} t=${t} c=${c}>
                <${Word}>${g}<//> / <${Word}>${t}<//>${c && html`${" "}/ <${Word}>${c}<//>`}<//>
            `
            : html`<${GroupLink} g=${g} />`}</li>
      `
    )
  }</ul>`;
}

/** Places of an address: [group], [group, trajectory] or [group, trajectory, call], each as JSON. */
function placesOf(params) {
  return params.getAll("place").flatMap((text) => {
    try {
      return [JSON.parse(text)];
    } catch {
      return [];
    }
  });
}
const Chosen = ({ places }) =>
  places.length > 0 &&
  html`<p>${count(places.length)} chosen: ${
    places.slice(0, 20).map((place) => html`<span class="chip"><${Word}>${[place].flat().join(" / ")}<//></span>${" "}`)
  }</p>`;

/** @type {[string, string, string, (text: string) => any][]} */
const FIELDS = [
  ["quality", "Quality", "0 to 1", quality],
  ["tags", "Tags", "leak, good (they replace the others)", words],
  ["scores", "Scores", "entropy@1=0.9", scores],
  ["note", "Note", "why", String],
];

const useUndo = () => useKeys("Curation", { u: { does: "take your latest act back", act: () => undo() } });

function ByFilter({ params }) {
  useUndo();
  const [trainable, setTrainable] = useState("");
  const [texts, setTexts] = useState({});
  const kind = KINDS[params.get("kind")] ? params.get("kind") : "steps";
  const places = placesOf(params);
  const body = {
    kind,
    ids: params.getAll("id"),
    places,
    where: filterOf(params),
    ...(trainable ? { trainable: trainable === "train" } : {}),
  };
  let wrong = "";
  for (const [name, , , parse] of FIELDS) {
    try {
      if (texts[name]?.trim()) body[name] = parse(texts[name]);
    } catch (problem) {
      wrong = problem.message;
    }
  }
  const run = useCounted(
    "curations",
    body,
    (data) => `would judge ${steps(data.steps)}`,
    (data) => `judged ${steps(data.steps)} — u takes it back`,
  );
  const passive = !session.value.may_judge || Boolean(wrong);
  return html`<section class="panel"><h2>Judge what meets a filter</h2>
      <div class="row"><${Choice} label="Of" name="kind" value=${kind} options=${
    Object.keys(KINDS)
  } /> <span class="quiet">${KINDS[kind]}</span></div>
      <${FilterField} params=${params} />
      <${Chosen} places=${[...body.ids, ...places]} />
      <div class="row"><label>Trainable <select value=${trainable} onChange=${({ target }) =>
    setTrainable(
      target.value,
    )}><option value="">as it is</option><option value="train">train</option><option value="not">do not train</option></select></label>
        ${
    FIELDS.map(([name, label, hint]) =>
      html`<label>${label} <input dir="auto" placeholder=${hint} value=${texts[name] || ""} onInput=${({ target }) =>
        setTexts({ ...texts, [name]: target.value })} /></label>`
    )
  }</div>
      ${wrong && html`<p class="problem">${wrong}</p>`}
      <div class="row"><button disabled=${passive} onClick=${run.count}>Count</button>
        <button class="primary" disabled=${passive || !run.answer?.steps} onClick=${run.go}>Judge ${
    run.answer ? steps(run.answer.steps) : "(count first)"
  }</button>
        <button disabled=${!session.value.may_judge} onClick=${() => undo()}>Undo <kbd>u</kbd></button></div>
      <${Said} />
      ${
    run.answer && html`<${Subjects} subjects=${run.answer.subjects} />${
      run.answer.command && html`
        <p class="quiet">The same as a command:</p>
        <${Command} text=${run.answer.command.map(quoted).join(" ")} />
      `
    }`
  }
    </section>
    ${
    session.value.role === "operator" &&
    html`<${Evict} key=${JSON.stringify([body.ids, places])} chosen=${body.ids} places=${
      places.filter((place) => place.length < 3)
    } />`
  }`;
}

function Evict({ chosen, places }) {
  const [ids, setIds] = useState(chosen.join("\n"));
  const [why, setWhy] = useState("");
  const [group, setGroup] = useState("");
  const body = {
    ids: ids.split("\n").map((each) => each.trim()).filter(Boolean),
    places,
    why,
    ...(group.trim() ? { group: group.trim() } : {}),
  };
  const run = useCounted(
    "evictions",
    body,
    (
      data,
    ) => (data.unknown.length
      ? `the pool has no ${data.unknown.join(", ")}: nothing would be evicted`
      : `would evict ${erased(data)}`),
    (data) => `evicted ${erased(data)}`,
  );
  return html`
    <section
      class="panel"><h2>Erase groups or trajectories from the pool</h2><p class="quiet">Their facts stay in the log. It cannot be undone, and what comes for a group later is ignored.</p><${Chosen} places=${places} />
        <div class="row"><label class="grow">Ids of trajectories or groups, one a line <textarea rows="2" value=${ids} onInput=${(
          { target },
        ) => setIds(target.value)} /></label>
          <label>Their group <input dir="auto" placeholder="where several have such a trajectory" value=${group} onInput=${(
            { target },
          ) => setGroup(target.value)} /></label>
          <label>Why <input dir="auto" value=${why} onInput=${({ target }) => setWhy(target.value)} /></label></div>
        <div class="row"><button disabled=${!(body.ids.length + places.length) || !why.trim()} onClick=${run
          .count}>Count</button>
          <button class="bad" disabled=${!run.answer?.trajectories && !run.answer?.groups} onClick=${run
            .go}>Evict ${run.answer ? erased(run.answer) : "(count first)"}</button></div>
        ${run.answer && html`<${Subjects} subjects=${run.answer.subjects} />`}</section>
  `;
}

const actRow = (each) => ({
  key: each.act_id,
  class: each.stands ? "" : "fallen",
  cells: [
    html`<${Ago} us=${each.at_us} />`,
    html`${each.who === null ? "operator" : html`<${Word}>${each.who}<//>`}${
      each.through && html`${" "}<small class="quiet">${each.through}</small>`
    }`,
    html`${each.says.map((text) => html`<${Text} text=${text} />`)}${
      !each.stands && html`<small class="quiet">does not stand any more</small>`
    }`,
    html`<${Subjects} subjects=${each.subjects} />`,
    count(each.events),
    each.may_undo && session.value.may_judge && html`<button onClick=${() => undo(each.act_id)}>Take back</button>`,
  ],
});

function History({ params }) {
  useUndo();
  const [kind, who] = [params.get("kind") || "all", params.get("who") || ""];
  const answer = useAnswer(
    link("acts", { kind: kind === "all" ? "" : kind, who, before: params.get("before") }).slice(1),
    (update) => concerns(update, "act"),
  );
  return html`
    <div class="row"><${Choice} label="Show" name="kind" value=${kind} options=${[
      "all",
      "judged",
      "preferred",
      "curated",
      "undone",
      "evicted",
    ]} />
          <label><input type="checkbox" checked=${who !== ""} onChange=${({ target }) =>
            change({ who: target.checked ? session.value.who : "", before: "" }, {
              replace: false,
            })} /> only mine</label></div>
    <${Said} />
    <${Awaited} answer=${answer}>${(data) =>
      html`
        <${Table} box="wide" label="Acts" heads="When, Who, What, Of, #Events, " rows=${data.acts.map(actRow)} />
              ${data.acts.length === 0 && html`<p class="quiet">Nobody did any of this yet.</p>`}
              ${data.next &&
                html`<button onClick=${() => change({ before: data.next }, { replace: false })}>older ones (${
                  count(data.total)
                } in all)</button>`}
      `}<//>
  `;
}

function Curation({ params }) {
  const tab = TABS[params.get("tab")] ? params.get("tab") : "queue";
  const Shown = { queue: Queue, filter: ByFilter, history: History }[tab];
  return html`
    <h1>Curation and labels</h1>
    <nav class="row tabs" aria-label="Curation">${Object.entries(TABS).map(([name, title]) =>
      html`<${Link} to="curation" values=${{ tab: name === "queue" ? "" : name, ...filterOf(params) }} aria-current=${
        name === tab ? "page" : null
      }>${title}<//>`
    )}</nav>
    <${Shown} params=${params} />
  `;
}

export default { View: Curation };
