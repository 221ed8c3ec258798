"""The messages of each call: those that its request adds to the conversation that it continues, and its reply.
Pure.

Invariant: repeated and added messages are together those that `claw_r1.datapool.view.conversations` reads in its
request. Reasoning decides nothing: many clients do not send it back.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from claw_r1.datapool.delta_decoding import bodies
from claw_r1.datapool.view.chat_format import as_text, objects
from claw_r1.datapool.view.conversations import (
    CallBodies,
    offered_tools,
    repeats_history,
    reply_message,
    request_messages,
    turn_of,
)
from claw_r1.schemas.events import CallCaptured
from claw_r1.schemas.json_values import Json, JsonDict

CUT_CHARACTERS = 8_000
"""The longest text of a message, unless all of it is requested."""
MESSAGES_MAX = 60
"""The most messages of one call: the first and the last of more; so of parts of a message."""
TOOLS_MAX = 100
AROUND = 60
"""Characters on each side of a hit."""
IMAGE = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,[A-Za-z0-9+/]+={0,2}", re.ASCII)
"""The form of an image that is shown; an address elsewhere is text, as is SVG, which is a document."""


class CallShare(NamedTuple):
    """One call's share of the conversation."""

    base: str | None
    """The call whose conversation its request was compared with."""
    repeated: int
    """Messages of that conversation, its reply included, that the request begins with."""
    left: int
    """Messages of that conversation behind these, which the request has not: of a branch there are some."""
    added: list[JsonDict]
    reply: JsonDict | None
    tools: list[str]
    tool_calls: dict[str, JsonDict]
    """By id, all that the request holds."""
    problem: str | None
    """The reason why there are no messages of the request."""


class _Spoken(NamedTuple):
    bodies: CallBodies
    request: list[JsonDict] | None
    reply: JsonDict | None


def bases(call: CallCaptured, before: str | None) -> list[str]:
    """Calls that its messages may be compared with, the best first. before: the one before it in the trajectory."""
    return [each for each in (call.request.base_call_id, call.prompt.base_call_id, before) if each is not None]


def exchanges(calls: Sequence[tuple[str, str | None]], facts: Mapping[str, CallCaptured]) -> list[CallShare]:
    """Returns the messages that these calls add, each with the call before it in the trajectory.

    facts: the calls, those of `bases`, and all that bodies of these are written against, by call_id.
    """
    wholes = bodies(facts)
    read: dict[str, _Spoken] = {}

    def spoken(call_id: str) -> _Spoken:
        if call_id not in read:
            own = CallBodies.of(facts[call_id], wholes.get(call_id, b""))
            read[call_id] = _Spoken(own, request_messages(own), reply_message(own))
        return read[call_id]

    answers = []
    for call_id, before in calls:
        own = spoken(call_id)
        base = next((each for each in bases(facts[call_id], before) if each in facts), None) if own.request else None
        answers.append(_exchange(own, base, [] if base is None else _conversation(spoken(base))))
    return answers


def _conversation(call: _Spoken) -> list[JsonDict]:
    return [*(call.request or ()), *([call.reply] if call.reply else ())]


def _exchange(own: _Spoken, base: str | None, earlier: list[JsonDict]) -> CallShare:
    request, problem = own.request or [], None
    if own.request is None:
        problem = "its request says nothing in words" if own.bodies.request else "its request cannot be put together"
    if not repeats_history(own.bodies):  # it names what stands before it
        repeated, added = len(earlier), request
    elif own.bodies.protocol == "completions" and (rest := _completed(earlier, request)) is not None:
        repeated, added = len(earlier), rest
    else:
        repeated = _common(earlier, request)
        added = request[repeated:]
    tools = [_tool_name(tool) for tool in offered_tools(own.bodies)[:TOOLS_MAX]]
    of_tools = (each for message in (*earlier, *added) for each in objects(message.get("tool_calls")))
    tool_calls = {str(each.get("id")): each for each in of_tools}
    return CallShare(base, repeated, len(earlier) - repeated, added, own.reply, tools, tool_calls, problem)


def _common(earlier: Sequence[JsonDict], request: Sequence[JsonDict]) -> int:
    """Returns how many messages both begin with."""
    pairs = zip(earlier, request, strict=False)
    return next((at for at, pair in enumerate(pairs) if not _same(*pair)), min(len(earlier), len(request)))


def _same(one: JsonDict, other: JsonDict) -> bool:
    with suppress(RecursionError):  # bodies may be nested deeper than can be compared
        if one == other:
            return True
    return _words(one) == _words(other)


