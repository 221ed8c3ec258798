// The page on which people judge. What it knows of the world comes from /api/v1; where it stands is in its address.
import { render } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { computed, signal } from "@preact/signals";
import { ask, html, loadSession, nextTheme, session, SignIn, Text, theme, visible, Word } from "/web/shell.js";

const POLL_MS = 2000;
const OWN = ["mode", "order", "seed", "overlap", "name", "g", "t", "o"];
const SCALE = [0, 0.25, 0.5, 0.75, 1];
const PAIR = [
  { side: 0, strength: 1, label: "◀◀", word: "Left", long: "left, clearly" },
  { side: 0, strength: 0.25, label: "◀", word: "Left", long: "left, barely" },
  { outcome: "tie", label: "=", word: "Tie", long: "a tie" },
  { side: 1, strength: 0.25, label: "▶", word: "Right", long: "right, barely" },
  { side: 1, strength: 1, label: "▶▶", word: "Right", long: "right, clearly" },
];

const address = signal(new URLSearchParams(location.search));
const queue = signal(null);
const subject = signal(null);
const problem = signal("");
const toast = signal("");
const panel = signal("");
const trail = signal([]);
const at = signal(-1);
const busy = signal(false);
let toastTimer = 0;

const current = computed(() => trail.value[at.value] || null);
const mode = computed(() => (address.value.get("mode") === "pair" ? "pair" : "single"));
const score = computed(() => address.value.get("name") || "overall");
const keyOf = (item) => JSON.stringify([item.group_id, ...[item.trajectory_id, item.other_id || ""].sort()]);

function setAddress(changes, push) {
  const next = new URLSearchParams(address.value);
  for (const [name, value] of Object.entries(changes)) value ? next.set(name, value) : next.delete(name);
  address.value = next;
  const url = `${location.pathname}${next.size ? `?${next}` : ""}`;
  push ? history.pushState(null, "", url) : history.replaceState(null, "", url);
}

function queueParameters() {
  const query = new URLSearchParams(address.value);
  for (const name of ["g", "t", "o", "name"]) query.delete(name);
  return query;
}

const say = (text) => {
  toast.value = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    toast.value = "";
  }, 4000);
};

let underWay = null;

/** One act at a time: others wait their turn, but a judgement, which would be of what nobody has seen yet. */
async function attempt(act, waits = true) {
  if (underWay && !waits) return;
  while (underWay) await underWay;
  underWay = perform(act);
  await underWay;
}

/** What goes wrong is said in the page. */
async function perform(act) {
  busy.value = true;
  try {
    await act();
    problem.value = "";
  } catch (error) {
    problem.value = error.message;
  } finally {
    busy.value = false;
    underWay = null;
  }
}

async function readQueue(force) {
  const query = queueParameters();
  const asked = String(query);
  if (!force && queue.value) query.set("since", queue.value.changes);
  const answer = await ask("GET", `queue?${query}`);
  if (answer.who && answer.who !== session.value?.who) return loadSession(); // another tab signed somebody else in
  if (answer.unchanged || asked !== String(queueParameters())) return;
  const words = (each) => each && each.changes.split(".")[1];
  const spoken = words(queue.value) !== words(answer);
  queue.value = answer;
  if (spoken && current.value) await readSubject();
}

async function readSubject() {
  const item = current.value;
  if (!item) return;
  const query = new URLSearchParams({ group_id: item.group_id, trajectory_id: item.trajectory_id });
  if (item.other_id) query.set("other_id", item.other_id);
  const answer = await ask("GET", `subject?${query}`);
  if (current.value === item) subject.value = { item, ...answer };
}

async function open(item, position) {
  if (position === undefined) {
    trail.value = [...trail.value, item];
    at.value = trail.value.length - 1;
  } else {
    at.value = position;
  }
  panel.value = "";
  setAddress({ g: item.group_id, t: item.trajectory_id, o: item.other_id });
  await readSubject();
  scrollTo(0, 0);
}

/** The next one that this tab has not seen: what was skipped comes again after a reload. */
async function next() {
  if (at.value < trail.value.length - 1) return open(trail.value[at.value + 1], at.value + 1);
  const seen = new Set(trail.value.map(keyOf));
  const item = queue.value && queue.value.items.find((each) => !seen.has(keyOf(each)));
  if (item) return open(item);
  at.value = trail.value.length;
  subject.value = null;
  setAddress({ g: "", t: "", o: "" });
}

