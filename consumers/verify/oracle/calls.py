"""The captured calls of a trajectory: which attempt counts, in which order they stand, and how
they continue each other."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from claw_r1.consumers.verify.oracle.digests import framed, sha
from claw_r1.consumers.verify.oracle.soundness import PlacedFact
from claw_r1.consumers.verify.oracle.trainable import call_reasons
from claw_r1.schemas.events import CallCaptured, FactPosition

Calls = Mapping[str, tuple[CallCaptured, FactPosition]]
"""By call id: the capture that counts, and where it stands."""
CHOICE = re.compile(r"(.*)\.([1-9][0-9]*)", re.DOTALL)


def winning_calls(facts: Iterable[PlacedFact]) -> Calls:
    """Completed before broken off, then the one received last, then the highest attempt, at its lowest offset."""
    captures = [(fact, at) for fact, at in facts if isinstance(fact, CallCaptured)]
    captures.sort(key=lambda pair: _rank(*pair))
    winners: dict[str, tuple[CallCaptured, FactPosition]] = {}
    for call, at in captures:
        winners.setdefault(call.call_id, (call, at))
    return winners


def _rank(call: CallCaptured, at: FactPosition) -> tuple[bool, int, int, int]:
    return call.status != "completed", -call.timings.received_us, -call.attempt, at.offset


def first_received(facts: Iterable[PlacedFact]) -> dict[str, int]:
    """Returns when the first attempt of each call was received, in microseconds."""
    received: dict[str, int] = {}
    for fact, _ in facts:
        if isinstance(fact, CallCaptured):
            at_us = fact.timings.received_us
            received[fact.call_id] = min(at_us, received.get(fact.call_id, at_us))
    return received


def counted(order: Iterable[str]) -> list[str]:
    """Returns, of the choices of a call (X, X.1, X.2, ...), the first that is there, in order of the calls."""
    calls: dict[str, dict[int, str]] = defaultdict(dict)
    for call_id in order:
        choice = CHOICE.fullmatch(call_id)
        name, number = (choice[1], int(choice[2])) if choice else (call_id, 0)
        calls[name][number] = call_id
    return [choices[min(choices)] for choices in calls.values()]


def chain_is_whole(call_id: str, calls: Calls) -> bool:
    """Returns whether every link down to a full prompt is there and as promised; a call that comes twice closes a circle."""
    call, passed = calls[call_id][0], set[str]()
    while call.prompt.base_call_id is not None:
        base = _base_of(call, calls)
        if base is None or call.prompt.keep > _length(base) or needed_of(base, call) != call.base_digest:
            return False
        if call_reasons(base) & {"ids_malformed", "prompt_mismatch"} or base.call_id in passed:
            return False
        passed.add(base.call_id)
        call = base
    return True


def needed_of(base: CallCaptured, call: CallCaptured) -> str:
    """The ids that a call takes from its base, by digest: its prompt's, and its response's where it takes any of these."""
    prompt = base.prompt.full_digest
    if call.prompt.keep <= base.prompt.full_length:
        return prompt
    return framed(part.encode() for part in (prompt, sha(base.response_ids)))


def branches(calls: Calls) -> int:
    """Returns how many calls begin a line: all but the first to keep the whole of its base, as the base was when it was
    written."""
    continued: set[str] = set()
    for call, _ in calls.values():
        base = _base_of(call, calls)
        if base is not None and call.prompt.keep == _length(base) and call.base_digest == needed_of(base, call):
            continued.add(base.call_id)
    return len(calls) - len(continued)


def in_order(calls: Calls, received_us: Mapping[str, int]) -> Sequence[str]:
    """Call ids by the time of the first attempt."""
    return sorted(calls, key=lambda call_id: (received_us[call_id], call_id))


def _base_of(call: CallCaptured, calls: Calls) -> CallCaptured | None:
    pair = calls.get(call.prompt.base_call_id) if call.prompt.base_call_id is not None else None
    return None if pair is None else pair[0]


def _length(call: CallCaptured) -> int:
    """Tokens of prompt and response."""
    return call.prompt.full_length + len(call.response_ids) // 4
