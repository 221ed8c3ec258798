// What a person says of a trajectory or a call: at once on the screen, then in the log, and undoable.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { ask, html, session, Text, Word } from "/web/shell.js";
import { Awaited, useAnswer } from "./answers.js";
import { useKeys } from "./keys.js";
import { concerns } from "./live.js";
import { link } from "./address.js";
import { Folded } from "./table.js";
import { number } from "./words.js";

const SCALE = [0, 0.25, 0.5, 0.75, 1];
const SCALE_WORDS = ["useless", "poor", "fair", "good", "perfect"];
/** What the last act came to: {words, wrong}, for who shows `<Said/>`. */
export const outcome = signal(null);
let turn = Promise.resolve();

/** A write, after those before it. words: what is said when it is done. Returns the answer; null where it went wrong, which is said. */
export function act(path, body, words) {
  const next = turn.then(async () => {
    try {
      const answer = await ask("POST", path, body);
      outcome.value = { words: typeof words === "function" ? words(answer) : words, wrong: false };
      return answer;
    } catch (problem) {
      outcome.value = { words: problem.message, wrong: true };
      return null;
    }
  });
  turn = next;
  return next;
}

/** Says why nothing is written, once the writes before it are told: a late one would stand over it. */
function refuse(problem) {
  turn = turn.then(() => {
    outcome.value = { words: problem.message, wrong: true };
  });
}

/** Takes back an act, or without an id the latest one of who is signed in. */
export const undo = (act_id = null) =>
  act(
    "acts/undo",
    { act_id },
    ({ undone }) => (undone ? `taken back: ${undone.says.join("; ")}` : "nothing of it stands any more"),
  );

/** What the last act came to, read out by screen readers. */
export const Said = () =>
  html`<p class=${`said ${outcome.value?.wrong ? "problem" : "quiet"}`} role="status">${
    outcome.value && html`<${Text} text=${outcome.value.words} />`
  }</p>`;

/** `a, b` as words; of a score `entropy@1=0.9` as {"entropy@1": 0.9}. Throw sentences. */
export const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);
export function scores(text) {
  return Object.fromEntries(
    words(text).map((each) => {
      const [, scorer, value] = each.match(/^(.+@\d+)=(.+)$/) || [];
      if (!scorer || !Number.isFinite(Number(value))) {
        throw new Error("a score is SCORER@VERSION=NUMBER, as in entropy@1=0.9");
      }
      return [scorer, Number(value)];
    }),
  );
}
export function quality(text) {
  const value = Number(text);
  if (!text.trim() || !Number.isFinite(value)) throw new Error("quality is a number, by custom from 0 to 1");
  return value;
}
function reward(text) {
  const [, name, value] = text.match(/^\s*([^=]+?)\s*=\s*(.+)$/) || [];
  if (!name || !Number.isFinite(Number(value))) throw new Error("a reward is NAME=NUMBER, as in style=0.8");
  return { [name]: Number(value) };
}
const inScores = (values) => Object.entries(values || {}).map(([scorer, value]) => `${scorer}=${value}`).join(", ");

/** A field that is sent on Enter or its button. `now`: what counts, as text; null: it is not the same everywhere. */
function Field({ label, now, hint, parse, send, passive }) {
  const [text, setText] = useState(now ?? "");
  const field = useRef(null);
  useEffect(() => {
    if (document.activeElement !== field.current) setText(now ?? "");
  }, [now]);
  const submit = (event) => {
    event.preventDefault();
    try {
      send(parse(text));
    } catch (problem) {
      refuse(problem);
    }
  };
  return html`<form class="judge-field" onSubmit=${submit}>
    <label>${label} <input ref=${field} dir="auto" value=${text} placeholder=${
    now === null ? "not the same everywhere" : hint
  } disabled=${passive}
      onInput=${({ target }) => setText(target.value)} /></label>
    <button disabled=${passive || text === (now ?? "")}>Set</button></form>`;
}

/** A text that a person writes, which Ctrl Enter saves. now: what it begins with. */
function Writing({ label, now, save, close }) {
  const [text, setText] = useState(now);
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) save(text);
  };
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    if (event.key === "Escape") close();
  };
  return html`
    <form class="judge-writing" onSubmit=${submit}>
      <label>${label}
          <textarea ref=${field} dir="auto" rows="5" value=${text} onInput=${({ target }) =>
            setText(target.value)} onKeyDown=${keys} /></label>
      <div class="row"><button class="primary">Save <kbd>Ctrl Enter</kbd></button>
        <button type="button" onClick=${close}>Cancel <kbd>Esc</kbd></button></div>
    </form>
  `;
}