const previous = async () => {
  if (at.value > 0) await open(trail.value[at.value - 1], at.value - 1);
};

async function startOver() {
  trail.value = [];
  at.value = -1;
  subject.value = null;
  await readQueue(true);
  await next();
}

const judge = (said, words) =>
  attempt(async () => {
    const item = current.value;
    if (!item || !session.value.may_judge) return;
    await ask("POST", "judgements", { group_id: item.group_id, trajectory_id: item.trajectory_id, ...said });
    say(`${words} — z takes it back`);
    await readQueue(true);
    if (said.comment || said.edit) {
      panel.value = "";
      await readSubject();
    } else await next();
  }, false);

const prefer = (choice) =>
  attempt(async () => {
    const item = current.value;
    if (!item || !subject.value || !session.value.may_judge) return;
    const ids = subject.value.sides.map((side) => side.trajectory_id);
    const chosen = choice.side || 0;
    const body = { group_id: item.group_id, chosen: ids[chosen], rejected: ids[1 - chosen], name: score.value };
    body.outcome = choice.outcome || "chosen";
    if (choice.strength) body.strength = choice.strength;
    await ask("POST", "preferences", body);
    say(`${choice.long} — z takes it back`);
    await readQueue(true);
    await next();
  }, false);

const undo = () =>
  attempt(async () => {
    const { undone } = await ask("POST", "undo", {});
    if (!undone) return say("nothing of yours stands any more");
    const word = undone[0];
    const item = { group_id: word.group_id, trajectory_id: word.trajectory_id, other_id: word.other_id };
    say(`taken back: ${undone.map(inWords).join(", ")}`);
    const position = trail.value.findIndex((each) => keyOf(each) === keyOf(item));
    await readQueue(true);
    await open(item, position < 0 ? undefined : position);
  });

/** A person's word as a short text. */
function inWords(word) {
  if (word.kind === "preference") return word.outcome === "chosen" ? "a preference" : word.outcome.replace("_", " ");
  if (word.kind === "thumb") return word.value ? "thumb up" : "thumb down";
  if (word.kind === "score") {
    return `${word.name} ${SCALE.includes(word.value) ? `${SCALE.indexOf(word.value) + 1} of 5` : word.value}`;
  }
  return word.kind === "edit" ? "a better reply" : "a comment";
}

const KEYS = {
  single: [
    ["u", "good", () => judge({ thumb: true }, "thumb up")],
    ["d", "bad", () => judge({ thumb: false }, "thumb down")],
    ...SCALE.map((
      value,
      index,
    ) => [
      String(index + 1),
      `${index + 1} of 5`,
      () => judge({ scores: { [score.value]: value } }, `${score.value} ${index + 1} of 5`),
    ]),
    ["e", "write a better reply", () => {
      if (subject.value?.sides[0].call_id) panel.value = "edit";
    }],
    ["c", "comment", () => {
      if (subject.value) panel.value = "comment";
    }],
  ],
  pair: [
    ...PAIR.map((choice, index) => [String(index + 1), choice.long, () => prefer(choice)]),
    ["x", "both bad", () => prefer({ outcome: "both_bad", long: "both bad" })],
  ],
  both: [
    ["j", "next", () => attempt(next)],
    ["k", "previous", () => attempt(previous)],
    ["s", "skip", () => attempt(next)],
    ["z", "undo", undo],
    ["?", "these keys", () => {
      panel.value = panel.value === "help" ? "" : "help";
    }],
  ],
};
const THEME_SIGNS = { system: "◐", light: "☀", dark: "☾" };
const ARROWS = { ArrowRight: "j", ArrowLeft: "k" };

