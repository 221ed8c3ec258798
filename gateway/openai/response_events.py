"""The events of a streamed response of OpenAI's, put together as if it had not been streamed."""

from claw_r1.gateway.foreign_json import count
from claw_r1.schemas.json_values import Json

LAST = ("response.completed", "response.incomplete", "response.failed")
"""Types of the events that end a stream."""
PARTS = {
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}
"""The events that grow a part of an item: the item's list, the event's member with the place in it, type and member of
the part."""
MEMBERS = {
    "response.function_call_arguments.delta": "arguments",
    "response.mcp_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
    "response.code_interpreter_call_code.delta": "code",
}
"""The events that grow a text of an item itself: the text's name."""


class StreamedResponse:
    """A response, as its events come (an `Assembly`): that in the last event; without one,
    what its items add up to."""

    def __init__(self) -> None:
        self._fields: dict[str, Json] = {}
        self._items: dict[int, _Item] = {}
        self._is_over = False

    def take(self, event: dict[str, Json]) -> None:
        """The next event; what follows the last one adds nothing."""
        response = event.get("response")
        if self._is_over:
            return
        if isinstance(response, dict):
            self._fields, self._is_over = response, event.get("type") in LAST
        elif "output_index" in event:
            self._items.setdefault(count(event["output_index"], len(self._items)), _Item()).take(event)

    def whole(self) -> dict[str, Json] | None:
        """None when nothing of one came."""
        items = self._items
        if self._is_over:
            return self._fields
        if not items:
            return None
        return {**self._fields, "status": "in_progress", "output": [items[index].whole() for index in sorted(items)]}


class _Item:
    """One item of the output, as it grows."""

    def __init__(self) -> None:
        self._fields: dict[str, Json] = {}
        self._is_done = False
        self._texts: dict[str, list[str]] = {}
        self._parts: dict[tuple[str, int, str, str], list[str]] = {}

    def take(self, event: dict[str, Json]) -> None:
        """Takes in the additions of an event; an item that is done has everything."""
        kind, item, delta = str(event.get("type")), event.get("item"), event.get("delta")
        if isinstance(item, dict):
            if kind == "response.output_item.done" or not self._is_done:
                self._fields = item
            self._is_done = self._is_done or kind == "response.output_item.done"
        elif isinstance(delta, str) and kind in PARTS:
            name, place, of_type, member = PARTS[kind]
            self._parts.setdefault((name, count(event.get(place), 0), of_type, member), []).append(delta)
        elif isinstance(delta, str) and kind in MEMBERS:
            self._texts.setdefault(MEMBERS[kind], []).append(delta)

    def whole(self) -> dict[str, Json]:
        """Returns the item as it stands in a response."""
        if self._is_done:
            return self._fields
        lists: dict[str, list[Json]] = {}
        for (name, _, of_type, member), pieces in sorted(self._parts.items()):
            lists.setdefault(name, []).append({"type": of_type, member: "".join(pieces)})
        return {**self._fields, **{name: "".join(pieces) for name, pieces in self._texts.items()}, **lists}
