"""A message of Anthropic's API put together from the events of its stream."""

from claw_r1.gateway.foreign_json import count, loads_shallow
from claw_r1.schemas.json_values import Json

TOOL_INPUT = "partial_json"


class StreamedMessage:
    """The message as a whole reply holds it, as its events come (an `Assembly`), whatever their order.

    The input of a tool is an object, or the text that came of it where that is no JSON.
    """

    def __init__(self) -> None:
        self._fields: dict[str, Json] = {}
        self._usage: dict[str, Json] = {}
        self._blocks: dict[int, _Block] = {}

    def take(self, event: dict[str, Json]) -> None:
        """The next event."""
        kind, index = event.get("type"), count(event.get("index"), 0)
        if kind == "message_start":
            start = _object(event.get("message"))
            self._usage = {**_object(start.get("usage")), **self._usage}
            self._fields = {**start, **self._fields}
        elif kind == "content_block_start":
            self._blocks.setdefault(index, _Block()).begin(_object(event.get("content_block")))
        elif kind == "content_block_delta":
            self._blocks.setdefault(index, _Block()).grow(_object(event.get("delta")))
        elif kind == "message_delta":
            self._usage |= _object(event.get("usage"))
            self._fields |= _object(event.get("delta"))

    def whole(self) -> dict[str, Json] | None:
        """None when nothing of one came."""
        if not (self._fields or self._blocks):
            return None
        content = [self._blocks[index].whole() for index in sorted(self._blocks)]
        return {**self._fields, "content": content, **({"usage": self._usage} if self._usage else {})}


class _Block:
    """One block of the content, as it grows."""

    def __init__(self) -> None:
        self._fields: dict[str, Json] = {}
        self._texts: dict[str, list[str]] = {}
        self._citations: list[Json] = []

    def begin(self, fields: dict[str, Json]) -> None:
        self._fields |= fields

    def grow(self, delta: dict[str, Json]) -> None:
        for name, value in delta.items():
            if isinstance(value, str) and name != "type":
                self._texts.setdefault(name, []).append(value)
            elif name == "citation":
                self._citations.append(value)

    def whole(self) -> dict[str, Json]:
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        written = texts.pop(TOOL_INPUT, "")
        starts = {name: value if isinstance(value := self._fields.get(name), str) else "" for name in texts}
        grown: dict[str, Json] = {name: starts[name] + text for name, text in texts.items()}
        if written:
            grown["input"] = _input(written)
        if self._citations:
            grown["citations"] = self._citations
        return {**self._fields, **grown}


def _input(written: str) -> Json:
    try:
        return loads_shallow(written.encode(errors="surrogatepass"))
    except ValueError:
        return written


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
