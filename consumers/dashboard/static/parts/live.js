// What changed, as it happens. One connection per browser: a browser has six to a host, and every tab needs one to read with. The
// tab that holds the lock listens and tells the others. Locks are for secure contexts alone: over plain http from another machine
// each tab that is seen listens for itself.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ask, session } from "/web/shell.js";

const LOCK = "claw dashboard: the tab that listens";
const RETRY_MS = [250, 500, 1000, 2000, 4000];

/** "starting", "live", or "lost": what is shown may be old. */
export const liveState = signal("starting");
const listeners = new Set();
const channel = navigator.locks ? new BroadcastChannel("claw dashboard: live") : null;
let lastId = "";

/** Calls `listener` with each update: kind -> list of ids (each a list), or null where more changed than one update names. With
 * null as the update itself: anything may have changed. Returns what ends it. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether an update concerns a kind, or one row of it by the beginning of its ids. */
export function concerns(update, kind, ...ids) {
  if (update === null) return true;
  const changed = update[kind];
  return changed !== undefined && (changed === null || changed.some((each) => ids.every((id, at) => each[at] === id)));
}

const tell = (update) => {
  for (const listener of [...listeners]) listener(update);
};

function take(message) {
  if (message.state) {
    const back = message.state === "live" && liveState.value === "lost";
    liveState.value = message.state;
    if (back) tell(null);
  }
  if (message.id) lastId = message.id;
  if (message.update !== undefined) tell(message.update);
}

function say(message) {
  channel?.postMessage(message);
  take(message);
}

let leads = false;
/** @type {EventSource | null} */
let source = null;
if (channel) {
  channel.onmessage = ({ data }) => {
    if (data.question) {
      if (leads) channel.postMessage({ state: liveState.value, id: lastId });
    } else take(data);
  };
}

/** Begins to listen. */
export function listen() {
  if (!channel) {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        source?.close();
        source = null;
      } else connect(0);
    });
    connect(0);
    return;
  }
  channel.postMessage({ question: true });
  navigator.locks.request(LOCK, () =>
    new Promise(() => {
      leads = true;
      connect(0);
    }));
}

/** A server that was started again knows no session of before: `ask` gets one, which a stream cannot. */
async function again(tries) {
  await ask("GET", "state").catch(() => null);
  connect(tries);
}

function connect(tries) {
  if (source || (!channel && document.hidden)) return;
  const after = lastId || session.value?.live; // what changes between the first answers and this connection is told, too
  source = new EventSource(`/api/v1/live${after ? `?after=${encodeURIComponent(after)}` : ""}`);
  const ended = () => {
    source?.close();
    source = null;
    say({ state: "lost" });
    setTimeout(again, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)], tries + 1);
  };
  source.addEventListener("ready", (event) => {
    tries = 0;
    say({ state: "live", id: event.lastEventId });
  });
  source.addEventListener("again", (event) => {
    tries = 0;
    say({ state: "live", id: event.lastEventId, update: null });
  });
  source.addEventListener("changed", (event) => say({ id: event.lastEventId, update: JSON.parse(event.data) }));
  source.onerror = ended;
}

const SOON_MS = 1000;
const BEAT_MS = 5000;

/** Calls `act` a second after anything changed, and every five seconds, since rates and ages change by themselves; not while
 * nobody sees the page. */
export function useBeat(act) {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    let timer = null;
    const beat = () => {
      if (!document.hidden) latest.current();
    };
    const end = onChange(() => {
      timer ??= setTimeout(() => {
        timer = null;
        beat();
      }, SOON_MS);
    });
    const regular = setInterval(beat, BEAT_MS);
    document.addEventListener("visibilitychange", beat);
    return () => {
      end();
      clearTimeout(timer);
      clearInterval(regular);
      document.removeEventListener("visibilitychange", beat);
    };
  }, []);
}
