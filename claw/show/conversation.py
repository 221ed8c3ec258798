"""Calls of one trajectory as one conversation: what each request added, then what the model said."""

from dataclasses import dataclass
from typing import Any

import orjson

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Call:
    """Bodies of one chat call, as captured (JSON)."""

    request: bytes
    reply: bytes


def conversation(calls: list[Call]) -> list[Message]:
    """Messages in order, each once: a request repeats the conversation so far, so only its new tail is shown."""
    shown: list[Message] = []
    for call in calls:
        asked = [_message(message) for message in _parsed(call.request).get("messages", [])]
        common = next(
            (i for i, (a, b) in enumerate(zip(shown, asked, strict=False)) if a != b), min(len(shown), len(asked))
        )
        shown = shown if common == len(shown) else [*shown, {"role": "", "content": "— a branch —"}]
        shown += asked[common:]
        shown += [_message(choice["message"]) for choice in _parsed(call.reply).get("choices", [])[:1]]
    return shown


def _message(message: dict[str, Any]) -> Message:  # JSON of the client's
    content = message.get("content")
    text = content if isinstance(content, str) else orjson.dumps(content or message.get("tool_calls")).decode()
    return {"role": str(message.get("role", "")), "content": text}


def _parsed(body: bytes) -> dict[str, Any]:  # JSON
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
