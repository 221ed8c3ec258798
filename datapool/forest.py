"""The forest of a trajectory's calls as prompt edges tell it, without any token.

Invariant: a function of the captures alone, in any order. What ids tell, beyond the edges, is `sequences.py`.
"""

from collections.abc import Mapping

from datapool.trainable import ID_FLAWS
from schemas.events import StepRecord

Captures = Mapping[str, StepRecord]
"""call_id -> its capture."""


def whole_chains(captures: Captures) -> frozenset[str]:
    """Calls whose prompt can be put together: every link up to a full prompt holds.

    A base comes before what is written against it, because whoever reads a trajectory reads its calls in order.
    """
    whole: set[str] = set()
    for capture in sorted(captures.values(), key=_order):
        base_id = capture.base_call_id
        if base_id is None or (base_id in whole and _goes_on(captures[base_id], capture)):
            whole.add(capture.call_id)
    return frozenset(whole)


def _order(capture: StepRecord) -> tuple[int, str]:
    return capture.timings.received_us if capture.timings else 0, capture.call_id


def _goes_on(base: StepRecord, capture: StepRecord) -> bool:
    """Whether a base is what the call was written against, and sound.

    A length says nothing of content: another attempt of the base may count by now.
    """
    same = base.digest == capture.base_digest and capture.base_keep <= _length(base)
    return same and not ID_FLAWS.intersection(base.reasons)


def _length(capture: StepRecord) -> int:
    """Ids of prompt and response."""
    return capture.prompt_length + capture.response_length


def branches(captures: Captures) -> int:
    """Lines of calls: the first call that keeps all of its base goes on with it, every other call begins a line."""
    continued = {base for capture in captures.values() if (base := _continues(captures, capture)) is not None}
    return len(captures) - len(continued)


def _continues(captures: Captures, capture: StepRecord) -> str | None:
    base = captures.get(capture.base_call_id) if capture.base_call_id is not None else None
    return base.call_id if base is not None and capture.base_keep == _length(base) else None
