// Tokens as lines of a page: what is known of each by its place, how wide it is drawn, and which fit a line. No DOM but a ruler.
import { html, visible } from "/web/shell.js";

export const FONT = '13px ui-monospace, "DejaVu Sans Mono", monospace'; // as tokens.css has it
const PIECE_MAX = 64;
const FOLD_MIN = 64;
const FOLD_LEAVES = 16;
const GAP = 3;
const HEAT = [0.05, 0.2, 0.5, 1, 2, 3, 4.6]; // of -log p: class h0 … h7

/** What is known of each token of an answer, by its place from `answer.from` on: typed arrays and lists of the same length. */
export function modelOf(answer) {
  const count = answer.ids.length;
  const model = {
    answer,
    count,
    first: answer.from,
    stretch: new Int32Array(count).fill(-1),
    trained: new Uint8Array(count),
    version: new Int32Array(count).fill(-1),
    heat: new Int8Array(count).fill(-1),
    versions: [],
    part: new Map(),
    made: new Map(),
    width: new Float32Array(count),
    widths: new Map(),
    special: new Set(answer.special),
  };
  const within = (start, end) => [Math.max(0, start - model.first), Math.min(count, end - model.first)];
  answer.sampled.forEach((stretch, number) => {
    model.stretch.fill(number, ...within(stretch.start, stretch.end));
    for (const [start, end] of stretch.trained) model.trained.fill(1, ...within(start, end));
    for (const [run, version, start, end] of stretch.versions) {
      let place = model.versions.findIndex((each) => each.run === run && each.version === version);
      if (place < 0) place = model.versions.push({ run, version }) - 1;
      const [low, high] = within(start, end);
      if (low < high) model.version.fill(place, low, high);
    }
  });
  for (const [first, last, character] of answer.characters) {
    for (let at = first; at <= last; at += 1) model.part.set(at - model.first, character);
    model.made.set(last - model.first, character);
  }
  answer.logprobs.forEach((logprob, at) => {
    if (logprob === null) return;
    const level = HEAT.findIndex((bound) => -logprob < bound);
    model.heat[at] = level < 0 ? HEAT.length : level;
  });
  return model;
}

/** The run and version of a token where another one begins than the sampled token before it had, else null. */
export function versionBegins(model, at) {
  const own = model.version[at];
  if (own < 0 || (at > 0 && model.version[at - 1] === own)) return null;
  let before = at - 1;
  while (before >= 0 && model.version[before] < 0) before -= 1;
  return before < 0 || model.version[before] !== own ? model.versions[own] : null;
}

const plain = (text) => visible(text.replace(/\n/g, "↵").replace(/\t/g, "⇥"));

/** A token's text, its bytes where they are part of a character. */
export const pieceText = (piece) =>
  typeof piece === "string" ? plain(piece || "∅") : piece.map((
    part,
    at,
  ) => (at % 2 ? html`<span class="bytes">⟨${part.slice(0, 3 * PIECE_MAX)}⟩</span>` : plain(part)));

const marked = (text) => {
  const cut = text.length > PIECE_MAX ? `${[...text.slice(0, PIECE_MAX)].slice(0, -1).join("")}…` : text;
  return plain(cut);
};

/** What is drawn of a token: nodes. Bytes that are part of a character, or of none, stand in ⟨ ⟩. */
export function nodesOf(model, at, withIds) {
  const { answer } = model;
  const begins = versionBegins(model, at);
  const nodes = begins ? [html`<i class="version-begins">v${begins.version}</i>`] : [];
  const piece = answer.pieces ? answer.pieces[at] : null;
  if (piece === null) nodes.push(String(answer.ids[at]));
  else if (typeof piece === "string") nodes.push(...(piece === "" ? ["∅"] : marked(piece)));
  else {piece.forEach((part, place) =>
      nodes.push(...(place % 2 ? [html`<span class="bytes">⟨${part.slice(0, 3 * PIECE_MAX)}⟩</span>`] : marked(part)))
    );}
  if (model.made.has(at)) nodes.push(html`<span class="made">${visible(model.made.get(at))}</span>`);
  if (withIds && piece !== null) nodes.push(html`<small>${answer.ids[at]}</small>`);
  return nodes;
}

let ruler;
const known = new Map();
function wide(text) {
  ruler ??= document.createElement("canvas").getContext("2d");
  if (!known.has(text)) {
    if (known.size > 50000) known.clear();
    ruler.font = FONT;
    known.set(text, ruler.measureText(text).width);
  }
  return known.get(text);
}

