"""The facts behind planned steps: who asked what, and which versions sampled the answer."""

from collections.abc import Iterable

from consumers.export.messages import messages
from eventlog.errors import HistoryCut
from eventlog.reader import FactLookup
from eventlog.records import Position, Record
from schemas.events import CallCaptured, PlannedStep, VersionSpan


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
    return list(dict.fromkeys(f"{span.run_id}/{span.version}" for span in spans))


def asked(call: CallCaptured) -> str | None:
    """What the last message before the answer says."""
    told = messages(call.request.suffix, call.response_body, call.choice)
    return told[-2]["content"] if told is not None and len(told) > 1 else None


def _one(lookup: FactLookup, position: Position) -> dict[Position, Record]:
    try:
        return lookup.get([position])
    except HistoryCut:
        return {}