/** What people, or scorers, said of it; nothing where nobody did, or nobody may know yet. */
export const Words = ({ title, words }) =>
  words?.length > 0 && html`
    <div class="words">
      <span class="quiet">${title}</span>
      <ul>${words.map((word) =>
        html`
          <li>
            <${Word}>${word.says ?? `${word.slot} ${word.value ?? word.failed ?? "nothing"}`}<//>${word.who &&
              html`${" "}<small class="quiet"><${Word}>${word.who}<//></small>`}
            ${word.comment && html`<${Text} text=${word.comment} />`}
            <${Folded} title="the reply" text=${typeof word.edit === "string" && word.edit} />
          </li>
        `
      )}</ul>
    </div>
  `;

/** Judge a trajectory, or one call of it. subject: {g, t, c}. name: of the score that digits give. judged(): called with a score or thumb, before it is in
 * the log; what it returns is called if it does not get there. review: whoever is here came to judge, so that digits do it at once, and what others said stays folded until it is asked for (a review
 * that is blind); elsewhere digits judge after `e` alone, since they are reward. Of a review: {call_id, reply} that an edit would replace, `mine`,
 * all that this person said of the trajectory and its calls, and `moves`, its own buttons. */
export function Judge({ subject, review = null, name = "overall", judged }) {
  const { g, t, c } = subject;
  const answer = useAnswer(
    link("judged", { g, t, c }).slice(1),
    (update) => concerns(update, "act") || concerns(update, "trajectory", g, t),
  );
  const [hope, setHope] = useState({});
  const key = JSON.stringify([g, t, c]);
  const latest = useRef(key);
  latest.current = key;
  const spent = useRef(false);
  const [busy, setBusy] = useState(false);
  const [byKeys, setByKeys] = useState(Boolean(review));
  const [writing, setWriting] = useState("");
  useEffect(() => {
    setHope({});
    setByKeys(Boolean(review));
    setWriting("");
  }, [key]);
  const passive = !session.value.may_judge;
  const attempt = async (path, body, said, hoped) => {
    if (passive) return null;
    setHope((before) => ({ ...before, ...hoped }));
    const done = await act(path, body, `${said} — u takes it back`);
    if (latest.current !== key) return done;
    await answer.again();
    setHope((before) => Object.fromEntries(Object.entries(before).filter(([each]) => !(each in hoped))));
    return done;
  };
  const curate = (field, value, said) =>
    attempt("curations", { places: [c ? [g, t, c] : [g, t]], [field]: value }, said, { [field]: value });
  const say = (remark, said, hoped = {}) =>
    attempt("judgements", { group_id: g, trajectory_id: t, ...(c ? { call_id: c } : {}), ...remark }, said, hoped);
  const judge = async (remark, said, hoped) => {
    if (passive || spent.current) return; // nobody has seen yet what a key at the same moment would judge
    spent.current = true;
    setBusy(true);
    const putBack = judged?.(); // the next one comes at once: a second key is meant for it
    if (await say(remark, said, hoped) && judged) return;
    spent.current = false;
    setBusy(false);
    putBack?.();
  };
  /** The return with another such score of this person's. */
  const returnWith = (value) =>
    (answer.data.return_total ?? 0) - (answer.data.mine.find((word) => word.name === name)?.value ?? 0) + value;
  const score = (at) => {
    const becomes = review || !answer.data
      ? `${number(SCALE[at])} in the return`
      : `return ${number(answer.data.return_total)} → ${number(returnWith(SCALE[at]))}`;
    judge({ scores: { [name]: SCALE[at] } }, `${name} ${at + 1} of 5: ${becomes}`, { [name]: SCALE[at] });
  };
  const thumb = (up) => judge({ thumb: up }, `thumb ${up ? "up" : "down"}`, { thumb: Number(up) });
  const write = async (text) => {
    const edits = writing === "edit";
    const remark = edits ? { edit: text, call_id: review.call_id } : { comment: text };
    if (await say(remark, edits ? "a better reply" : "a comment")) setWriting("");
  };
  const ends = { does: "no longer judge by keys", act: () => setByKeys(false) };
  useKeys(
    "Judge",
    byKeys
      ? {
        ...Object.fromEntries(
          SCALE.map((
            _,
            at,
          ) => [String(at + 1), { does: `${name} ${at + 1} of 5, which counts in the return`, act: () => score(at) }]),
        ),
        "+": { does: "thumb up", act: () => thumb(true) },
        "-": { does: "thumb down", act: () => thumb(false) },
        ...(review
          ? {
            c: { does: "comment", act: () => passive || setWriting("comment") },
            e: { does: "write a better reply", act: () => passive || (review.call_id && setWriting("edit")) },
          }
          : { u: { does: "take your latest act back", act: () => undo() }, e: ends, Escape: ends }),
      }
      : { e: { does: "judge by keys", act: () => setByKeys(true) } },
  );
  const body = (data) => {
    const { mixed, calls } = data;
    const mine = review?.mine ?? data.mine;
    const written = mine.find(({ kind }) => kind === writing);
    const now = { ...data.curation, ...hope };
    /** @type {Record<string, any>} */
    const own = {
      ...Object.fromEntries(data.mine.filter(({ value }) => value !== null).map((word) => [word.name, word.value])),
      ...hope,
    };
    const text = (field, value) => (mixed.includes(field) && !(field in hope) ? null : value ?? "");
    const shortcut = (each) => review && html`${" "}<kbd>${each}</kbd>`;
    return html`
      <div class="row" role="group" aria-label="overall score" aria-busy=${String(busy)}>
              <span title="unless a batch spec weighs it otherwise"><${Word}>${name}<//>, 1 worst to 5 best (adds to the return${review
                ? ""
                : html`, now <b>${number(data.return_total)}</b>`})</span> ${SCALE.map((value, at) =>
                  html`<button aria-pressed=${own[name] === value} disabled=${passive} onClick=${() => score(at)}>${
                    at + 1
                  } ${SCALE_WORDS[at]}</button>`
                )}
            </div>
            <div class="row" role="group" aria-label="thumb and words">
              <button aria-pressed=${own.thumb === 1} disabled=${passive} onClick=${() => thumb(true)}>▲ Good${shortcut(
                "+",
              )}</button>
              <button aria-pressed=${own.thumb === 0} disabled=${passive} onClick=${() => thumb(false)}>▼ Bad${shortcut(
                "-",
              )}</button>
              <button disabled=${passive} onClick=${() => setWriting("comment")}>Comment${shortcut("c")}</button>
              ${review?.call_id &&
                html`<button disabled=${passive} onClick=${() => setWriting("edit")}>Better reply${
                  shortcut("e")
                }</button>`}
              ${review?.moves}
            </div>
            <div class="written">${writing && html`
              <${Writing} key=${writing} save=${write} close=${() => setWriting("")}
                label=${writing === "edit" ? "A better last reply (for exports: nobody sampled it)" : "Comment"}
                now=${(writing === "edit" ? written?.edit ?? review.reply : written?.comment) ?? ""} />
            `}
            <${Words} title="You said" words=${mine.map((word) => ({ ...word, who: null }))} />
            <details open=${!review || matchMedia("(min-width: 70rem)").matches}>
        <summary>Curate ${c ? "the call" : `${calls} ${calls === 1 ? "call" : "calls"}`}</summary>
        <${Field} label="Reward" now="" hint="style=0.8" parse=${reward} passive=${passive} send=${(values) =>
          say({ scores: values }, `reward ${inScores(values)}`, values)} />
        <div class="row" role="group" aria-label="trainable"><span>Trainable</span>
                ${[[true, "train"], [false, "do not train"]].map(([value, label]) =>
                  html`
                    <button aria-pressed=${now.trainable === value} disabled=${passive}
                      onClick=${() => curate("trainable", value, label)}>${label}</button>
                  `
                )}${mixed.includes("trainable") && html`${" "}<span class="quiet">not the same for all</span>`}</div>
        <${Field} label="Quality" now=${text(
          "quality",
          now.quality === null ? "" : String(now.quality),
        )} hint="0 to 1" parse=${quality} passive=${passive} send=${(value) =>
          curate("quality", value, `quality ${value}`)} />
        <${Field} label="Tags" now=${text(
          "tags",
          (now.tags || []).join(", "),
        )} hint="leak, good" parse=${words} passive=${passive} send=${(value) => curate("tags", value, "tags")} />
        <${Field} label="Note" now=${text("note", now.note)} hint="why" parse=${(value) =>
          value} passive=${passive} send=${(value) => curate("note", value, "a note")} />
        <${Field} label="Scores" now=${text(
          "scores",
          inScores(now.scores),
        )} hint="entropy@1=0.9" parse=${scores} passive=${passive}
          send=${(value) => curate("scores", value, "scores")} />
      </details></div>
    `;
  };
  return html`<section class="panel judge" aria-label="Judge">
    ${!review && html`<h2>Judge ${c ? html`call <${Word}>${c}<//>` : "the trajectory"}</h2>`}
    ${passive && html`<p class="problem">Your role is reader: you may look, and judge nothing.</p>`}
    <${Awaited} answer=${answer}>${body}<//>
    ${
    !review && html`<p class="row">
      <button disabled=${passive} onClick=${() => undo()}>Undo ${byKeys && html`<kbd>u</kbd>`}</button>
      ${
      !passive &&
      html`<button aria-pressed=${byKeys} onClick=${() => setByKeys(!byKeys)}>Judge by keys <kbd>e</kbd></button>`
    }
      ${byKeys && html`<span class="warn" role="status">1 to 5 judge now, + and - too; e ends it</span>`}</p>`
  }
    <${Said} />
  </section>`;
}
