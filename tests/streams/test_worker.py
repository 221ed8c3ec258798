"""The Faust shell on a real broker: whatever happens to workers, the pool ends as the oracle makes it of the facts."""

import urllib.request

import pytest

from claw_r1.claw.local.ports import free_ports
from claw_r1.datapool import FOLD_VERSION
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import (
    GroupClosed,
    GroupEvicted,
    GroupRecord,
    StepRecord,
    StreamPosition,
    TrajectoryAbandoned,
    TrajectoryRecord,
)
from claw_r1.schemas.topics import POSITIONS
from claw_r1.streams.errors import ExitCode
from tests import facts
from tests.children import HEAVY_START_S
from tests.streams import pool

pytestmark = pytest.mark.kafka


def test_facts_become_the_pool_and_a_polite_stop_loses_nothing(log_settings, start):
    """Every fact is folded once; SIGTERM exits 0 with everything committed; a reader of the pool finds the groups ready."""
    (port,) = free_ports(1)
    worker = start("--metrics-port", str(port))
    events = pool.load()
    pool.publish(log_settings, map(pool.outgoing, events))
    pool.wait_for_oracle(log_settings)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as ready:
        assert ready.status == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as metrics:
        assert f'claw_streams_facts_total{{outcome="folded"}} {len(events)}.0' in metrics.read().decode()
    assert worker.stop() == ExitCode.STOPPED
    view = PoolView(log_settings)
    view.start()
    view.wait_caught_up(20)
    assert [(one.ready, len(one.members)) for one in view.groups()] == [(True, 4)] * 12
    steps = view.ask(lambda rows: [step.call_id for step in rows.steps("g0", "t0")])
    assert steps == list(view.ask(lambda rows: rows.trajectory("g0", "t0")).calls)
    view.stop()


def test_at_its_deadline_a_group_is_closed_once_and_for_all(log_settings, start):
    """The reactor abandons, then closes; a second worker that runs later adds nothing."""
    deadline_us = now_us() + 1_000_000
    lively = facts.envelope(at_us=deadline_us)
    history = [
        facts.opened("g", expected_size=2, deadline_us=deadline_us, envelope=lively),
        *pool.episode("g", "done"),
        facts.call("g", "stuck", envelope=facts.envelope(at_us=deadline_us)),
    ]
    pool.publish(log_settings, map(pool.outgoing, history))
    quick = {"CLAW_STREAMS_REACTOR_INTERVAL_S": "0.2"}
    first = start(**quick)
    pool.wait_for("the closing", lambda: any(isinstance(one, GroupClosed) for one in pool.decisions(log_settings)))
    pool.wait_for_oracle(log_settings)
    assert first.stop() == 0
    abandoned, closed = pool.decisions(log_settings)
    assert isinstance(abandoned, TrajectoryAbandoned)
    assert (abandoned.trajectory_id, closed.members) == ("stuck", ("done", "stuck"))
    before = pool.pool(log_settings)
    again = start(**quick)
    pool.publish(log_settings, [pool.outgoing(facts.opened("other", envelope=facts.envelope(at_us=now_us())))])
    pool.wait_for("the second worker", lambda: len(pool.pool(log_settings)) > len(before))
    assert len(pool.decisions(log_settings)) == 2
    assert again.stop() == 0
    assert pool.pool(log_settings).items() >= before.items()


