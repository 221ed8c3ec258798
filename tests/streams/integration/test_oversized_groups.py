"""A worker, a rebuild and `claw verify` on a real broker, with a group that is larger than a record of the log."""

import pytest

from claw_r1.consumers.verify.verify import verify
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.schemas.events import GroupRecord
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS, REWARDS
from claw_r1.streams.errors import ExitCode
from claw_r1.streams.rebuild import rebuild
from tests import facts
from tests.streams import pool
from tests.streams.partition.test_isolation import CROWD, spoilt, wide

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.soak
def test_a_group_larger_than_a_record_ends_no_worker_and_no_rebuild(log_settings, start):
    """It is written, taken over and gone on with; a rebuild makes the same rows, and verify finds them right."""
    worker = start()
    crowd = [facts.failure("g", wide(number), "c") for number in range(CROWD)]
    pool.publish(log_settings, map(pool.outgoing, crowd))
    pool.wait_for_oracle(log_settings)
    assert worker.stop() == ExitCode.STOPPED
    worker = start()
    pool.publish(log_settings, map(pool.outgoing, [facts.failure("g", wide(CROWD), "c"), *pool.episode("h", "t")]))
    pool.wait_for_oracle(log_settings)
    assert worker.stop() == ExitCode.STOPPED
    (group,) = [one for one in pool.decoded(log_settings) if isinstance(one, GroupRecord) and one.group_id == "g"]
    assert (len(group.members), group.members_left_out) == (971, CROWD + 1 - 971)
    second = log_settings.model_copy(update={"generation": 2})
    rebuild(second, end_offsets(log_settings, [CALLS, REWARDS]), lambda done, total: None)
    assert pool.pool(second) == pool.pool(log_settings)
    assert verify(second).findings == {}


def test_a_fact_that_makes_a_row_too_large_ends_no_worker(log_settings, start):
    """It is a dead letter, and what comes after it is folded."""
    worker = start()
    events = [facts.call("g", "t", "c"), *spoilt(), *pool.episode("h", "t")]
    pool.publish(log_settings, map(pool.outgoing, events))
    pool.wait_for("the letter", lambda: pool.records(log_settings, DEAD_LETTERS))
    pool.wait_for(
        "the rest", lambda: any(isinstance(one, GroupRecord) and one.ready for one in pool.decoded(log_settings))
    )
    (letter,) = pool.records(log_settings, DEAD_LETTERS)
    assert dict(letter.headers)["claw_reason"] == b"record_too_large"
    assert worker.stop() == ExitCode.STOPPED
