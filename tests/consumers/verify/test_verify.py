"""`claw verify` on a real broker: a log that keeps its promises is found good, and each broken promise is named."""

import hashlib
import random
import uuid

import orjson
import pytest
from msgspec.structs import replace

from claw_r1.claw.answers import emit
from claw_r1.claw.data.verify import run_verify, verify_run
from claw_r1.consumers.verify.errors import OtherFolds, PoolMoves, RunUnknown
from claw_r1.consumers.verify.facts import wrong_prompts
from claw_r1.consumers.verify.oracle.digests import tokens_digest
from claw_r1.consumers.verify.pool import digest, look, position, snapshot
from claw_r1.consumers.verify.verify import verify
from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.kafka.admin import create_topics, delete_records, end_offsets
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    CallCaptured,
    FactPosition,
    PlannedStep,
    PlannedTrajectory,
    StreamPosition,
    WeightsPublished,
)
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import BATCHES, CALLS, REWARDS, STEPS, TRAJECTORIES, WEIGHTS
from claw_r1.streams.rebuild import rebuild
from tests import facts
from tests.streams import pool

pytestmark = pytest.mark.kafka
HISTORY = [event for n in range(3) for event in pool.episode(f"g{n}", "t")]
REPLIED = [event.call_id for event in HISTORY if isinstance(event, CallCaptured)]


def write(settings, *items):
    pool.publish(settings, items)


def step(call, at, **changes):
    fields = {"call_id": call.call_id, "position": at, "digest": tokens_digest(call), "trained": True, **changes}
    return PlannedStep(**fields)


def planned(settings, sequence, group, run):
    """A plan that trains every call of a group, as a trainer writes it."""
    calls = [
        (call, at)
        for call, at in pool.facts_in_log(settings)
        if isinstance(call, CallCaptured) and call.group_id == group
    ]
    return plan_of(sequence, group, run, *(step(call, at) for call, at in calls))


def plan_of(sequence, group, run, *steps):
    trajectory = PlannedTrajectory(group_id=group, trajectory_id="t", reward=1.0, advantage=0.0, steps=steps)
    fields = {"run_id": run, "sequence": sequence, "version": sequence, "spec": "{}", "seed": 0}
    return BatchAssembled(envelope=facts.envelope(), trajectories=(trajectory,), **fields)


def trained(sequence, run):
    return BatchTrained(envelope=facts.envelope(), run_id=run, sequence=sequence, version=sequence + 1, metrics={})


def given_up(sequence, group, run):
    skipped = {"run_id": run, "group_ids": (group,), "reason": "plan_unreadable: facts_cut", "sequence": sequence}
    return BatchSkipped(envelope=facts.envelope(), **skipped)


def published(version, run, digest="d"):
    return WeightsPublished(
        envelope=facts.envelope(),
        model_id="m",
        run_id=run,
        version=version,
        digest=f"{digest}{version}",
        bytes_total=1,
        manifest=(),
    )


def in_run(*events):
    return [Outgoing.of(WEIGHTS if isinstance(event, WeightsPublished) else BATCHES, b"any", event) for event in events]


def good_run(settings, run):
    """Two batches, planned, trained and published; the last version is announced twice, as after a restart."""
    plans = [planned(settings, 0, "g0", run), planned(settings, 1, "g1", run)]
    batches = [trained(0, run), published(1, run), trained(1, run), published(2, run), published(2, run)]
    write(settings, *in_run(published(0, run), *plans, *batches))


def filled(settings):
    write(settings, *map(pool.outgoing, HISTORY))
    fold(settings)
    return settings


@pytest.fixture
def log(log_settings):
    """Facts, and a pool made of them."""
    return filled(log_settings)


@pytest.fixture(scope="module")
def shared(broker):
    """The same, for tests that only add a run of their own."""
    settings = LogSettings(bootstrap_servers=broker, prefix=f"v{uuid.uuid4().hex[:10]}", partitions=2)
    create_topics(settings)
    return filled(settings)


@pytest.fixture
def run(shared):
    """A run of the test's own that keeps its promises so far."""
    name = f"run-{uuid.uuid4().hex[:6]}"
    good_run(shared, name)
    return name


def fold(settings):
    """The pool catches up with the facts, as streams would make it."""
    rebuild(settings, end_offsets(settings, [CALLS, REWARDS]), lambda done, total: None)


def found(settings, **asked):
    return verify(settings, **asked).findings


