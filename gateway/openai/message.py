"""A message put together from its deltas, as the chunks of a stream hold them."""

from typing import TypeGuard, TypeVar

from claw_r1.gateway.foreign_json import count
from claw_r1.schemas.json_values import Json

T = TypeVar("T")
LAST_WINS = frozenset({"role", "id", "type", "index"})


class _Pieces(list[str]):
    """A text, not joined yet."""


class _Indexed(dict[int, dict[str, Json]]):
    """A list whose items name their places: tool calls."""


def merge(into: dict[str, Json], delta: dict[str, Json]) -> None:
    """Texts grow; objects, and lists of objects with an index, are merged; of all else the last one counts. An empty text or list
    takes back nothing, and a tool call without an index is one more: servers send both in later chunks."""
    for name, value in delta.items():
        if name in into and value in ("", []):
            continue
        if isinstance(value, str) and name not in LAST_WINS:
            container(into, name, _Pieces).append(value)
        elif isinstance(value, dict):
            merge(container(into, name, dict), value)
        elif isinstance(value, list) and value and all(_is_piece(name, item) for item in value):
            items = container(into, name, _Indexed)
            for item in value:
                merge(items.setdefault(count(item.get("index"), len(items)), {}), item)
        elif value is not None or name not in into:
            into[name] = value


def _is_piece(of: str, item: Json) -> TypeGuard[dict[str, Json]]:
    return isinstance(item, dict) and ("index" in item or of == "tool_calls")


def container(into: dict[str, Json], name: str, kind: type[T]) -> T:
    """Returns the container of this name if it is of this kind; else a new one, which stands there from now on."""
    container = into.get(name)
    if type(container) is not kind:
        container = into[name] = kind()
    return container


def joined(value: Json) -> Json:
    """Joins merged pieces into the values that JSON has."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, _Indexed):
        return [joined(value[index]) for index in sorted(value)]
    return {name: joined(member) for name, member in value.items()} if isinstance(value, dict) else value
