// Messages of a conversation as a person reads them. Everything in them is somebody else's text.
import { useState } from "preact/hooks";
import { html, Text, Word } from "/web/shell.js";
import { link } from "./address.js";
import { read } from "./answers.js";
import { Markdown } from "./markdown.js";
import { Folded } from "./table.js";
import { count } from "./words.js";

const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$/;
const SPREAD_MAX = 20000;

/** Arguments of a tool with a line for each, where they are JSON. */
function spread(text) {
  if (text.length > SPREAD_MAX) return text;
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}

function Image({ part, all }) {
  if (part.data === null) {
    return html`<button onClick=${all}>show the image (${part.image}, ${count(part.bytes)} bytes)</button>`;
  }
  if (!IMAGE.test(part.data)) return html`<p class="problem">what is there is no image</p>`;
  return html`<img src=${part.data} alt="an image of the message" />`;
}

function Part({ part, plain, all }) {
  if (part.image) return html`<${Image} part=${part} all=${all} />`;
  return plain ? html`<${Text} text=${part.text.text} />` : html`<${Markdown} text=${part.text.text} />`;
}

const ToolCall = ({ call }) =>
  html`<div class="tool-call">
  <span class="quiet">calls</span> <b><${Word}>${call.name}<//></b> ${
    call.arguments && html`<${Text} text=${spread(call.arguments.text)} />`
  }
</div>`;

const isCut = (piece) => Boolean(piece) && piece.characters > piece.text.length;

/** One message. place: {g, t, c} of its call; plain: no Markdown; current: where the keys are; id: of its element. */
export function Message({ place, message, plain, current, id }) {
  const [whole, setWhole] = useState(null);
  const [problem, setProblem] = useState(null);
  const own = whole && whole.n === message.n ? whole : message;
  const all = async () => {
    try {
      setWhole(await read(link("trajectory/message", { ...place, n: String(message.n) }).slice(1)));
    } catch (refusal) {
      setProblem(refusal);
    }
  };
  const pieces = [own.reasoning, ...own.parts.map(({ text }) => text), ...own.tool_calls.map((call) => call.arguments)];
  const characters = pieces.reduce((sum, piece) => sum + (piece?.characters || 0), 0);
  return html`
    <article class=${`message ${current ? "current" : ""}`} data-role=${own.role.slice(0, 20)} id=${id} tabindex="-1">
      <header><b class="role"><${Word}>${own.role || "?"}<//></b>${own.name && html`${" "}<${Word}>${own.name}<//>`}
          ${own.answers && html`${" "}<span class="quiet">result of</span> <${Word}>${own.answers.name}<//>`}
          ${own.tool_call_id && !own.answers &&
            html`${" "}<span class="quiet">result of a call that is not there: <${Word}>${own.tool_call_id}<//></span>`}
          ${own.is_reply && html`${" "}<span class="chip">action</span>`}</header>
        <${Folded} class="reasoning" open=${own.parts.length + own.tool_calls.length === 0} text=${own.reasoning?.text}
          title=${`reasoning (${count(own.reasoning?.characters)} characters)`} />
        ${own.parts.map((part, at) =>
          html`<${Part} key=${at} part=${part} plain=${plain || own.role === "tool"} all=${all} />`
        )}
        ${own.tool_calls.map((call, at) => html`<${ToolCall} key=${at} call=${call} />`)}
        ${own.parts.length + own.tool_calls.length === 0 && !own.reasoning && html`<p class="quiet">says nothing</p>`}
        ${(pieces.some(isCut) || own.parts_left_out > 0) &&
          html`<p><button class="more" onClick=${all}>show all of it (${count(characters)} characters${
            own.parts_left_out > 0 ? `, ${count(own.parts_left_out)} parts more` : ""
          })</button></p>`}
        ${problem && html`<p class="problem" role="alert">${problem.message}</p>`}
      </article>
  `;
}

const ROLES = /^(user|assistant|system|tool)$/;

/** A turn of a conversation that stands beside another; null: there is none any more. */
export function Turn({ turn }) {
  if (!turn) return html`<div class="turn none quiet">nothing more</div>`;
  if (turn.branch) return html`<div class="turn quiet">another branch</div>`;
  return html`<div class=${`turn role-${ROLES.test(turn.role) ? turn.role : "other"}`}>
    <b class="quiet"><${Word}>${turn.role || "?"}<//></b>
    <${Folded} title="reasoning" text=${turn.reasoning} />
    <${Text} text=${turn.content} parts=${turn.parts} />
    ${turn.cut > 0 && html`<p class="quiet">${count(turn.cut)} more characters are in the trajectory.</p>`}</div>`;
}
