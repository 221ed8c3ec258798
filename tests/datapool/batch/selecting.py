"""Selections from pools that the real folds made."""

from collections.abc import Collection

from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import Selection, select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.events import BatchAssembled, Event
from tests import facts
from tests.trainer.pooled import RUN, pooled

SPEC = BatchSpec(algorithm="dr_grpo", groups_per_batch=2, group_size=2, staleness_max=1)
SPACIOUS = BatchSpec(algorithm="dr_grpo", groups_per_batch=9, group_size=2)


def selected(
    history: list[Event], spec: BatchSpec = SPEC, version: int = 0, planned: Collection[str] = ()
) -> Selection:
    return select(pooled(history).pool, spec, version, RUN, planned)


def chosen(selection: Selection) -> list[str]:
    return [one.record.group_id for one in selection.chosen]


def planned(selection: Selection, spec: BatchSpec = SPEC) -> BatchAssembled:
    return assemble(
        selection.chosen,
        spec,
        run_id=RUN,
        sequence=4,
        version=1,
        seed=7,
        envelope=facts.envelope("plan"),
    )
