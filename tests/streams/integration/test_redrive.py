"""Dead letters come home: what was parked by mistake is in the pool after the mend and `claw dlq redrive`."""

import json

import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.data.dlq import run_dlq
from claw_r1.claw.data.settings import LetterQuery
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.schemas.events import TrajectoryRecord
from claw_r1.schemas.topics import CALLS, REWARDS
from claw_r1.streams.errors import ExitCode
from claw_r1.streams.rebuild import rebuild
from tests import facts
from tests.streams import pool

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def redriven(log_settings, monkeypatch, capsys):
    """`claw dlq redrive --all`; how many letters went."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)

    def redrive():
        assert emit(run_dlq("redrive", LetterQuery(every=True), prefix=log_settings.prefix), as_json=True) == 0
        return len(
            json.loads(capsys.readouterr().out.splitlines()[-1])["redriven"]
        )  # log lines of a young broker come before

    return redrive


def folded(settings):
    ends = end_offsets(settings, [CALLS, REWARDS])
    pool.wait_for("everything folded", lambda: pool.folded_up_to(settings, ends))
    return ends


def test_letters_that_were_redriven_after_the_mend_are_in_the_pool(log_settings, start, redriven):
    """Poison and a fold bug: once the release is mended, their facts count once; a flag lasts until the rebuild."""
    sick = start(module="tests.streams.hampered")
    unheard = facts.curated("poison", "t", "t-0", quality=0.5, who="a stranger")
    boom = facts.reward("bug", "t", 0.25, name="boom")
    events = [*pool.episode("poison", "t"), *pool.episode("bug", "t"), unheard, boom]
    pool.publish(log_settings, map(pool.outgoing, events))
    folded(log_settings)
    assert sick.stop() == ExitCode.STOPPED
    parked = pool.buried(log_settings)
    assert sorted(reason for _, reason in parked.elements()) == ["fold_bug", "wrong_type"]

    start()
    assert (redriven(), redriven()) == (2, 0)
    ends = folded(log_settings)
    want, have = pool.expected(log_settings), pool.pool(log_settings)
    differs = {key for key in want | have if want.get(key) != have.get(key)}
    assert {key.partition(b"/")[0] for _, key in differs} == {b"bug"}
    (flagged,) = (one for one in pool.decoded(log_settings) if isinstance(one, TrajectoryRecord) and one.reasons)
    assert (flagged.group_id, flagged.reasons, flagged.return_total) == ("bug", ("fold_bug",), 1.75)

    second = log_settings.model_copy(update={"generation": 2})
    rebuild(second, ends, lambda done, total: None)
    assert pool.pool(second) == want
    assert pool.buried(log_settings) == parked