function onKey(event) {
  if (event.key === "Escape") panel.value = "";
  const typing = event.target.closest("input, textarea, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !session.value) return;
  const key = ARROWS[event.key] || event.key;
  /** @type {any} */
  const entry = [...KEYS[mode.value], ...KEYS.both].find(([each]) => each === key);
  if (!entry) return;
  event.preventDefault();
  if (panel.value && panel.value !== "help") return;
  entry[2]();
}

const Turn = ({ turn }) =>
  turn.branch ? html`<div class="branch">another branch begins here</div>` : html`
    <section class=${`turn role-${/^(user|assistant|system|tool)$/.test(turn.role) ? turn.role : "other"} ${
      turn.same ? "same" : ""
    }`}>
      <div class="role">
        <${Word}>${turn.role || "?"}<//></div>
        <div class="said">
          ${turn.reasoning && html`
            <details class="reasoning">
              <summary>reasoning</summary>
              <${Text} text=${turn.reasoning} />
            </details>
          `}
          <${Text} text=${turn.content} parts=${turn.parts} />
        </div>
      </section>
  `;

const Said = ({ word, who }) =>
  html`<li>
  ${who && html`<${Word}>${who}<//>${" "}`}<b><${Word}>${inWords(word)}<//></b>
  ${word.comment && html`<${Text} text=${word.comment} />`}
  ${
    typeof word.edit === "string" && html`
      <details>
        <summary>the reply</summary>
        <${Text} text=${word.edit} />
      </details>
    `
  }
</li>`;

function Words({ mine, others, scorers }) {
  return html`<div class="words">
    ${
    mine.length > 0 && html`
      <div>
        <h3>You said</h3>
        <ul>${mine.map((word) => html`<${Said} word=${word} />`)}</ul>
      </div>
    `
  }
    ${
    others && others.length > 0 && html`
      <div>
        <h3>Others said</h3>
        <ul>${others.map((word) => html`<${Said} word=${word} who=${word.who} />`)}</ul>
      </div>
    `
  }
    ${
    scorers && scorers.length > 0 && html`
      <div>
        <h3>Scorers said</h3>
        <ul>${scorers.map((each) =>
          html`
            <li>
              <${Word}>${each.slot}<//> <b>${each.value ?? each.failed ?? "nothing"}</b></li>
          `
        )}</ul>
      </div>
    `
  }
  </div>`;
}

function Side({ side, letter, pair }) {
  const same = side.turns.filter((turn) => turn.same).length;
  const [folded, setFolded] = useState(true);
  const turns = pair && folded && same > 1 ? side.turns.slice(same) : side.turns;
  return html`
    <article class="side">
      <header>
          ${letter && html`<b class="letter">${letter}</b>`} <${Word}>${side.trajectory_id}<//>
          <span class="quiet">${side.status}, ${side.calls} ${side.calls === 1 ? "call" : "calls"}${side.left_out
            ? `, ${side.left_out} not shown`
            : ""}</span>
          ${side.tags.map((tag) => html`<span class="tag"><${Word}>${tag}<//></span>`)}
        </header>
        ${pair && same > 1 &&
          html`<button class="more" onClick=${() => setFolded(!folded)}>${
            folded ? `show the ${same} turns that both share` : "hide what both share"
          }</button>`}
        ${turns.map((turn, index) =>
          html`<${Turn} key=${index + (turns.length < side.turns.length ? same : 0)} turn=${turn} />`
        )}
        ${side.turns.length === 0 &&
          html`<p class="quiet">No conversation in words: its calls were made by token ids, or their text is lost.</p>`}
        <${Words} ...${side} />
      </article>
  `;
}

function Writing({ side }) {
  const edits = panel.value === "edit";
  const earlier = side.mine.find((word) => word.kind === panel.value);
  const [text, setText] = useState(
    edits ? (typeof earlier?.edit === "string" ? earlier.edit : side.reply) : earlier?.comment || "",
  );
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const save = (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    judge(edits ? { edit: text, call_id: side.call_id } : { comment: text }, edits ? "a better reply" : "a comment");
  };
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save(event);
  };
  return html`
    <form class="panel" onSubmit=${save}>
      <label>${edits ? "A better last reply (for exports: nobody sampled it)" : "Comment"}
          <textarea ref=${field} dir="auto" rows=${edits ? 8 : 3} value=${text} onInput=${(event) =>
            setText(event.target.value)} onKeyDown=${keys} /></label>
      <div class="row"><button class="primary" disabled=${busy.value}>Save <kbd>Ctrl Enter</kbd></button>
          <button type="button" onClick=${() => {
            panel.value = "";
          }}>Cancel <kbd>Esc</kbd></button></div>
    </form>
  `;
}

const Help = () =>
  html`
    <div class="panel" role="dialog" aria-label="Keys">
      <dl class="keys">${[...KEYS[mode.value], ...KEYS.both].map(([key, words]) =>
        html`
          <div>
            <dt><kbd>${key}</kbd></dt>
            <dd>${words}</dd>
          </div>
        `
      )}</dl>
      <p
        class="quiet">What others and scorers said is shown once you have judged. Everything you do is an event on claw.rewards; nothing else is kept.</p>
      <button onClick=${() => {
        panel.value = "";
      }}>Close <kbd>Esc</kbd></button>
    </div>
  `;

function Actions() {
  const idle = !subject.value || busy.value || !session.value.may_judge;
  const button = (key, label, className = "") => {
    const [, words, act] = [...KEYS[mode.value], ...KEYS.both].find(([each]) => each === key);
    const passive = "jks?z".includes(key) ? busy.value : idle;
    return html`
      <button class=${className} title=${words} aria-label=${words} disabled=${passive}
        onClick=${act}>${label} <kbd>${key}</kbd></button>
    `;
  };
  return html`<footer class="actions">
    ${panel.value === "help" && html`<${Help} />`}
    ${
    ["edit", "comment"].includes(panel.value) && subject.value &&
    html`<${Writing} key=${panel.value} side=${subject.value.sides[0]} />`
  }
    <div class="row votes">
      ${
    mode.value === "pair"
      ? html`${
        PAIR.map((choice, index) =>
          button(String(index + 1), html`${choice.label} <span class="wide">${choice.word}</span>`)
        )
      }${button("x", "Both bad", "bad")}`
      : html`${button("d", "▼ Bad", "bad")}${button("u", "▲ Good", "good")}<span class="scale">${
        SCALE.map((_, index) => button(String(index + 1), ""))
      }</span>`
  }
    </div>
    <div class="row others">
      ${mode.value === "single" && html`${button("e", "Edit")}${button("c", "Comment")}`}
      ${button("k", "Back")}${button("s", "Skip")}${button("z", "Undo")}
    </div>
  </footer>`;
}

/** `channel=val agent=coder "some words"`: options of `claw pool`, and words for its --text. */
function filterOf(typed) {
  const fields = new URLSearchParams();
  const words = [];
  for (const [, name, quoted, bare] of typed.matchAll(/(?:([a-z_]+)=)?(?:"([^"]*)"|(\S+))/g)) {
    name && name !== "text" ? fields.append(name, quoted ?? bare) : words.push(quoted ?? bare);
  }
  if (words.length) fields.set("text", words.join(" "));
  return fields;
}
const filterTyped = () =>
  [...address.value].filter(([name]) => !OWN.includes(name))
    .map(([name, value]) => (/\s/.test(value) ? `${name}="${value}"` : `${name}=${value}`)).join(" ");

function changeQueue(changes) {
  setAddress({ ...changes, g: "", t: "", o: "" }, true);
  attempt(startOver);
}

function filterBy(event) {
  event.preventDefault();
  const kept = [...address.value].filter(([name]) => ["mode", "order", "seed", "overlap", "name"].includes(name));
  address.value = new URLSearchParams([...kept, ...filterOf(event.target.elements.filter.value)]);
  changeQueue({});
}

function rename() {
  const who = prompt("Judge under which name?", session.value.who);
  if (who) {
    attempt(async () => {
      session.value = await ask("POST", "session", { who: who.trim() });
      await startOver();
    });
  }
}

const signOut = () =>
  attempt(async () => {
    await ask("DELETE", "session");
    session.value = null;
  });

function Top() {
  const answer = queue.value;
  const mine = answer?.progress[session.value.who] || 0;
  const choose = (name) => (event) => changeQueue({ [name]: event.target.value });
  return html`<header class="top">
    <div class="row">
      <h1>claw feedback</h1>
      <span class="progress" aria-live="polite">${
    answer &&
    html`<b>${answer.open}</b> waiting, you judged <b>${mine}</b> of ${answer.total}${
      answer.reading ? " (still reading the log)" : ""
    }`
  }</span>
      <span class="grow" />
      ${
    session.value.keys
      ? html`<span class="quiet"><${Word}>${session.value.who}<//></span> <button onClick=${signOut}>Sign out</button>`
      : html`<button onClick=${rename} title="judge under another name"><${Word}>${session.value.who}<//></button>`
  }
      <button onClick=${nextTheme} title=${`${theme.value} theme`} aria-label=${`${theme.value} theme, change`}>${
    THEME_SIGNS[theme.value]
  }</button>
      <button onClick=${KEYS.both.at(-1)[2]} aria-label="keys">?</button>
    </div>
    <details class="settings">
      <summary>${mode.value === "pair" ? "pairs" : "one by one"}, by ${address.value.get("order") || "doubt"}${
    filterTyped() && ", filtered"
  }</summary>
      <form class="row" onSubmit=${filterBy}>
        <label>Show <select value=${mode.value} onChange=${
    choose("mode")
  }><option value="single">one by one</option><option value="pair">pairs</option></select></label>
        <label>Order <select value=${address.value.get("order") || "doubt"} onChange=${
    choose("order")
  }><option>doubt</option><option>newest</option><option>draw</option></select></label>
        <label>Seed <input type="number" class="short" value=${address.value.get("seed") || 0} onChange=${
    choose("seed")
  } /></label>
        <label>People each <input type="number" min="1" max="100" class="short" value=${
    address.value.get("overlap") || 1
  } onChange=${choose("overlap")} /></label>
        <label class="grow">Filter <input name="filter" class="wide" placeholder='channel=val agent=coder "some words"' value=${filterTyped()} /></label>
        <button>Apply</button>
      </form>
      ${
    answer && html`<p class="quiet">${
      Object.entries(answer.progress).map(([who, count]) => html`<span class="tag"><${Word}>${who}<//> ${count}</span>`)
    }</p>`
  }
    </details>
    ${problem.value && html`<p class="problem" role="alert">${visibleProblem(problem.value)}</p>`}
    ${
    !session.value.may_judge &&
    html`<p class="problem">Your key has the role reader: you may look, and judge nothing.</p>`
  }
  </header>`;
}
const visibleProblem = (text) => html`<${Text} text=${text} />`;

