"""The forest of a trajectory's calls as prompt edges tell it, without any token.

Invariant: a function of the captures alone, in any order. What ids tell, beyond the edges, is `sequences.py`.
"""

from collections.abc import Mapping

from datapool.fold.digests import base_digest
from datapool.fold.trainable import ID_FLAWS
from schemas.events import StepRecord

Captures = Mapping[str, StepRecord]
"""call_id -> its capture."""


def whole_chains(captures: Captures) -> frozenset[str]:
    """Calls whose prompt can be put together: every link down to a full prompt holds.

    From the full prompts up, so that links in a circle are never reached; no clock is asked which call came first.
    """
    reached: list[StepRecord] = []
    upon: dict[str, list[StepRecord]] = {}
    for capture in captures.values():
        base_id = capture.base_call_id
        (reached if base_id is None else upon.setdefault(base_id, [])).append(capture)
    whole: set[str] = set()
    while reached:
        base = reached.pop()
        whole.add(base.call_id)
        reached += [capture for capture in upon.get(base.call_id, ()) if _goes_on(base, capture)]
    return frozenset(whole)


def _goes_on(base: StepRecord, capture: StepRecord) -> bool:
    """Whether a base is sound and begins with the ids that the call was written against.

    A length says nothing of content: another attempt of the base may count by now.
    """
    return capture.base_keep <= _length(base) and _holds(base, capture) and not ID_FLAWS.intersection(base.reasons)


def _holds(base: StepRecord, capture: StepRecord) -> bool:
    kept = base_digest(capture.base_keep, base.prompt_length, base.prompt_id, base.response_id)
    return kept == capture.base_digest


def _length(capture: StepRecord) -> int:
    """Ids of prompt and response."""
    return capture.prompt_length + capture.response_length


def branches(captures: Captures) -> int:
    """Lines of calls: the first call that keeps all ids of its base goes on with it, every other call begins a line."""
    continued = {capture.base_call_id for capture in captures.values() if continues(captures, capture)}
    return len(captures) - len(continued)


def continues(captures: Captures, capture: StepRecord) -> bool:
    """Whether the prompt begins with all ids of its base: those very ids, by digest, and as many."""
    base = captures.get(capture.base_call_id or "")
    return base is not None and capture.base_keep == _length(base) and _holds(base, capture)
