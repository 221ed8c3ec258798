"""The facts behind planned steps: who asked what, and which versions sampled the answer."""

from collections.abc import Iterable, Mapping

from consumers.export.messages import messages
from datapool.batch.deltas import bodies
from eventlog.errors import HistoryCut
from eventlog.kafka.reader import FactLookup
from eventlog.records import Position, Record
from schemas.events import CallCaptured, PlannedStep, VersionSpan
from schemas.http import version_label


def position_of(step: PlannedStep) -> Position:
    return Position(step.position.topic, step.position.partition, step.position.offset)


def calls(lookup: FactLookup, steps: Iterable[PlannedStep]) -> dict[str, CallCaptured]:
    """Facts by call_id, of those that the log still holds. Raises BrokerUnreachable."""
    found: dict[str, CallCaptured] = {}
    wanted = {position_of(step): step.call_id for step in steps}
    try:
        records = lookup.get(wanted)
    except HistoryCut:
        records = {}
        for position in wanted:  # one by one: what is left is shown
            records |= _one(lookup, position)
    for record in records.values():
        event = record.event()
        if isinstance(event, CallCaptured):
            found[event.call_id] = event
    return found


def sampled_by(spans: Iterable[VersionSpan]) -> list[str]:
    """`run/version` of each version that sampled a part, in order, each once."""
    return list(dict.fromkeys(version_label(span.run_id, span.version) for span in spans))


def asked(calls: Mapping[str, CallCaptured]) -> dict[str, str]:
    """What the last message before each answer says, by call id; bodies that are no chat say nothing."""
    requests = bodies(calls)
    said = {name: messages(body, calls[name].response_body, calls[name].choice) for name, body in requests.items()}
    return {name: told[-2]["content"] or "" for name, told in said.items() if told is not None and len(told) > 1}


def _one(lookup: FactLookup, position: Position) -> dict[Position, Record]:
    try:
        return lookup.get([position])
    except HistoryCut:
        return {}