function Main() {
  const shown = subject.value;
  if (!shown) {
    if (!queue.value) return html`<main class="empty quiet">Reading…</main>`;
    const skipped = trail.value.length;
    return html`<main class="empty"><p>${
      queue.value.total ? "Nothing more waits for you here." : "No trajectory that is over meets this filter."
    }</p>
      ${
      skipped > 0 && queue.value.open > 0 && html`<button class="primary" onClick=${() =>
        attempt(startOver)}>Go through what you skipped (${queue.value.open})</button>`
    }</main>`;
  }
  const pair = shown.sides.length > 1;
  const task = shown.sides[0].task;
  return html`
    <main key=${keyOf(shown.item)}>
      <div class="about"><span class="quiet">group</span> <${Word}>${shown.group_id}<//>${task && html`
        <details>
          <summary>task</summary>
          <${Text} text=${task} />
        </details>
      `}</div>
        <div class=${pair ? "pair" : "single"}>${shown.sides.map((side, index) =>
          html`<${Side} side=${side} pair=${pair} letter=${pair ? ["Left", "Right"][index] : ""} />`
        )}</div>
        ${pair && html`<${Words} mine=${shown.mine} others=${shown.others} />`}
      </main>
  `;
}

function Page() {
  if (session.value === undefined) return html`<main class="empty quiet">${problem.value || "Reading…"}</main>`;
  if (session.value === null) return html`<${SignIn} title="claw feedback" />`;
  return html`
    <${Top} />
    <${Main} />
    <${Actions} />
    <div class="toast" role="status">${toast.value && html`<span>${visible(toast.value)}</span>`}</div>
  `;
}

