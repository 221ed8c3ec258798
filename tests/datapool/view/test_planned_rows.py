"""Rows of a plan: what they hold, and that nothing with other ids than were digested gets into one."""

import pytest
from msgspec.structs import replace

from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.sequences import TrainingRow
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.errors import FactUnreadable
from claw_r1.datapool.view.planned_rows import rows_of
from claw_r1.schemas.arrays import ITEM_BYTES, pack_ids
from claw_r1.schemas.events import CallCaptured, Event
from tests import facts
from tests.trainer.pooled import RUN, VOCABULARY, Pooled, group, pooled

SPEC = BatchSpec(groups_per_batch=1, group_size=2)
KEEP = 5
"""A prompt of two ids and a response of three."""


def written_against_c0(event: Event, bases: dict[str, str]) -> Event:
    """The call c1 of `group`, its prompt as an edge on the call before it. bases: digests of those, by trajectory."""
    if not isinstance(event, CallCaptured) or event.call_id != "c1":
        return event
    edge = replace(event.prompt, base_call_id="c0", keep=KEEP, suffix=event.prompt.suffix[KEEP * ITEM_BYTES :])
    return replace(event, prompt=edge, base_digest=bases[event.trajectory_id])


def received_first(event: Event) -> Event:
    """The call c1, by a clock that went back after c0."""
    if not isinstance(event, CallCaptured) or event.call_id != "c1":
        return event
    return replace(event, timings=replace(event.timings, received_us=-1))


FULL = group("g", [0.0, 1.0])
BASES = {
    one.trajectory_id: facts.written_against(one, KEEP)
    for one in FULL
    if isinstance(one, CallCaptured) and one.call_id == "c0"
}


EDGES = [written_against_c0(event, BASES) for event in FULL]
HISTORIES = {
    "full prompts": FULL,
    "edges": EDGES,
    "edges on a base that a clock puts behind": [received_first(event) for event in EDGES],
}


def planned(made: Pooled) -> list[TrainingRow]:
    chosen = select(made.pool, SPEC, 0, RUN, ()).chosen
    plan = assemble(chosen, SPEC, run_id=RUN, sequence=0, version=0, seed=0, envelope=facts.envelope())
    return rows_of(plan, made.log.lookup(), VOCABULARY)


def with_other_prompt(history: list[Event], group_id: str, call_id: str) -> list[Event]:
    """The call of the group's t0 has another id at the end of its prompt, under the digests that it had."""
    return [
        replace(event, prompt=replace(event.prompt, suffix=event.prompt.suffix[:-ITEM_BYTES] + pack_ids([31])))
        if isinstance(event, CallCaptured)
        and (event.group_id, event.trajectory_id, event.call_id) == (group_id, "t0", call_id)
        else event
        for event in history
    ]


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_the_rows_have_the_ids_that_were_captured(history: list[Event]) -> None:
    """Whether a prompt was written in full or against an earlier call, and whatever a clock says of which came first."""
    assert [list(row.ids) for row in planned(pooled(history))] == [[1, 2, 5, 6, 7, 3, 8, 9], [1, 3, 5, 6, 7, 3, 8, 9]]


@pytest.mark.parametrize("history", list(HISTORIES.values())[1:], ids=list(HISTORIES)[1:])
def test_a_prompt_that_is_put_together_to_other_ids_is_refused(history: list[Event]) -> None:
    """The fold sees to prompts that are written in full; what an edge makes is known here alone."""
    with pytest.raises(FactUnreadable, match="another digest") as unreadable:
        planned(pooled(with_other_prompt(history, "g", "c1")))
    assert unreadable.value.reason == "prompt_mismatch: c1"
