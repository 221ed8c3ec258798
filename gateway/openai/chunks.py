"""The chunks of a stream of OpenAI's, chat's or a text completion's, put together as if they
had not been streamed."""

from claw_r1.gateway.foreign_json import count
from claw_r1.gateway.openai.message import container, joined, merge
from claw_r1.schemas.json_values import Json


class StreamedCompletion:
    """A completion, as its chunks come (an `Assembly`). kind: its `object`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._fields: dict[str, Json] = {}
        self._choices: dict[int, dict[str, Json]] = {}

    def take(self, event: dict[str, Json]) -> None:
        """The next chunk."""
        self._fields |= {name: value for name, value in event.items() if name != "choices" and value is not None}
        listed = event.get("choices")
        for position, choice in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(choice, dict):
                index = count(choice.get("index"), position)
                _add(self._choices.setdefault(index, {"index": index, "finish_reason": None}), choice)

    def whole(self) -> dict[str, Json] | None:
        """None when no chunk has a choice."""
        choices = self._choices
        if not choices:
            return None
        return {**self._fields, "object": self._kind, "choices": [joined(choices[index]) for index in sorted(choices)]}


def _add(into: dict[str, Json], choice: dict[str, Json]) -> None:
    """Take in one choice of one chunk."""
    for name, value in choice.items():
        if name == "delta" and isinstance(value, dict):
            merge(container(into, "message", dict), value)
        elif name == "text":
            merge(into, {name: value})
        elif name == "logprobs":
            _add_logprobs(into, value)
        elif name == "token_ids":
            _extend(into, name, value)
        elif name != "index" and (value is not None or name not in into):
            into[name] = value


def _add_logprobs(into: dict[str, Json], value: Json) -> None:
    """Null, or whatever an engine makes of a flag, counts where no lists came."""
    if not isinstance(value, dict):
        into.setdefault("logprobs", value)
        return
    lists = into.get("logprobs")
    if not isinstance(lists, dict):
        lists = into["logprobs"] = {}
    for name, items in value.items():
        _extend(lists, name, items)


def _extend(into: dict[str, Json], name: str, items: Json) -> None:
    """Lists grow in place: a stream has thousands of them. What is no list counts where none came."""
    grown = into.get(name)
    if not isinstance(grown, list):
        into[name] = list(items) if isinstance(items, list) else items
    elif isinstance(items, list):
        grown.extend(items)
