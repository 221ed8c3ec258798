"""The forest of a trajectory's calls, from prompt edges, without any token.

Invariant: a function of the captures alone, in any order and batching. Relations by ids, beyond the edges, are in
`sequences.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from claw_r1.datapool.digests import base_digest
from claw_r1.datapool.fold.trainable import ID_FLAWS
from claw_r1.datapool.immutable_map import added
from claw_r1.schemas.events import StepRecord

CaptureOf = Callable[[str], StepRecord | None]
"""call_id -> its capture, if it has one."""


class Forest(Struct, frozen=True):
    """Edges, from below."""

    upon: Mapping[str, tuple[str, ...]] = {}
    """call_id -> the calls that are written against it, whether or not it is captured itself."""
    continued: Mapping[str, int] = {}
    """call_id -> number of calls that continue it; it is captured."""


def grown(before: Forest, was: CaptureOf, now: CaptureOf, changed: Collection[str]) -> Forest:
    """The forest after captures have changed. was, now: captures before and after."""
    if not changed:
        return before
    upon = _upon(before.upon, was, now, changed)
    more: Counter[str] = Counter()
    for call_id in set(changed).union(*(upon.get(base_id, ()) for base_id in changed)):
        for captures, one in ((was, -1), (now, 1)):
            capture = captures(call_id)
            if capture is not None and capture.base_call_id is not None and continues(captures, capture):
                more[capture.base_call_id] += one
    return Forest(upon, added(before.continued, more))


def _upon(
    before: Mapping[str, tuple[str, ...]], was: CaptureOf, now: CaptureOf, changed: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    gone: dict[str, set[str]] = defaultdict(set)
    come: dict[str, list[str]] = defaultdict(list)
    for call_id in changed:
        old, new = _base_id(was(call_id)), _base_id(now(call_id))
        if old != new:
            if old is not None:
                gone[old].add(call_id)
            if new is not None:
                come[new].append(call_id)
    if not gone and not come:
        return before
    upon = dict(before)
    for base_id in gone.keys() | come.keys():
        left = upon.get(base_id, ())
        if base_id in gone:
            left = tuple(call_id for call_id in left if call_id not in gone[base_id])
        upon[base_id] = (*left, *come.get(base_id, ()))
    return upon


def _base_id(capture: StepRecord | None) -> str | None:
    return None if capture is None else capture.base_call_id


def whole_chains(
    forest: Forest, now: CaptureOf, changed: Iterable[str], was_whole: Callable[[str], bool]
) -> dict[str, bool]:
    """Returns whether the prompts of the changed calls, and of all above them, can be assembled: every link down to
    a full prompt holds. was_whole: for all others, unchanged.

    From the full prompts up, so that links in a circle are never reached; no clock decides which call came first.
    """
    whole = dict.fromkeys(_from(changed, forest.upon), False)
    reached = [call_id for call_id in whole if _is_root(now, call_id, whole, was_whole)]
    while reached:
        base_id = reached.pop()
        whole[base_id] = True
        reached += [call_id for call_id in forest.upon.get(base_id, ()) if _holds_upon(now, base_id, call_id)]
    return whole


def _from(call_ids: Iterable[str], upon: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Returns these calls and all above them."""
    reached = dict.fromkeys(call_ids)
    waiting = list(reached)
    while waiting:
        above = [call_id for call_id in upon.get(waiting.pop(), ()) if call_id not in reached]
        reached |= dict.fromkeys(above)
        waiting += above
    return list(reached)


def _is_root(now: CaptureOf, call_id: str, among: Collection[str], was_whole: Callable[[str], bool]) -> bool:
    """Returns whether a call is whole regardless of the others among which it is."""
    capture = now(call_id)
    if capture is None:
        return False
    base_id = capture.base_call_id
    return base_id is None or (base_id not in among and was_whole(base_id) and _holds_upon(now, base_id, call_id))


def _holds_upon(now: CaptureOf, base_id: str, call_id: str) -> bool:
    """Returns whether a base is sound and begins with the ids that the call was written against.

    A length says nothing of content: another attempt of the base may count by now.
    """
    base, capture = now(base_id), now(call_id)
    if base is None or capture is None:
        return False
    return capture.base_keep <= _length(base) and _holds(base, capture) and not ID_FLAWS.intersection(base.reasons)


def _holds(base: StepRecord, capture: StepRecord) -> bool:
    kept = base_digest(capture.base_keep, base.prompt_length, base.prompt_id, base.response_id)
    return kept == capture.base_digest


def _length(capture: StepRecord) -> int:
    """Ids of prompt and response."""
    return capture.prompt_length + capture.response_length


def continues(captures: CaptureOf, capture: StepRecord) -> bool:
    """Returns whether the prompt begins with all ids of its base: those very ids, by digest, and as many."""
    base = captures(capture.base_call_id) if capture.base_call_id is not None else None
    return base is not None and capture.base_keep == _length(base) and _holds(base, capture)
