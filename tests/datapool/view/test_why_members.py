"""What is said of trajectories and calls whose group is next without them."""

import pytest

from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.why import NO_MEMBER, Perspective, why
from tests import facts
from tests.trainer.pooled import RUN, group, pooled

ASKED = Perspective(run_id=RUN, version=5, spec=BatchSpec(groups_per_batch=1, group_size=2))
HISTORY = [
    *group("g", [0.0, 1.0], version=5),
    facts.call("g", "ab", "cab"),
    facts.abandoned("g", "ab"),
    facts.closed("g", ["t0", "t1", "ab"]),
    *group("g", [0.0, 1.0, 1.0], version=5)[-3:],
]


@pytest.mark.parametrize(("name", "state"), [("t2", "left_out"), ("ab", "not_ready"), ("cab", "left_out")])
def test_what_is_no_member_of_its_group_is_not_trained_with_it(name: str, state: str) -> None:
    """Neither a trajectory that came behind the closing, nor one that gave up, nor its call; the group itself is next."""
    rows = pooled(HISTORY).pool
    (answer,) = why(rows, RunIndex(), ASKED, name)
    assert (answer.state, answer.lines[-1]) == (state, NO_MEMBER)
    (of_group,) = why(rows, RunIndex(), ASKED, "g")
    assert of_group.state == "next"
    assert why(rows, RunIndex(), ASKED, "c0")[0].state == "next"
