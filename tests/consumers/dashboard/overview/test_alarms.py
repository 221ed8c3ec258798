"""The sentences of alarms, of a run's figures and of reasons that selection gives."""

import pytest

from claw_r1.consumers.dashboard.overview.alarms import alarms, plain
from claw_r1.datapool.batch.eligibility import Refusal, eligible
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.json_values import JsonDict
from tests.trainer.pooled import RUN, group, pooled

MINUTE_US = 60_000_000
DAY_US = 1440 * MINUTE_US
NOW_US = 10 * DAY_US
NAMES = ("calls", "calls_untrainable", "trajectories", "trajectories_of_evaluations", "groups_ready")
POOL: JsonDict = {name: {"count": 0} for name in NAMES}


@pytest.mark.parametrize(
    ("silent_us", "level", "span"), [(10 * MINUTE_US, "problem", "10 min"), (2 * DAY_US, "note", "2 days")]
)
def test_a_run_that_stopped_is_silent_since_its_last_record(silent_us: int, level: str, span: str) -> None:
    """It may have trained nothing for days before: by its silence alone it is told from one that is history."""
    run: JsonDict = {
        "run": "r",
        "state": "stopped",
        "last_batch_us": NOW_US - 3 * DAY_US,
        "started_us": NOW_US - 5 * DAY_US,
        "seen_us": NOW_US - silent_us,
        "waiting": {"groups": 0, "reasons": [], "looked_at": 0},
        "batch_s": 20.0,
    }
    (first, *_) = alarms(POOL, run, (), runs=1, caught_up=False, now_us=NOW_US)
    assert (first["level"], first["what"]) == (level, f"Run r wrote nothing for {span}.")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scores": {"entropy@1": {"min": 0.3}}}, "lack a score of entropy@1"),
        ({"quality_min": 0.3}, "lack a score of quality"),
    ],
)
def test_groups_that_wait_for_a_scorer_say_so(fields: JsonDict, words: str) -> None:
    """The reason is the one that selection gives."""
    rows = pooled(group("g", [0.0, 1.0], version=5)).pool
    spec = BatchSpec.model_validate({"groups_per_batch": 1, "group_size": 2, "quality_missing": "wait", **fields})
    (record,) = rows.groups()
    refusal = eligible(rows, record, spec, 5, RUN)
    assert isinstance(refusal, Refusal)
    assert plain([{"kind": refusal.kind, "reason": refusal.reason, "groups": 3}]) == {words: 3}
