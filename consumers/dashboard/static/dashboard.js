// The frame of the dashboard: which view is open, the way to the others, who is signed in, and whether what is shown is live.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask, html, loadSession, nextTheme, session, SignIn, theme, Word } from "/web/shell.js";
import { go, Link, link, openViews, params, view } from "./parts/address.js";
import { useAnswer } from "./parts/answers.js";
import { helpOpen, KeyHelp, useKeys } from "./parts/keys.js";
import { concerns, listen, liveState } from "./parts/live.js";
import { SearchBox } from "./parts/search.js";
import { Ago } from "./parts/words.js";

const WATCH = ["reader", "operator"];
/** A view: {name, title, key (after `g`; none: it is reached from others), roles (who may see it; default all), load: its module, once it is seen}. */
const VIEWS = [
  { name: "overview", title: "Overview", key: "o", roles: WATCH, load: () => import("./views/overview.js") },
  { name: "explorer", title: "Explorer", key: "e", load: () => import("./views/explorer.js") },
  { name: "group", title: "Group", load: () => import("./views/group.js") },
  { name: "trajectory", title: "Trajectory", load: () => import("./views/trajectory.js") },
  { name: "tokens", title: "Tokens", load: () => import("./views/tokens.js") },
  { name: "curation", title: "Curation", key: "c", load: () => import("./views/curation.js") },
  { name: "lab", title: "Batch lab", key: "b", roles: WATCH, load: () => import("./views/lab.js") },
  { name: "runs", title: "Runs", key: "r", roles: WATCH, load: () => import("./views/runs.js") },
  { name: "batch", title: "Batch", roles: WATCH, load: () => import("./views/batch.js") },
  { name: "rewards", title: "Rewards", key: "w", roles: WATCH, load: () => import("./views/rewards.js") },
  { name: "operations", title: "Operations", key: "p", roles: WATCH, load: () => import("./views/operations.js") },
];
const STATES = {
  starting: "connecting…",
  live: "live",
  lost: "the dashboard's server does not answer: what you see may be old",
};
const TEST_MS = 1000;

const loaded = (of) =>
  of?.load().then((module) => {
    of.module = module.default;
  });

/** The view of an address: its module comes when it is seen first. */
function Loaded({ of, params: shown }) {
  const [module, setModule] = useState(of.module);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    if (!module) loaded(of).then(() => setModule(of.module), setProblem);
  }, []);
  if (problem) {
    return html`<p class="problem" role="alert">${of.title} did not come: reload the page (${problem.message})</p>`;
  }
  return module ? html`<${module.View} params=${shown} />` : html`<p class="quiet reading" role="status">Reading…</p>`;
}

const open = (who) => VIEWS.filter(({ roles }) => !roles || roles.includes(who.role));

/** Who speaks: without keys under any name, with keys until who it is signs out. */
function Person({ who }) {
  const [problem, setProblem] = useState("");
  const change = async () => {
    const name = who.keys ? "" : prompt("Judge under which name?", who.who)?.trim();
    if (!who.keys && !name) return;
    try {
      session.value = await (who.keys ? ask("DELETE", "session") : ask("POST", "session", { who: name }));
    } catch (wrong) {
      setProblem(wrong.message);
    }
  };
  return html`<span class="who"><${Word}>${who.who}<//> <small class="quiet">${who.role}</small>${" "}
    <button onClick=${change}>${who.keys ? "Sign out" : "Another name"}</button>
    ${problem && html`<span class="problem" role="alert">${problem}</span>`}</span>`;
}

function Bar({ who, state }) {
  useEffect(() => {
    if (!state.data || state.data.caught_up) return undefined;
    const timer = setTimeout(state.again, TEST_MS);
    return () => clearTimeout(timer);
  }, [state.data]);
  const away = liveState.value !== "lost" && state.data?.log_away_since_us; // what is old is not said to be live
  return html`<header class="row bar">
    <nav aria-label="Views">${
    open(who).filter(({ key }) => key).map(({ name, title, key }) =>
      html`
        <${Link} to=${name} aria-current=${name === view.value ? "page" : null} title=${`g ${key}`}>${title}<//>
      `
    )
  }</nav>
    <${SearchBox} />
    <span class=${`stream ${away ? "lost" : liveState.value}`} role="status">${
    away ? "old" : liveState.value === "lost" ? "lost" : STATES[liveState.value]
  }</span>
    ${
    state.data && !state.data.caught_up &&
    html`<span class="warn" role="status">still reading the log: answers grow</span>`
  }
    ${
    state.data &&
    html`<span class="quiet where">${state.data.prefix}${
      state.data.generation > 1 && ` · generation ${state.data.generation}`
    }</span>`
  }
    <${Person} who=${who} />
    <button onClick=${nextTheme} title="light, dark or the system's">${theme.value}</button>
    <button onClick=${() => {
    helpOpen.value = true;
  }} title="keys" aria-label="Keys">?</button>
  </header>`;
}

function Frame({ who }) {
  const state = useAnswer("state", (update) => concerns(update, "log"));
  const awaySince = liveState.value !== "lost" && state.data?.log_away_since_us;
  const views = open(who);
  const letters = Object.fromEntries(
    views.filter(({ key }) => key).map((
      { name, title, key },
    ) => [`g ${key}`, { does: title, act: () => go(link(name)) }]),
  );
  useKeys("Everywhere", {
    ...letters,
    "?": {
      does: "these keys; Escape closes them",
      act: () => {
        helpOpen.value = true;
      },
    },
  });
  useEffect(listen, []);
  useEffect(() => {
    openViews.value = new Set(views.map(({ name }) => name));
  }, [who.role]);
  const current = views.find(({ name }) => name === view.value);
  useEffect(() => {
    if (!current && location.pathname === "/") go(link(views[0].name), { replace: true });
  }, []);
  useEffect(() => {
    document.title = `${current ? current.title : "nothing"} · claw`;
  }, [current]);
  return html`<${Bar} who=${who} state=${state} />
    ${liveState.value === "lost" && html`<p class="banner" role="alert">${STATES.lost}</p>`}
    ${
    awaySince && html`
      <p class="banner"
        role="alert">the log does not answer since <${Ago} us=${awaySince} />: what you see may be old, and nothing can be written</p>
    `
  }
    <main class=${`view-${view.value}`}>${
    current
      ? html`<${Loaded} of=${current} params=${params.value} key=${`${current.name} ${who.who}`} />`
      : html`<p class="problem">There is no view ${view.value}${
        VIEWS.some(({ name }) => name === view.value)
          ? " for your role"
          : ""
      }. <${Link} to=${views[0]?.name || ""}>${views[0]?.title}<//></p>`
  }</main>
    <${KeyHelp} />`;
}

function Page() {
  const who = session.value;
  if (who === undefined) return html`<p class="quiet reading" role="status">Reading…</p>`;
  return who === null ? html`<${SignIn} title="claw dashboard" />` : html`<${Frame} who=${who} />`;
}

const first = VIEWS.find(({ name }) => name === view.value); // its module comes beside the session, not after it
Promise.all([loadSession(), loaded(first)?.catch(() => {})]).then(
  () => render(html`<${Page} />`, document.body),
  (problem) => render(html`<p class="problem" role="alert">${problem.message}</p>`, document.body),
);