// Of what stands in a mark: its font's part of the line's, and the px that its edges add, as tokens.css and shell.css have them.
const MARKS = { "bytes": [0.86, 0], "made": [1, 7], "version-begins": [0.78, 3], "hidden-character": [0.76, 6] };
const widthOf = (nodes) =>
  [nodes].flat(3).reduce((sum, node) => {
    if (typeof node !== "object") return sum + wide(String(node));
    const [scale, edges] = MARKS[node.props.class];
    return sum + scale * widthOf(node.props.children) + edges;
  }, 0);

/** Of a token as it is drawn; of most, the same wherever they stand. */
function widthAt(model, at) {
  const piece = model.answer.pieces ? model.answer.pieces[at] : null;
  if (typeof piece !== "string" || model.made.has(at) || versionBegins(model, at)) {
    return widthOf(nodesOf(model, at, false));
  }
  if (!model.widths.has(piece)) model.widths.set(piece, widthOf(nodesOf(model, at, false)));
  return model.widths.get(piece);
}

/** Runs of tokens that nobody sampled, but for the last few before a reply: [first, behind]. Of a line without replies, none.
 * @returns {[number, number][]} */
export function foldsOf(model) {
  /** @type {[number, number][]} */
  const folds = [];
  for (let at = 0; at < model.count && model.versions.length + model.answer.sampled.length; at += 1) {
    if (model.stretch[at] >= 0) continue;
    const start = at;
    while (at < model.count && model.stretch[at] < 0) at += 1;
    if (at - start > FOLD_MIN) folds.push([start, at === model.count ? at : at - FOLD_LEAVES]);
  }
  return folds;
}

/** Lines [{fold, from, to}] of all tokens, each no wider than `room` px. open(first): whether the run that begins there is drawn. */
export function linesOf(model, room, open, withIds) {
  const lines = [];
  const folds = new Map(foldsOf(model).filter(([first]) => !open(first)));
  const { pieces, ids } = model.answer;
  let [from, used] = [0, 0];
  const end = (to) => {
    if (to > from) lines.push({ fold: false, from, to });
    [from, used] = [to, 0];
  };
  for (let at = 0; at < model.count; at += 1) {
    if (folds.has(at)) {
      end(at);
      lines.push({ fold: true, from: at, to: folds.get(at) });
      from = folds.get(at);
      at = from - 1;
      continue;
    }
    const own = widthAt(model, at) + GAP;
    model.width[at] = Math.min(room, withIds && pieces ? Math.max(own, 0.78 * wide(String(ids[at])) + GAP) : own);
    if (used + model.width[at] > room) end(at);
    used += model.width[at];
    if (pieces && typeof pieces[at] === "string" && pieces[at].endsWith("\n")) end(at + 1);
  }
  end(model.count);
  return lines;
}

/** Index of the line that holds a token. */
export function lineOf(lines, at) {
  let [low, high] = [0, lines.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lines[middle].to <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The next token (step 1) or the one before (-1) for which `fits`; -1: there is none. */
export function search(model, at, step, fits) {
  for (let place = at + step; place >= 0 && place < model.count; place += step) if (fits(place)) return place;
  return -1;
}

/** The token on the next line (step 1) or the one before that stands under or over a token. */
export function beside(model, lines, at, step) {
  const number = lineOf(lines, at);
  const target = lines[number + step];
  if (!target) return at;
  if (target.fold) return target.from;
  let [left, place] = [0, target.from];
  for (let each = lines[number].from; each < at; each += 1) left += model.width[each];
  while (place < target.to - 1 && left >= model.width[place]) left -= model.width[place++];
  return place;
}

/** What a reader takes for one character and several tokens or code points make: {text, from, to}, or null. */
export function character(model, at) {
  const { pieces, characters } = model.answer;
  if (!pieces) return null;
  const points = [];
  const spans = new Map(characters.map(([first, last, text]) => [first - model.first, [last - model.first, text]]));
  for (let place = Math.max(0, at - 40); place < Math.min(model.count, at + 40); place += 1) {
    const parts = typeof pieces[place] === "string"
      ? [pieces[place]]
      : pieces[place].filter((_, number) => number % 2 === 0);
    for (const text of parts.join("")) points.push({ text, from: place, to: place });
    if (spans.has(place)) points.push({ text: spans.get(place)[1], from: place, to: spans.get(place)[0] });
  }
  let next = 0;
  for (const { segment } of new Intl.Segmenter().segment(points.map(({ text }) => text).join(""))) {
    const own = [];
    for (let size = 0; size < segment.length; next += 1) size += own[own.push(points[next]) - 1].text.length;
    const [from, to] = [own[0].from, own[own.length - 1].to];
    if (from <= at && at <= to && from < to) return { text: segment, from, to };
  }
  return null;
}
