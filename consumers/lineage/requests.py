"""The facts behind planned steps: the question of each call, and which versions sampled the answer."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from claw_r1.datapool.delta_decoding import bodies
from claw_r1.datapool.view.conversations import CallBodies, messages
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.protocols import Lookup
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import CallCaptured, PlannedStep, VersionSpan
from claw_r1.schemas.http import version_label


def calls(lookup: Lookup, steps: Iterable[PlannedStep]) -> dict[str, CallCaptured]:
    """Facts by call_id, of those that the log still holds. Raises BrokerUnreachable."""
    positions = [Position.of(step.position) for step in steps]
    try:
        records = lookup.get(positions)
    except HistoryCut:
        records = {}
        for position in positions:  # each alone: those that are left are shown
            with suppress(HistoryCut):
                records |= lookup.get([position])
    events = [record.event() for record in records.values()]
    return {event.call_id: event for event in events if isinstance(event, CallCaptured)}


def sampled_by(spans: Iterable[VersionSpan]) -> list[str]:
    """`run/version` of each version that sampled a part, in order, each once."""
    return list(dict.fromkeys(version_label(span.run_id, span.version) for span in spans))


def questions(calls: Mapping[str, CallCaptured]) -> dict[str, str]:
    """The text of the last message before each answer, by call id; calls whose bodies hold no words are left out."""
    chats = {call_id: messages(CallBodies.of(calls[call_id], body)) for call_id, body in bodies(calls).items()}
    return {call_id: chat[-2]["content"] or "" for call_id, chat in chats.items() if chat is not None and len(chat) > 1}
