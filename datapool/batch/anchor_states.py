"""In which state each call of a trajectory was made, as far as the pool's records tell: what `step_grpo` compares by. Pure.

Equal prompts are equal states. Beyond that a call has a line (the main one, or that of a sub-agent or of a rewritten
conversation) and a depth on it. Aborted calls have neither, and move no other call. No ids are read: edges and lengths tell.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from claw_r1.datapool.batch.advantages import CallState
from claw_r1.schemas.events import StepRecord

MAIN_LINE = ""
KEPT_SHARE_MIN = 0.5
"""The share of the base's prompt that a call must keep. A call that keeps less shares instructions with its base, say,
and does not continue it."""


class LinePlace(NamedTuple):
    """`root`: the call that a line begins with; `depth`: how many calls lie between."""

    root: str
    depth: int


def states_of(steps: Sequence[StepRecord]) -> tuple[CallState | None, ...]:
    """Returns one state per call; None: it was not completed. steps: captured, in order; the line of the first is the
    main one."""
    completed = {step.call_id: step for step in steps if step.status == "completed"}
    places = _places(parents(list(completed.values())), completed)
    lines = {call_id: step.prompt_id for call_id, step in completed.items()}
    if completed:
        lines[next(iter(completed))] = MAIN_LINE
    states = {
        call_id: CallState(completed[call_id].prompt_id, lines[place.root], place.depth)
        for call_id, place in places.items()
    }
    return tuple(states.get(step.call_id) for step in steps)


def parents(completed: Sequence[StepRecord]) -> dict[str, str]:
    """Call -> the call that it continues; calls that begin a line are omitted.

    Among the calls written against one base, the one that keeps most of it continues it, the others begin lines. A
    full prompt (each 64th of a chain, and the first ones of a restarted gateway) continues the longest earlier
    call of its agent that no other call continues and that is no longer than the prompt.
    """
    by_id = {step.call_id: step for step in completed}
    next_calls: dict[str, StepRecord] = {}
    for step in completed:
        base = by_id.get(step.base_call_id or "")
        if base is None or step.base_keep < KEPT_SHARE_MIN * base.prompt_length:
            continue
        if base.call_id not in next_calls or step.base_keep > next_calls[base.call_id].base_keep:
            next_calls[base.call_id] = step
    before = {step.call_id: base_id for base_id, step in next_calls.items()}
    tips: list[StepRecord] = []
    for step in completed:
        if step.base_call_id is None and (tip := _longest(tips, step)) is not None:
            before[step.call_id] = tip.call_id
            tips.remove(tip)
        if step.call_id not in next_calls:
            tips.append(step)
    return before


def _longest(tips: Iterable[StepRecord], step: StepRecord) -> StepRecord | None:
    fitting = [tip for tip in tips if tip.agent == step.agent and _length(tip) <= step.prompt_length]
    return max(fitting, key=_length, default=None)


def _length(step: StepRecord) -> int:
    return step.prompt_length + step.response_length


def _places(parents: Mapping[str, str], calls: Iterable[str]) -> dict[str, LinePlace]:
    """Returns the place of every call; a circle, which no sound log has, ends where it closes."""
    places: dict[str, LinePlace] = {}
    for call_id in calls:
        path: dict[str, None] = {}
        cursor: str | None = call_id
        while cursor is not None and cursor not in places and cursor not in path:
            path[cursor] = None
            cursor = parents.get(cursor)
        links = list(path)[::-1]
        if cursor in places:
            root, depth = places[cursor].root, places[cursor].depth + 1
        elif links:
            root, depth = links[0], 0
        for number, link in enumerate(links):
            places[link] = LinePlace(root, depth + number)
    return places
