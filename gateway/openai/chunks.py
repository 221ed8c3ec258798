"""The chunks of a stream of OpenAI's, chat's or a text completion's, put together as if they had not been streamed."""

from collections.abc import Iterable

from gateway.foreign_json import Json, count
from gateway.openai.message import joined, merge


def completion_of(chunks: Iterable[dict[str, Json]], kind: str) -> dict[str, Json] | None:
    """The completion, `kind` being its `object`; None when no chunk has a choice."""
    fields: dict[str, Json] = {}
    choices: dict[int, dict[str, Json]] = {}
    for chunk in chunks:
        fields |= {name: value for name, value in chunk.items() if name != "choices" and value is not None}
        listed = chunk.get("choices")
        for position, choice in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(choice, dict):
                index = count(choice.get("index"), position)
                _add(choices.setdefault(index, {"index": index, "finish_reason": None}), choice)
    if not choices:
        return None
    return {**fields, "object": kind, "choices": [joined(choices[index]) for index in sorted(choices)]}


def _add(into: dict[str, Json], choice: dict[str, Json]) -> None:
    """Take in one choice of one chunk."""
    for name, value in choice.items():
        if name == "delta" and isinstance(value, dict):
            merge(into.setdefault("message", {}), value)
        elif name == "text":
            merge(into, {name: value})
        elif name == "logprobs" and isinstance(value, dict):
            lists = into[name] = into.get(name) or {}
            for key, items in value.items():
                _extend(lists, key, items)
        elif name == "token_ids":
            _extend(into, name, value)
        elif name != "index" and (value is not None or name not in into):
            into[name] = value


def _extend(into: dict[str, Json], name: str, items: Json) -> None:
    """Lists grow in place: a stream has thousands of them. What is no list counts where none came."""
    grown = into.get(name)
    if not isinstance(grown, list):
        into[name] = list(items) if isinstance(items, list) else items
    elif isinstance(items, list):
        grown.extend(items)
