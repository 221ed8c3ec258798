"""The events of a streamed response of OpenAI's, put together as if it had not been streamed."""

from collections.abc import Iterable

from gateway.foreign_json import Json, count

LAST = ("response.completed", "response.incomplete", "response.failed")
"""Types of the events that end a stream."""
PARTS = {
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}
"""Of events that grow a part of an item: the item's list, the event's member with the place in it, type and member of the part."""
MEMBERS = {
    "response.function_call_arguments.delta": "arguments",
    "response.mcp_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
    "response.code_interpreter_call_code.delta": "code",
}
"""Of events that grow a text of an item itself: the text's name."""


def response_of(events: Iterable[dict[str, Json]]) -> dict[str, Json] | None:
    """The response in the last event; of a stream without one, what its items add up to; None when nothing of one came."""
    fields: dict[str, Json] = {}
    items: dict[int, _Item] = {}
    for event in events:
        response, kind = event.get("response"), event.get("type")
        if isinstance(response, dict):
            fields = response
            if kind in LAST:
                return response
        elif "output_index" in event:
            items.setdefault(count(event["output_index"], len(items)), _Item()).take(event)
    if not items:
        return None
    return {**fields, "status": "in_progress", "output": [items[index].whole() for index in sorted(items)]}


class _Item:
    """One item of the output, as it grows."""

    def __init__(self) -> None:
        self._fields: dict[str, Json] = {}
        self._is_done = False
        self._texts: dict[str, list[str]] = {}
        self._parts: dict[tuple[str, int, str, str], list[str]] = {}

    def take(self, event: dict[str, Json]) -> None:
        """What this event adds; an item that is done has everything."""
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
        """As it stands in a response."""
        if self._is_done:
            return self._fields
        lists: dict[str, list[Json]] = {}
        for (name, _, of_type, member), pieces in sorted(self._parts.items()):
            lists.setdefault(name, []).append({"type": of_type, member: "".join(pieces)})
        return {**self._fields, **{name: "".join(pieces) for name, pieces in self._texts.items()}, **lists}
