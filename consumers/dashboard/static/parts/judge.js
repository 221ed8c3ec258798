// What a person says of a trajectory or a call: at once on the screen, then in the log, and undoable.
import { useEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { ask, html, session, Text, Word } from "/web/shell.js";
import { Awaited, useAnswer } from "./answers.js";
import { useKeys } from "./keys.js";
import { concerns } from "./live.js";
import { link } from "./address.js";
import { number } from "./words.js";

export const SCALE = [0, 0.25, 0.5, 0.75, 1];
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
      outcome.value = { words: problem.message, wrong: true };
    }
  };
  return html`<form class="judge-field" onSubmit=${submit}>
    <label>${label} <input ref=${field} dir="auto" value=${text} placeholder=${
    now === null ? "not the same everywhere" : hint
  } disabled=${passive}
      onInput=${({ target }) => setText(target.value)} /></label>
    <button disabled=${passive || text === (now ?? "")}>Set</button></form>`;
}

/** Judge a trajectory, or one call of it. subject: {g, t, c}. review: whoever is here came to judge, so that digits do it at once, and what others said
 * stays folded until it is asked for (a review that is blind); elsewhere digits judge after `e` alone, since they are reward. judged(): called
 * when the overall score is in the log. */
export function Judge({ subject, review = false, judged }) {
  const { g, t, c } = subject;
  const answer = useAnswer(
    link("judged", { g, t, c }).slice(1),
    (update) => concerns(update, "act") || concerns(update, "trajectory", g, t),
  );
  const [hope, setHope] = useState({});
  const key = JSON.stringify([g, t, c]);
  const latest = useRef(key);
  latest.current = key;
  const underWay = useRef(false);
  const [busy, setBusy] = useState(false);
  const [byKeys, setByKeys] = useState(review);
  useEffect(() => {
    setHope({});
    setByKeys(review);
  }, [key]);
  const passive = !session.value.may_judge;
  const attempt = async (path, body, said, hoped) => {
    if (passive) return;
    setHope((before) => ({ ...before, ...hoped }));
    const done = await act(path, body, `${said} — u takes it back`);
    if (latest.current !== key) return;
    await answer.again();
    setHope((before) => Object.fromEntries(Object.entries(before).filter(([name]) => !(name in hoped))));
    if (done && "overall" in hoped) judged?.();
  };
  const curate = (field, value, said) =>
    attempt("curations", { places: [c ? [g, t, c] : [g, t]], [field]: value }, said, { [field]: value });
  const score = (values, said) =>
    attempt(
      "judgements",
      { group_id: g, trajectory_id: t, ...(c ? { call_id: c } : {}), scores: values },
      said,
      values,
    );
  /** The return with another overall score of this person's. */
  const returnWith = (value) =>
    (answer.data.return_total ?? 0) - (answer.data.mine.find(({ name }) => name === "overall")?.value ?? 0) + value;
  const overall = async (at) => {
    if (underWay.current) return; // a second digit before the first is in the log is meant for what comes next
    underWay.current = true;
    setBusy(true);
    const becomes = review || !answer.data
      ? `${number(SCALE[at])} in the return`
      : `return ${number(answer.data.return_total)} → ${number(returnWith(SCALE[at]))}`;
    await score({ overall: SCALE[at] }, `overall ${at + 1} of 5: ${becomes}`);
    underWay.current = false;
    setBusy(false);
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
          ) => [String(at + 1), {
            does: `overall ${at + 1} of 5, which counts in the return`,
            act: () => {
              overall(at);
            },
          }]),
        ),
        u: {
          does: "take your latest act back",
          act: () => {
            undo();
          },
        },
        ...(review ? {} : { e: ends, Escape: ends }),
      }
      : { e: { does: "judge by keys", act: () => setByKeys(true) } },
  );
  const body = (data) => {
    const { mixed, calls } = data;
    const now = { ...data.curation, ...hope };
    /** @type {Record<string, any>} */
    const own = {
      ...Object.fromEntries(data.mine.filter(({ value }) => value !== null).map(({ name, value }) => [name, value])),
      ...hope,
    };
    const text = (name, value) => (mixed.includes(name) && !(name in hope) ? null : value ?? "");
    return html`
      <div class="row" role="group" aria-label="overall score" aria-busy=${String(busy)}>
              <span title="unless a batch spec weighs it otherwise">Overall (adds to the return${review
                ? ""
                : html`, now <b>${number(data.return_total)}</b>`})</span> ${SCALE.map((value, at) =>
                  html`<button aria-pressed=${own.overall === value} disabled=${passive} onClick=${() => overall(at)}>${
                    at + 1
                  }</button>`
                )}
            </div>
            <${Field} label="Reward" now="" hint="style=0.8" parse=${reward} passive=${passive} send=${(values) =>
              score(values, `reward ${inScores(values)}`)} />
            ${data.mine.length > 0 &&
              html`<p class="quiet">You said: ${
                data.mine.map((word) =>
                  html`<span class="chip"><${Word}>${word.name}<//> ${word.value ?? ""}</span>${" "}`
                )
              }</p>`}
            <details open=${!review}>
        <summary>Curate ${c ? "the call" : `${calls} ${calls === 1 ? "call" : "calls"}`}</summary>
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
      </details>
    `;
  };
  return html`<section class="panel judge" aria-label="Judge">
    <h2>Judge ${c ? html`call <${Word}>${c}<//>` : "the trajectory"}</h2>
    ${passive && html`<p class="problem">Your role is reader: you may look, and judge nothing.</p>`}
    <${Awaited} answer=${answer}>${body}<//>
    <p class="row"><button disabled=${passive} onClick=${() => undo()}>Undo ${byKeys && html`<kbd>u</kbd>`}</button>
      ${
    !review && !passive && html`<button aria-pressed=${byKeys} onClick=${() =>
      setByKeys(!byKeys)}>Judge by keys <kbd>e</kbd></button>`
  }
      ${!review && byKeys && html`<span class="warn" role="status">1 to 5 judge now; e ends it</span>`}</p>
    <${Said} />
  </section>`;
}
