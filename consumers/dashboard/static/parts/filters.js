// The filters of `claw pool`, as the address carries them, as a form has them, and as a command.
import { quoted } from "./words.js";

/** name -> {type, label}: the fields of `PoolFilter` (datapool/view/listing/pool_filter.py), in the order of a form. */
export const FILTERS = {
  group: { type: "text", label: "group" },
  trajectory: { type: "text", label: "trajectory" },
  channel: { type: "text", label: "channel" },
  agent: { type: "text", label: "agent" },
  run: { type: "text", label: "run" },
  task: { type: "text", label: "task" },
  status: { type: "text", label: "status" },
  reason: { type: "text", label: "reason" },
  finish: { type: "text", label: "finish", hint: "length" },
  time: { type: "text", label: "time (UTC)", hint: "2026-11-29T14" },
  tag: { type: "list", label: "tag" },
  ready: { type: "flag", label: "ready" },
  trainable: { type: "flag", label: "trainable" },
  reward_min: { type: "number", label: "return or reward ≥" },
  reward_max: { type: "number", label: "return or reward ≤" },
  quality_min: { type: "number", label: "quality ≥" },
  quality_max: { type: "number", label: "quality ≤" },
  version_min: { type: "number", label: "version ≥" },
  version_max: { type: "number", label: "version ≤" },
  score: { type: "list", label: "score", hint: "entropy@1>=0.3" },
  text: { type: "text", label: "text" },
};

/** The filter of an address: name -> text, or list of texts. */
export function filterOf(params) {
  const filter = {};
  for (const [name, { type }] of Object.entries(FILTERS)) {
    const values = params.getAll(name).filter((value) => value !== "");
    if (values.length) filter[name] = type === "list" ? values : values[0];
  }
  return filter;
}

/** It as a query string. more: names and values beside the filter. */
export function queryOf(filter, more = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...filter, ...more })) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") query.append(name, each);
    }
  }
  return query.toString();
}

/** It as options of `claw pool`. */
export function optionsOf(filter) {
  const words = [];
  for (const [name, value] of Object.entries(filter)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (FILTERS[name].type === "flag") words.push(each === "true" ? `--${name}` : `--not-${name}`);
      else words.push(`--${name.replace("_", "-")}=${quoted(each)}`);
    }
  }
  return words.join(" ");
}
