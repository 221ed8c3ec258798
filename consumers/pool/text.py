"""Search for a text in whole conversations, which are put together from the deltas that calls
store (docs/deltas.md)."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import orjson

from claw_r1.datapool.delta_decoding import bodies
from claw_r1.datapool.view.listing.query import step_says
from claw_r1.eventlog.protocols import Lookup
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import CallCaptured, StepRecord
from claw_r1.schemas.json_values import Json


class Conversations:
    """Requests and replies of calls. Steps come in order of their ids, so each trajectory's
    facts are fetched once."""

    def __init__(self, steps_of: Callable[[str, str], list[StepRecord]], facts: Lookup) -> None:
        """steps_of: all steps of (group_id, trajectory_id)."""
        self._steps_of = steps_of
        self._facts = facts
        self._place = ("", "")
        self._bodies: dict[str, tuple[bytes, bytes]] = {}

    def say(self, step: StepRecord, text: str) -> bool:
        """Returns whether a step's ids, tags or note, its whole request or its reply hold the text, in any case.

        Where the base of a request is lost, only what its call added is searched. Raises HistoryCut.
        """
        if step_says(step, text):
            return True
        place = (step.group_id, step.trajectory_id)
        if place != self._place:
            self._bodies = self._read(*place)
            self._place = place
        return any(text.lower() in _readable(body).lower() for body in self._bodies.get(step.call_id, ()))

    def _read(self, group_id: str, trajectory_id: str) -> dict[str, tuple[bytes, bytes]]:
        """(request, reply) by call_id."""
        steps = self._steps_of(group_id, trajectory_id)
        positions = {step.call_id: Position.of(step.position) for step in steps if step.position is not None}
        records = self._facts.get(positions.values())
        facts = {call_id: records[position].event() for call_id, position in positions.items()}
        calls = {call_id: fact for call_id, fact in facts.items() if isinstance(fact, CallCaptured)}
        requests = bodies(calls)
        return {
            call_id: (requests.get(call_id, call.request.suffix), call.response_body) for call_id, call in calls.items()
        }


def _readable(body: bytes) -> str:
    """Its JSON, and below it each text in it as a reader knows it, so without escapes; a body that is no JSON, or nested too
    deeply, as it is."""
    try:
        value = orjson.loads(body)
        return "\0".join((orjson.dumps(value).decode(), *_texts(value)))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # it reads deeper nesting than it writes
        return body.decode("utf-8", "replace")


def _texts(value: Json) -> Iterator[str]:
    """Yields all texts, also of JSON within a text, as the arguments and results of tools are."""
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
            if value.startswith(("{", "[")):
                with suppress(orjson.JSONDecodeError):
                    values.append(orjson.loads(value))
        elif isinstance(value, dict):
            values += (*value, *value.values())
        elif isinstance(value, list):
            values += value