def test_a_log_that_keeps_its_promises_is_found_good(log, monkeypatch, capsys, tmp_path):
    """Exit 0 with counts of what was looked at; shuffled, repeated, erased and poisoned facts are no broken promise."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log.bootstrap_servers)
    good_run(log, "run")
    judged = [
        facts.reward("g0", "t", 1.0, source="judge"),
        facts.reward("g0", "t", None, source="judge", revision=1),
        facts.gave_up("g0", "t", call_id="t-0"),
        facts.preferred("g0", "t", "u"),
        facts.edited("new", "t"),
    ]
    write(log, *map(pool.outgoing, judged))
    odd = [facts.evicted("g2", "t"), facts.call("g2", "t", "late"), HISTORY[0], facts.curated("g0", "t", "t-0")]
    poison = Outgoing(topic=CALLS, key=group_key("g0"), value=b"\x01nonsense")
    write(log, *map(pool.outgoing, odd), poison)
    fold(log)
    write(log, pool.outgoing(facts.call("g9", "t", "beyond the position")))
    (tmp_path / "replied").write_text("\n".join([*REPLIED, "", "beyond the position"]))
    assert emit(run_verify(tmp_path / "replied", "run", prefix=log.prefix), as_json=True) == 0
    answer = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["findings"] == {}
    counts = {
        "calls": 12,
        "poison": 1,
        "passed_by": 2,
        "replied": len({*REPLIED}) + 1,
        "runs": 1,
        "steps_planned": 6,
        "batches_trained": 2,
    }
    assert answer["counts"].items() >= counts.items()
    assert answer["counts"]["pool_rows"] == len(pool.pool(log))


def first_row(settings, topic):
    return min((name, key) for name, key in pool.pool(settings) if name == topic.name)


def overwrite(settings, topic, row, value):
    partition = next(one.partition for one in pool.records(settings, topic) if one.key == row[1])
    write(settings, Outgoing(topic=topic, key=row[1], value=value, partition=partition))


def test_pool_records_that_are_not_what_the_facts_say_are_named(log):
    """One byte changed, a row removed, a row under a key that no fact speaks of; a rebuild leaves all that behind."""
    trajectory, step = first_row(log, TRAJECTORIES), first_row(log, STEPS)
    value = pool.pool(log)[trajectory]
    overwrite(log, TRAJECTORIES, trajectory, value[:-1] + bytes([value[-1] ^ 1]))
    overwrite(log, STEPS, step, None)
    write(log, Outgoing(topic=TRAJECTORIES, key=b"nobody/t", value=value))
    assert found(log) == {
        "pool_changed": ["datapool.trajectories g0/t"],
        "pool_missing": [f"datapool.steps {step[1].decode()}"],
        "pool_unexpected": ["datapool.trajectories nobody/t"],
    }
    second = log.model_copy(update={"generation": 2})
    fold(second)
    assert found(second) == {}


def test_a_pool_that_keeps_a_reward_that_was_taken_back_is_named(log):
    """Or one that knows nothing of a scorer that gave up: the rows of the facts before are no rows of the facts now."""
    write(log, pool.outgoing(facts.reward("g0", "t", 1.0, source="judge")))
    fold(log)
    row = first_row(log, TRAJECTORIES)
    value = pool.pool(log)[row]
    write(log, pool.outgoing(facts.reward("g0", "t", None, source="judge", revision=1)))
    write(log, pool.outgoing(facts.gave_up("g0", "t", source="model")))
    fold(log)
    assert found(log) == {}
    overwrite(log, TRAJECTORIES, row, value)
    assert found(log) == {"pool_changed": ["datapool.trajectories g0/t"]}


def test_a_dangling_base_is_named(log):
    """The pool is right to call it not trainable; that its base never came is a loss all the same."""
    orphan = facts.call("g0", "t", "orphan", prompt=facts.edge((1, 2), base="never came", keep=2))
    write(log, pool.outgoing(orphan))
    fold(log)
    assert found(log) == {"dangling_base": ["g0/t/orphan continues never came"]}


def going_on(base, call_id, **changes):
    """A call that keeps all ids of its base, prompt and response, and adds one."""
    whole = base.prompt.suffix if base.prompt.base_call_id is None else changes.pop("base_prompt")
    whole += base.response_ids
    edge = facts.edge((5,), base=base.call_id, keep=len(whole) // ITEM_BYTES)
    prompt = replace(edge, full_digest=hashlib.sha256(whole + edge.suffix).hexdigest())
    return facts.call(base.group_id, base.trajectory_id, call_id, prompt=prompt, **changes)


def test_a_prompt_that_digests_to_something_else_is_named(log):
    """The pool may count it as trainable, because it has no ids; what goes on from it is not named for its fault."""
    first = facts.call("g0", "t", "first")
    right, wrong = going_on(first, "right"), going_on(first, "wrong")
    wrong = replace(wrong, prompt=replace(wrong.prompt, full_digest="0" * 64))
    after = going_on(wrong, "after", base_prompt=first.prompt.suffix + first.response_ids + wrong.prompt.suffix)
    write(log, *map(pool.outgoing, [after, wrong, right, first]))
    fold(log)
    assert found(log) == {"prompt_mismatch": ["g0/t/wrong"]}


def test_prompts_are_judged_in_any_order_and_against_every_attempt_of_their_base():
    """A delta holds when some capture of its base gives the ids that it promises, wherever that stands in the log."""
    first, again = (facts.call("g", "t", "c0", ids=(n,), attempt=n) for n in range(2))
    calls, whole = [first, again, going_on(first, "c1")], first.prompt.suffix + first.response_ids
    for n in range(2, 6):
        whole += calls[-1].prompt.suffix
        calls.append(going_on(calls[-1], f"c{n}", base_prompt=whole))
        whole += calls[-2].response_ids
    for seed in range(20):
        random.Random(seed).shuffle(calls)
        assert wrong_prompts(calls) == []
    assert wrong_prompts([call for call in calls if call is not first]) == ["c1"]


def test_a_batch_that_was_given_up_is_no_gap(shared, run):
    """Its plan could not be read any more, which an event says; trained all the same it would be one too many."""
    write(shared, *in_run(planned(shared, 2, "g2", run), given_up(2, "g2", run)))
    assert found(shared, run_id=run) == {}
    write(shared, *in_run(trained(2, run), published(3, run)))
    assert found(shared, run_id=run) == {"trained_and_given_up": [f"{run} batch 2"]}


def test_a_step_that_is_trained_twice_is_named(shared, run):
    """In another batch of the run, or in one plan; what another run trained does not count."""
    plan = planned(shared, 2, "g1", run)
    write(shared, *in_run(plan, trained(2, run), published(3, run)))
    twice = planned(shared, 3, "g2", run).trajectories[0].steps[0]
    write(shared, *in_run(plan_of(3, "g2", run, twice, twice), trained(3, run), published(4, run)))
    again = [f"{run} batch 2: g1/t/t-{n}" for n in range(3)]
    assert found(shared, run_id=run) == {"step_repeated": [*again, f"{run} batch 3: g2/t/t-0"]}


def test_a_gap_in_the_batches_of_a_run_is_named(shared, run):
    """Batch 2 was neither planned nor trained."""
    write(shared, *in_run(planned(shared, 3, "g2", run), trained(3, run), published(4, run)))
    missing = [f"{run} batch 2 was never planned", f"{run} batch 2 was never trained"]
    assert found(shared, run_id=run) == {"sequence_missing": missing}


def test_a_number_that_was_used_twice_is_named(shared, run):
    """A sequence for two plans, a version for other bytes."""
    write(shared, *in_run(planned(shared, 1, "g2", run), published(2, run, "other")))
    reused = [f"{run} version 2: d2, other2"]
    assert found(shared, run_id=run) == {"sequence_repeated": [f"{run} batch 1"], "version_reused": reused}


def test_a_batch_without_plan_or_version_is_named(shared, run):
    """What was trained was planned, and what it made was published."""
    write(shared, *in_run(trained(2, run)))
    assert found(shared, run_id=run) == {
        "trained_without_plan": [f"{run} batch 2"],
        "version_missing": [f"{run} version 3, trained by batch 2"],
    }


def test_a_plan_that_points_to_other_bytes_is_named(shared, run):
    """A plan freezes tokens by position and digest."""
    right = planned(shared, 2, "g2", run).trajectories[0].steps
    at = right[0].position
    nowhere = FactPosition(topic=at.topic, partition=at.partition, offset=999)
    changed = PlannedStep(call_id="t-0", position=at, digest="of other bytes", trained=True)
    missing = PlannedStep(call_id="t-1", position=nowhere, digest="", trained=False)
    write(shared, *in_run(plan_of(2, "g2", run, changed, missing)))
    assert found(shared, run_id=run) == {
        "planned_call_changed": [f"{run} batch 2: g2/t/t-0 at offset {at.offset}"],
        "planned_call_missing": [f"{run} batch 2: g2/t/t-1 at offset 999"],
    }


def test_a_wrong_plan_is_named_though_another_run_planned_the_call_rightly(shared, run):
    """A check of all runs is one of each of them; what two plans say alike is named once, by the first."""
    right = planned(shared, 2, "g2", run).trajectories[0].steps
    wrong = replace(right[0], digest=f"not of {run}")
    write(shared, *in_run(plan_of(2, "g2", run, *right), plan_of(0, "g2", run + "b", wrong, *right[1:])))
    too_old = replace(plan_of(1, "g2", run + "b", right[1]), version=10, oldest_version=10)
    write(shared, *in_run(too_old, plan_of(0, "g2", run + "c", wrong)))
    findings = verify(shared).findings
    changed = [f"{run}b batch 0: g2/t/t-0 at offset {wrong.position.offset}"]
    assert [one for one in findings["planned_call_changed"] if run in one] == changed
    assert [one for one in findings["trained_too_old"] if run in one] == [
        f"{run}b batch 1: g2/t/t-1 has no token of version 10 or younger"
    ]


def test_a_plan_that_contradicts_itself_is_named(shared, run):
    """Its oldest version, the rewards of its calls, the weights of its losses; and a call too old to be trained."""
    right = planned(shared, 2, "g2", run).trajectories[0].steps
    steps = [replace(right[0], reward=0.25, weights=(1.0, -1.0, 0.0)), *right[1:]]
    plan = replace(plan_of(2, "g2", run, *steps), oldest_version=9)
    write(shared, *in_run(plan))
    where = f"{run} batch 2: "
    assert found(shared, run_id=run) == {
        "plan_contradictory": [
            f"{where}oldest_version 9 is above version 2",
            f"{where}g2/t: its calls earned 0.25, it earned 1",
            f"{where}g2/t/t-0: weights [1.0, -1.0, 0.0]",
        ],
        "trained_too_old": [f"{where}g2/t/{step.call_id} has no token of version 9 or younger" for step in right],
    }


def test_a_replied_call_that_is_not_captured_is_named(shared, run, monkeypatch, capsys, tmp_path):
    """As JSON every one of them, on the terminal the first ones and a count; exit 1."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", shared.bootstrap_servers)
    lost = [f"lost-{n:02d}" for n in range(25)]
    (tmp_path / "replied").write_text("\n".join([*REPLIED, *lost]))
    assert emit(run_verify(tmp_path / "replied", run, prefix=shared.prefix), as_json=True) == 1
    finding = orjson.loads(capsys.readouterr().out.splitlines()[-1])["findings"]["call_not_captured"]
    assert (finding["count"], finding["ids"]) == (25, lost)
    assert emit(run_verify(tmp_path / "replied", run, prefix=shared.prefix), as_json=False) == 1
    assert "lost-19\n  and 5 more: --json names them all\npromises are broken" in capsys.readouterr().out