def test_a_reward_is_taken_back_and_a_scorer_gives_up_while_a_worker_runs(log_settings, start):
    """The slot is empty for whoever looks; a group that required the scorer goes on without its trajectory, with the reason."""
    start()
    style = {"source": "judge", "name": "style"}
    history = [event for n in range(3) for event in pool.episode("g", f"t{n}")]
    judged = [facts.reward("g", f"t{n}", 1.0, **style) for n in range(3)]
    pool.publish(log_settings, map(pool.outgoing, [*history, *judged]))
    pool.wait_for_oracle(log_settings)
    view = PoolView(log_settings)
    view.start()
    spec = BatchSpec(group_size=2, groups_per_batch=1, rewards_required=("judge/style",))

    def chosen():
        view.wait_caught_up(20)
        selection = view.ask(lambda rows: select(rows, spec, 3, "run", ()))
        return [(each.returns, dict(each.dropped)) for each in selection.chosen] or selection.left_out["g"]

    pool.wait_for("a whole group", lambda: chosen() == [([2.5, 2.5, 2.5], {})])
    taken_back = [facts.reward("g", "t1", None, **style, revision=1), facts.preferred("g", "t0", "t1")]
    pool.publish(log_settings, map(pool.outgoing, [*taken_back, facts.edited("g", "t0", "t0-0")]))
    pool.wait_for("the wait", lambda: chosen() == "reward_required_for_1: judge/style")
    pool.publish(log_settings, [pool.outgoing(facts.gave_up("g", "t1", revision=2))])
    without = {"t1": "scoring_failed: judge/style deadline"}
    pool.wait_for("the group without it", lambda: chosen() == [([2.5, 2.5], without)])
    view.stop()
    pool.whole(log_settings)


def evictions(settings):
    return [event for event, _ in pool.facts_in_log(settings) if isinstance(event, GroupEvicted)]


def test_old_groups_leave_the_pool_of_a_running_worker_and_their_facts_stay(log_settings, start):
    """All of a group goes, members or not; one stub stays; the young stay; a late reward is a fact and no row."""
    old = [
        *pool.episode("old", "listed"),
        *pool.episode("old", "left out"),
        facts.closed("old", ["listed"]),
        facts.reward("old", "typo"),
    ]
    young = [facts.changed_envelope(event, occurred_at_us=now_us()) for event in pool.episode("young", "t")]
    pool.publish(log_settings, map(pool.outgoing, [*old, *young]))
    quick = {"CLAW_STREAMS_RETENTION_S": "3600", "CLAW_STREAMS_RETENTION_INTERVAL_S": "0.2"}
    worker = start(**quick)
    pool.wait_for("the eviction", lambda: len(evictions(log_settings)) >= 1)
    pool.wait_for_oracle(log_settings)
    rows = pool.decoded(log_settings)
    assert {row.group_id for row in rows if isinstance(row, StepRecord | TrajectoryRecord)} == {"young"}
    (stub,) = [row for row in rows if isinstance(row, GroupRecord) and row.group_id == "old"]
    assert (stub.reasons, stub.evicted_reason) == (("evicted",), "retention")
    assert worker.stop() == ExitCode.STOPPED
    start(**quick)
    pool.publish(log_settings, [pool.outgoing(facts.reward("old", "listed", 5.0, call_id="listed-0"))])
    pool.wait_for_oracle(log_settings)
    pool.publish(log_settings, map(pool.outgoing, pool.episode("older", "t")))
    pool.wait_for("a later look", lambda: any(one.group_id == "older" for one in evictions(log_settings)))
    assert [one.group_id for one in evictions(log_settings)].count("old") == 1, "there was nothing left to evict"
    kept = [event for event, _ in pool.facts_in_log(log_settings) if event.group_id == "old"]
    assert len(kept) == len(old) + 1 + 1
    assert [row for row in pool.decoded(log_settings) if isinstance(row, StepRecord) and row.group_id == "old"] == []


def test_without_its_topics_a_worker_says_so_in_one_line(broker, log_settings, start):
    """Exit 2, one line that says what to do, no traceback."""
    worker = start("--prefix", "nothing-here")
    assert worker.wait(HEAVY_START_S) == ExitCode.REFUSED
    assert worker.log().strip().splitlines()[-1].startswith("streams: topic nothing-here.calls is not on the broker")
    assert "Traceback" not in worker.log()


def test_a_worker_leaves_the_pool_of_another_fold_version_alone(log_settings, start):
    """Exit 2 with the way out, no traceback; nothing is written."""
    old = StreamPosition(partition=0, offsets={}, fold_version=FOLD_VERSION - 1, updated_at_us=0)
    pool.publish(log_settings, [Outgoing.of(POSITIONS, b"0", old, 0)])
    worker = start()
    assert worker.wait(HEAVY_START_S) == ExitCode.REFUSED
    assert "claw rebuild" in worker.log()
    assert "Traceback" not in worker.log()
    assert len(pool.records(log_settings, POSITIONS)) == 1
