"""The forest of a trajectory's calls as prompt edges tell it, without any token.

Invariant: a function of the captures alone, in any order. What ids tell, beyond the edges, is `sequences.py`.
"""

from collections.abc import Mapping

from schemas.events import StepRecord

Captures = Mapping[str, StepRecord]
"""call_id -> its capture."""


def whole_chains(captures: Captures) -> frozenset[str]:
    """Calls whose prompt can be put together: every base up to a full prompt is captured, long enough, and not its own."""
    verdicts: dict[str | None, bool] = {None: True}
    for call_id in captures:
        path: dict[str, None] = {}
        cursor: str | None = call_id
        while cursor is not None and cursor not in verdicts and cursor not in path and _linked(captures, cursor):
            path[cursor] = None
            cursor = captures[cursor].base_call_id
        verdict = cursor not in path and verdicts.get(cursor, False)
        verdicts.update(dict.fromkeys([*path, cursor], verdict))
    return frozenset(call_id for call_id, whole in verdicts.items() if whole and call_id is not None)


def _linked(captures: Captures, call_id: str) -> bool:
    """Whether what the edge of a call keeps of its base can be there."""
    capture = captures.get(call_id)
    if capture is None or capture.base_call_id is None:
        return capture is not None
    base = captures.get(capture.base_call_id)
    return base is not None and capture.base_keep <= _length(base)


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
