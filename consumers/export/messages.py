"""A captured call as chat messages: what was asked, then what the model said. Pure; a body that is no chat has none."""

from typing import Any, TypedDict

import orjson

Json = Any  # bodies are the client's and the engine's


class Message(TypedDict):
    """As OpenAI's chat format has it; what is no text is JSON text."""

    role: str
    content: str | None
    name: str | None
    tool_calls: str | None
    tool_call_id: str | None


def messages(request: bytes, reply: bytes, choice: int = 0) -> list[Message] | None:
    """The conversation of one call, or None where the bodies are no chat."""
    asked, answered = _parsed(request), _reply(_parsed(reply), choice)
    if not isinstance(asked.get("messages"), list) or answered is None:
        return None
    system = [{"role": "system", "content": asked["system"]}] if asked.get("system") else []
    return [_message(one) for one in (*system, *asked["messages"], answered) if isinstance(one, dict)]


def tools(request: bytes) -> str | None:
    """The tools that the model was shown, as JSON text."""
    return _text(_parsed(request).get("tools"))


def _reply(body: dict[str, Json], choice: int) -> Json:
    """OpenAI: the message of the choice. Anthropic: the body itself is the message."""
    choices = body.get("choices")
    if isinstance(choices, list):
        chosen = [one for one in choices if isinstance(one, dict) and one.get("index", 0) == choice] or choices[:1]
        return chosen[0].get("message") if chosen and isinstance(chosen[0], dict) else None
    return body if body.get("role") == "assistant" else None


def _message(message: dict[str, Json]) -> Message:
    return Message(
        role=str(message.get("role", "")),
        content=_text(message.get("content")),
        name=_text(message.get("name")),
        tool_calls=_text(message.get("tool_calls") or None),
        tool_call_id=_text(message.get("tool_call_id")),
    )


def _text(value: Json) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _parsed(body: bytes) -> dict[str, Json]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
