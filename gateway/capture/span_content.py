"""The words of a call as attributes of its span, as OpenTelemetry's
conventions shape them: if its variable asks for them.

Each attribute is a JSON list of messages in parts. It has a bound,
since spans wait in memory: the newest messages that fit, and a mark.
"""

from collections.abc import Iterable, Iterator, Sequence

from claw_r1.datapool.view.chat_format import as_text, objects
from claw_r1.datapool.view.conversations import CallBodies, reply_message, request_messages
from claw_r1.gateway.capture.events import ModelCall
from claw_r1.runtime.monitoring.tracing import Attributes
from claw_r1.schemas.events import CallCaptured
from claw_r1.schemas.json_values import Json, JsonDict

CHARACTERS_MAX = 32 << 10
"""The most of each attribute."""


def content_attributes(call: ModelCall, events: Sequence[CallCaptured]) -> Attributes:
    """Returns what was asked and what each choice answered. events: one per choice, without credentials."""
    bodies = [CallBodies(each.protocol, call.request.body, each.response_body, each.choice) for each in events]
    answers = [
        {**_in_parts(message), "finish_reason": event.finish_reason or ""}
        for event, body in zip(events, bodies, strict=True)
        if (message := reply_message(body)) is not None
    ]
    question = request_messages(bodies[0]) or [] if bodies else []
    inputs, inputs_cut = newest(_in_parts(message) for message in reversed(question))
    outputs, outputs_cut = newest(reversed(answers))
    return {
        "gen_ai.input.messages": inputs,
        "gen_ai.output.messages": outputs,
        **({"claw.content_cut": True} if inputs_cut or outputs_cut else {}),
    }


def _in_parts(message: JsonDict) -> JsonDict:
    return {"role": str(message.get("role", "")), "parts": parts_of(message)}


def parts_of(message: JsonDict) -> list[JsonDict]:
    """Returns what a message of chat's format says, by the conventions' parts."""
    return list(_parts(message))


def _parts(message: JsonDict) -> Iterator[JsonDict]:
    if reasoning := message.get("reasoning") or message.get("reasoning_content"):
        yield {"type": "reasoning", "content": as_text(reasoning)}
    content = message.get("content")
    if message.get("role") == "tool":
        yield {"type": "tool_call_response", "id": as_text(message.get("tool_call_id")), "response": as_text(content)}
    elif isinstance(content, list):
        yield from map(_part, content)
    elif content:
        yield {"type": "text", "content": as_text(content)}
    for call in objects(message.get("tool_calls")):
        function = call.get("function")
        what = function if isinstance(function, dict) else {}
        yield {
            "type": "tool_call",
            "id": as_text(call.get("id")),
            "name": as_text(what.get("name")),
            "arguments": as_text(what.get("arguments")),
        }


def _part(part: Json) -> JsonDict:
    """The text of one part of several; of anything else (an image) the type alone."""
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {"type": "text", "content": part["text"]}
    return {"type": as_text(part.get("type") if isinstance(part, dict) else None) or "unknown"}


def newest(newest_first: Iterable[JsonDict]) -> tuple[str, bool]:
    """A JSON list of the messages that fit, in their order, and whether some did not. Of a newest one that is too long by itself,
    the beginning of its JSON as a text."""
    fitting: list[str] = []
    room = CHARACTERS_MAX
    for message in newest_first:
        text = as_text(message) or ""
        if len(text) > room:
            beginning: JsonDict = {"type": "text", "content": text[:room]}
            cut = [as_text({**message, "parts": [beginning]}) or ""]
            return _listed(fitting or cut), True
        fitting.append(text)
        room -= len(text)
    return _listed(fitting), False


def _listed(newest_first: list[str]) -> str:
    return f"[{','.join(reversed(newest_first))}]"