/** What the address names, else the first of the queue. */
async function begin() {
  trail.value = [];
  at.value = -1;
  await readQueue(true);
  const [group_id, trajectory_id, other_id] = ["g", "t", "o"].map((name) => address.value.get(name));
  await (group_id && trajectory_id ? open({ group_id, trajectory_id, other_id }) : next());
}

async function follow() {
  if (!document.hidden && session.value && !busy.value) {
    try {
      const waited = !subject.value && !(queue.value?.items.length);
      await readQueue(false);
      if (waited && queue.value?.items.length) await next();
      if (problem.value) problem.value = problem.value.startsWith("the page's server") ? "" : problem.value;
    } catch (error) {
      problem.value = error.message;
    }
  }
  setTimeout(follow, POLL_MS);
}

render(html`<${Page} />`, document.body);
addEventListener("keydown", onKey);
addEventListener("popstate", () => {
  address.value = new URLSearchParams(location.search);
  attempt(begin);
});
let person = "";
session.subscribe((value) => {
  if (value && value.who !== person) { // what the former was told is not for the next one
    person = value.who;
    [queue.value, subject.value, trail.value, at.value, panel.value] = [null, null, [], -1, ""];
  }
  if (value && !queue.value) attempt(begin);
});
loadSession().catch((error) => {
  problem.value = error.message;
});
follow();