def test_without_all_facts_or_the_run_there_is_no_answer(log):
    """Half a history proves nothing, and a run that left nothing was misspelt."""
    with pytest.raises(RunUnknown):
        verify(log, run_id="misspelt")
    place = next(place for place, end in end_offsets(log, [CALLS]).items() if end)
    delete_records(log, {place: 1})
    with pytest.raises(HistoryCut, match="retention removed"):
        verify_run(log, None)


def test_a_pool_that_is_being_written_is_looked_at_again(log):
    """What was torn is whole at the next look; a pool that is never the same twice gives no answer."""
    rows = dict(snapshot(log, 0).rows)
    late = TRAJECTORIES.name, b"late/t"

    def written_meanwhile(_):
        if late not in rows:
            rows[late] = digest(b"late")
            write(log, Outgoing(topic=TRAJECTORIES, key=late[1], value=b"late", partition=0))
        return rows

    assert look(log, 0, written_meanwhile) == ({}, len(rows))

    def always_one_ahead(_):
        key = f"{len(rows)}/t".encode()
        rows[TRAJECTORIES.name, key] = digest(key)
        write(log, Outgoing(topic=TRAJECTORIES, key=key, value=key, partition=0))
        return rows

    with pytest.raises(PoolMoves):
        look(log, 0, always_one_ahead)


def test_a_pool_of_another_fold_version_is_not_judged():
    """Its rows differ because the folds do, which is nobody's broken promise."""
    here = StreamPosition(partition=0, offsets={"claw.calls": 7}, fold_version=FOLD_VERSION, updated_at_us=0)
    assert position(encode(here)) == {"claw.calls": 7}
    with pytest.raises(OtherFolds, match="claw rebuild"):
        position(encode(replace(here, fold_version=FOLD_VERSION - 1)))
