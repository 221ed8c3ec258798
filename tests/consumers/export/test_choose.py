"""The trajectories that a spec exports are those that a run with the spec trains."""

import pytest

from claw_r1.consumers.export.choose import choose
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.fold import fold
from claw_r1.schemas.events import FactPosition, VersionSpan
from tests import facts
from tests.trainer.pooled import RUN, pooled

SPANS = tuple(VersionSpan(run_id=RUN, version=version, start=version - 4, end=version - 3) for version in (4, 5, 6))
SESSION = [
    facts.call("s", "s", "c", spans=SPANS),
    facts.reward("s", "s", 1.0, source="user", name="thumb"),
    facts.abandoned("s", "s"),
]


@pytest.mark.parametrize("stale", ["group", "tokens"])
def test_members_that_gave_up_say_whose_and_how_old_their_group_is(stale: str) -> None:
    """No member is ready, and nothing else says which run sampled it; the youngest token is of version 6."""
    spec = BatchSpec.model_validate(
        {"algorithm": "reinforce_pp", "group_size": 1, "groups_per_batch": 1, "staleness_max": 2}
        | {"unfinished": "train", "stale": stale}
    )
    selected = select(pooled(SESSION).pool, spec, 6, RUN, ())
    trained = [member.record.trajectory_id for group in selected.chosen for member in group.members]
    state = None
    for offset, fact in enumerate(SESSION):
        state = fold(state, fact, FactPosition(topic=facts.topic_of(fact), partition=0, offset=offset))
    assert state is not None
    chosen = choose(state, spec)
    assert not isinstance(chosen, str), chosen
    assert [one.record.trajectory_id for one in chosen] == trained == ["s"]
    assert chosen[0].oldest_version == (None if stale == "group" else 4)
