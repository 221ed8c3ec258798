"""Batches from a view's rows: what they hold, and that nothing with other ids than were digested gets into one."""

import pytest
from msgspec.structs import replace

from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.sequences import TrainingRow
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.errors import PromptBroken
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.training_rows import assemble_rows
from claw_r1.schemas.arrays import ITEM_BYTES, pack_ids
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import CallCaptured, Event
from claw_r1.schemas.keys import tokens_key
from claw_r1.schemas.topics import STEPS
from claw_r1.trainer.plan.facts import rows_of
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


def from_view(pool: PoolRows) -> list[TrainingRow]:
    (chosen,) = select(pool, SPEC, 0, RUN, ()).chosen
    return assemble_rows(pool, chosen, SPEC, RUN)


def from_facts(made: Pooled) -> list[TrainingRow]:
    chosen = select(made.pool, SPEC, 0, RUN, ()).chosen
    plan = assemble(chosen, SPEC, run_id=RUN, sequence=0, version=0, seed=0, envelope=facts.envelope())
    return rows_of(plan, made.log.lookup(), VOCABULARY)


def change_prompt(pool: PoolRows, call_id: str) -> None:
    """The token row of a call of g/t0 comes again, another id at the end of its prompt, under the digests it had."""
    tokens = pool.tokens_of_group("g")["t0", call_id].tokens
    prompt = replace(tokens.prompt, suffix=tokens.prompt.suffix[:-ITEM_BYTES] + pack_ids([31]))
    pool.apply(STEPS.name, tokens_key("g", "t0", call_id), encode(replace(tokens, prompt=prompt)))


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_the_view_gives_the_rows_that_the_trainer_reads_from_the_facts(history: list[Event]) -> None:
    """Two ways to one batch: by the pool's token rows, and by position into the facts."""
    made = pooled(history)
    rows = from_view(made.pool)
    assert rows == from_facts(made)
    assert [list(row.ids) for row in rows] == [[1, 2, 5, 6, 7, 3, 8, 9], [1, 3, 5, 6, 7, 3, 8, 9]]


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("call_id", ["c0", "c1"])
def test_a_prompt_of_other_ids_is_refused_however_its_row_came(history: list[Event], call_id: str) -> None:
    """A row that was good and comes again with other ids is no more trusted than one that was never good."""
    made = pooled(history)
    assert from_view(made.pool)
    change_prompt(made.pool, call_id)
    with pytest.raises(PromptBroken):
        from_view(made.pool)
