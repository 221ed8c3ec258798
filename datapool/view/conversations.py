"""What captured calls say, as chat messages. Pure: bodies are bytes; one that is no chat has no messages.

Both formats are read: OpenAI's (`choices[].message`) and Anthropic's (a `system` beside the messages, and a reply that is
itself the message). A request body stands in the log as an edge against an earlier one: `datapool.batch.deltas.bodies`
puts the bodies of a trajectory together, `datapool.view.request_bodies` those of a running reader of the log.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import orjson

Json = Any  # bodies are the client's and the engine's
BRANCH = "— a branch —"


class Message(TypedDict):
    """As OpenAI's chat format has it; what is no text is JSON text."""

    role: str
    content: str | None
    name: str | None
    tool_calls: str | None
    tool_call_id: str | None


class ConversationTurn(TypedDict):
    """A message for people: without content, its tool calls are the content. A branch has no role."""

    role: str
    content: str


def messages(request: bytes, reply: bytes, choice: int = 0) -> list[Message] | None:
    """The messages of one call: those of the request, then the reply's. None where a body is no chat."""
    answer = reply_message(reply, choice)
    if answer is None or not isinstance(_parsed(request).get("messages"), list):
        return None
    return [*_request_messages(request), _message(answer)]


def conversation(calls: Iterable[tuple[bytes, bytes]]) -> list[ConversationTurn]:
    """The calls of a trajectory, (request, reply) each, as one conversation.

    A request repeats the conversation so far: only its new tail is added, after a branch where it does not continue it.
    Of a call by token ids, only what it answered is text.
    """
    turns: list[ConversationTurn] = []
    for request, reply in calls:
        if (text := _completed_text(reply)) is not None:
            turns.append(ConversationTurn(role="assistant", content=text))
            continue
        added = [_turn(message) for message in _request_messages(request)]
        common = _common(turns, added)
        if common < len(turns):
            turns.append(ConversationTurn(role="", content=BRANCH))
        turns += added[common:]
        answer = reply_message(reply)
        turns += [_turn(_message(answer))] if answer is not None else []
    return turns


def reply_message(reply: bytes, choice: int = 0) -> dict[str, Json] | None:
    """The assistant's message as the engine gave it: of that choice, or of the only one; None where the reply is no chat."""
    body = _parsed(reply)
    choices = body.get("choices")
    if not isinstance(choices, list):
        return body if body.get("role") == "assistant" else None
    objects = [item for item in choices if isinstance(item, dict)]
    chosen = next((item for item in objects if item.get("index", 0) == choice), objects[0] if objects else {})
    message = chosen.get("message")
    return message if isinstance(message, dict) else None


def _completed_text(reply: bytes) -> str | None:
    """What a text completion says in its first choice, or a reply of `generate`; None where the reply is neither."""
    body = _parsed(reply)
    choices = body.get("choices", [body] if "token_ids" in body else None)
    first = choices[0] if isinstance(choices, list) and choices else None
    text = first.get("text") if isinstance(first, dict) and "message" not in first else None
    return text if isinstance(text, str) else None


def tools(request: bytes) -> str | None:
    """The tools that the model was offered, as JSON text."""
    return _text(_parsed(request).get("tools"))


def function_parameters(request: bytes) -> dict[str, dict[str, Json]] | None:
    """JSON schema of the parameters by name of the offered functions (OpenAI's format); None where the body is unreadable."""
    body = _parsed(request)
    if not body:
        return None
    offered = [tool.get("function") for tool in body.get("tools") or [] if isinstance(tool, dict)]
    return {
        function["name"]: function.get("parameters") or {}
        for function in offered
        if isinstance(function, dict) and "name" in function
    }


def _request_messages(request: bytes) -> list[Message]:
    body = _parsed(request)
    listed = body.get("messages")
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    every = [*system, *listed] if isinstance(listed, list) else []
    return [_message(message) for message in every if isinstance(message, dict)]


def _message(message: dict[str, Json]) -> Message:
    return Message(
        role=str(message.get("role", "")),
        content=_text(message.get("content")),
        name=_text(message.get("name")),
        tool_calls=_text(message.get("tool_calls") or None),
        tool_call_id=_text(message.get("tool_call_id")),
    )


def _turn(message: Message) -> ConversationTurn:
    return ConversationTurn(role=message["role"], content=message["content"] or message["tool_calls"] or "")


def _common(turns: Sequence[ConversationTurn], added: Sequence[ConversationTurn]) -> int:
    """How many turns both begin with."""
    pairs = zip(turns, added, strict=False)
    return next((at for at, (turn, new) in enumerate(pairs) if turn != new), min(len(turns), len(added)))


def _text(value: Json) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _parsed(body: bytes) -> dict[str, Json]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