def _words(message: JsonDict) -> tuple[str, str]:
    turn = turn_of(message)
    return turn["role"], turn["content"]


def _completed(earlier: Sequence[JsonDict], request: Sequence[JsonDict]) -> list[JsonDict] | None:
    """Returns what a prompt that is one text adds to an earlier prompt and its reply."""
    text = "".join(str(message.get("content") or "") for message in earlier)
    prompt = request[0].get("content") if len(request) == 1 else None
    if not text or not isinstance(prompt, str) or not prompt.startswith(text):
        return None
    return [{"role": "user", "content": prompt[len(text) :]}] if prompt != text else []


def message_answers(exchange: CallShare, number: int | None = None) -> list[dict[str, Any]]:  # JSON
    """The messages that a call added, then its reply, cut; of one number only that, with nothing cut."""
    messages = [*exchange.added, *([exchange.reply] if exchange.reply else ())]
    numbers: Sequence[int] = range(len(messages))
    if number is not None:
        numbers = numbers[number : number + 1]
    elif len(messages) > MESSAGES_MAX:
        numbers = [*numbers[: MESSAGES_MAX // 2], *numbers[-MESSAGES_MAX // 2 :]]
    cut = CUT_CHARACTERS if number is None else None
    return [
        _message(messages[n], exchange.tool_calls, cut) | {"n": n, "is_reply": n == len(exchange.added)}
        for n in numbers
    ]


def excerpt_of(text: str, call: CallCaptured) -> str | None:
    """Finds a call that adds this text, in any case, and returns the text around it as the body has it."""
    needles = {json.dumps(text, ensure_ascii=ascii_only)[1:-1].lower() for ascii_only in (True, False)}
    for body in (call.request.suffix, call.response_body):
        whole = body.decode(errors="replace")
        lowered = whole.lower()
        for needle in needles:
            if (at := lowered.find(needle)) >= 0:
                return whole[max(0, at - AROUND) : at + len(needle) + AROUND]
    return None


def _message(message: JsonDict, tool_calls: Mapping[str, JsonDict], cut: int | None) -> dict[str, Any]:  # JSON
    content, question = message.get("content"), tool_calls.get(str(message.get("tool_call_id")))
    parts = content if isinstance(content, list) else [] if content is None else [content]
    kept = parts if cut is None else parts[:MESSAGES_MAX]
    return {
        "role": str(message.get("role", ""))[:200],
        "name": as_text(message.get("name")),
        "reasoning": _cut(as_text(message.get("reasoning") or message.get("reasoning_content") or None), cut),
        "parts": [_part(part, cut) for part in kept],
        "parts_left_out": len(parts) - len(kept),
        "tool_calls": [_tool_call(each, cut) for each in objects(message.get("tool_calls"))[:TOOLS_MAX]],
        "tool_call_id": as_text(message.get("tool_call_id")),
        "answers": None if question is None else _tool_call(question, 200),
    }


def _tool_name(tool: JsonDict) -> str:
    function = tool.get("function")
    return str((function if isinstance(function, dict) else tool).get("name") or tool.get("type"))[:200]


def _tool_call(call: JsonDict, cut: int | None) -> dict[str, Any]:  # JSON
    function = call.get("function")
    arguments = (function if isinstance(function, dict) else call).get("arguments")
    return {"id": as_text(call.get("id")), "name": _tool_name(call), "arguments": _cut(as_text(arguments), cut)}


def _part(part: Json, cut: int | None) -> dict[str, Any]:  # JSON
    """Text, or an image with its address; an address that is the image itself is only named, unless all is shown."""
    address = _address(part)
    if address is None:
        text = part.get("text") if isinstance(part, dict) and isinstance(part.get("text"), str) else part
        return {"text": _cut(as_text(text), cut)}
    if (image := IMAGE.fullmatch(address)) is None:
        return {"text": _cut(f"[an image that is not loaded: {address}]", cut)}
    return {"image": image[1], "bytes": len(address) * 3 // 4, "data": address if cut is None else None}


def _address(part: Json) -> str | None:
    """Returns the address of an image in a part of chat, responses or messages."""
    if not isinstance(part, dict):
        return None
    source, url = part.get("source"), part.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(url, str) or part.get("type") != "image" or not isinstance(source, dict):
        return as_text(url)
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return as_text(source.get("url"))


def _cut(text: str | None, cut: int | None) -> dict[str, Any] | None:  # JSON
    return None if text is None else {"text": text[:cut], "characters": len(text)}
