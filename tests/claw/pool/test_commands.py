"""`claw pool` against a real broker: what a person types, and what comes back."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from claw_r1.claw.cli import REFUSALS, app
from claw_r1.consumers.pool.acts import EvictionFact
from claw_r1.consumers.pool.eviction import EvictableRow, evictions, rows_of
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.curation import annotated
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.state import StepState
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.kafka.admin import delete_records, end_offsets
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    CallCaptured,
    GroupRecord,
    StepCurated,
    StepRecord,
    TrajectoryRecord,
)
from claw_r1.schemas.keys import step_key
from claw_r1.schemas.topics import BATCHES, CALLS, REWARDS, STEPS
from tests import facts
from tests.broker import new_log
from tests.claw import pooled
from tests.trainer.pooled import RUN, group

pytestmark = pytest.mark.kafka

SPEC = BatchSpec(groups_per_batch=1, group_size=2)


def filled(settings: LogSettings) -> LogSettings:
    """A pool on a broker: one group trained, one skipped, one to come, one not ready."""
    history = [
        *group("done", [0.0, 1.0], at_us=1),
        *group("turn", [0.0, 1.0], at_us=2),
        *group("old", [0.0, 1.0], at_us=3),
        *(
            replace(fact, agent="solver") if isinstance(fact, CallCaptured) else fact
            for fact in group("short", [None], at_us=4, expected_size=2)
        ),
        facts.reward("turn", "t1", 3.0, call_id="c0", source="judge"),
        facts.started("short", "t0", tags=("hard",)),
        facts.reward("short", "t0", 1.0, call_id="c0", source="judge"),
        facts.curated(
            "short", "t0", "c0", quality=0.3, tags=("leak",), scores={"entropy@1": 0.3}, who="scorer/entropy@1"
        ),
    ]
    rows = PoolRows()
    for topic, key, value in pooled.write(settings, history):
        rows.apply(topic, key, value)
    with closing(EventProducer(settings)) as producer:
        chosen = select(rows, SPEC, 0, RUN, ()).chosen
        plan = assemble(chosen, SPEC, run_id=RUN, sequence=0, version=0, seed=0, envelope=facts.envelope("p"))
        trained = BatchTrained(envelope=facts.envelope(), run_id=RUN, sequence=0, version=1, metrics={})
        skipped = BatchSkipped(envelope=facts.envelope(), run_id=RUN, group_ids=("old",), reason="too_stale")
        for event in (plan, trained, skipped):
            producer.publish_now(BATCHES, RUN.encode(), event)
    return settings


@pytest.fixture(scope="module")
def pool_settings(broker: str) -> LogSettings:
    """The pool of all tests that leave its rows, its facts and its evictions as they are."""
    return filled(new_log(broker))


@pytest.fixture
def own_pool(log_settings: LogSettings) -> LogSettings:
    """A pool for a test that leaves it changed."""
    return filled(log_settings)


def claw(settings: LogSettings, *arguments: str, code: int = 0) -> list[dict]:  # type: ignore[type-arg]  # JSON
    """JSON lines of `claw pool …`; the exit code must be `code`."""
    env = {"KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers, "CLAW_LOG_PARTITIONS": "2"}
    done = CliRunner().invoke(app, ["pool", *arguments, "--prefix", settings.prefix, "--json"], env=env)
    # `main` turns a refusal into one line and exit code 2; here it is still the exception.
    assert (2 if isinstance(done.exception, REFUSALS) else done.exit_code) == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_counts_pages_and_filters(pool_settings: LogSettings) -> None:
    """stats counts everything, pages go on where the last ended, filters narrow."""
    (counted,) = claw(pool_settings, "stats")
    assert (counted["groups"]["total"], counted["groups"]["ready"], counted["steps"]["total"]) == (4, 3, 14)
    *page, more = claw(pool_settings, "steps", "--limit", "10")
    rest = claw(pool_settings, "steps", "--limit", "10", "--after", more["after"])
    assert [len(page), len(rest)] == [10, 4]
    (best,) = claw(pool_settings, "steps", "--reward-min", "3")
    assert (best["group_id"], best["trajectory_id"], best["call_id"]) == ("turn", "t1", "c0")
    assert [row["group_id"] for row in claw(pool_settings, "groups", "--not-ready")] == ["short"]
    assert len(claw(pool_settings, "trajectories", "--group", "done")) == 2
    assert claw(pool_settings, "steps", "--text", "no such words") == []
    (of_group,) = claw(pool_settings, "stats", "--group", "turn", "--reward-min", "3")
    assert (of_group["steps"]["total"], of_group["groups"]["total"]) == (1, 0), "a step of 3, a mean below it"
    (said,) = claw(pool_settings, "stats", "--text", "t0")
    assert said["steps"]["total"] == len(claw(pool_settings, "steps", "--text", "t0"))


def test_a_page_without_rows_says_why_and_what_to_do(pool_settings: LogSettings) -> None:
    """Once, on stderr: the filter keeps all out, or the page before was the last; stdout stays empty."""
    env = {"KAFKA_BOOTSTRAP_SERVERS": pool_settings.bootstrap_servers}
    for options, reason in ((["--agent", "nobody"], "meet the filter"), (["--after", "zzz"], "was the last one")):
        done = CliRunner().invoke(app, ["pool", "groups", *options, "--prefix", pool_settings.prefix], env=env)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (0, "", 1)
        assert reason in done.stderr


def test_a_question_reads_only_what_it_shows(log_settings: LogSettings) -> None:
    """Rows that nobody could decode show who reads them: steps no list of groups, a group no other's."""
    broken = Outgoing(topic=STEPS, key=step_key("broken", "t", "c"), value=b"no event")
    with closing(EventProducer(log_settings)) as producer:
        producer.publish_now(STEPS, step_key("g", "t", "c"), StepRecord(group_id="g", trajectory_id="t", call_id="c"))
        producer.produce(broken).result()
    assert [row["call_id"] for row in claw(log_settings, "steps", "--group", "g")] == ["c"]
    assert claw(log_settings, "stats", "--group", "g")[0]["steps"]["total"] == 1
    assert claw(log_settings, "groups") == claw(log_settings, "trajectories", "--not-ready") == []
    claw(log_settings, "evict", "g", "--why", "old", "--who", "ann", "--dry-run", code=1)


ALL_FILTERS = (
    *("--channel", "train", "--group", "short", "--trajectory", "t0", "--agent", "solver", "--tag", "hard"),
    *("--tag", "leak", "--trainable", "--quality-min", "0.3", "--quality-max", "0.3", "--score", "entropy@1>=0.3"),
    *("--reward-min", "1", "--reward-max", "1", "--version-min", "0", "--version-max", "0", "--text", "t0"),
)
"""Each of them is met by what is said of one step, and by its trajectory and its group."""


def test_every_filter_is_one_of_every_list(pool_settings: LogSettings) -> None:
    """All of them at once find the one thing that meets them all, or nothing when one of them does not."""
    for kind, ids in (("steps", ["t0", "c0"]), ("trajectories", ["t0"]), ("groups", [])):
        options = [*ALL_FILTERS[:-1], "short" if kind == "groups" else "t0"]
        (row,) = claw(pool_settings, kind, *options)
        assert [row[name] for name in ("trajectory_id", "call_id") if name in row] == ids
        assert claw(pool_settings, kind, *options, "--tag", "easy") == []
    (counted,) = claw(pool_settings, "stats", *ALL_FILTERS[:-2])
    assert [counted[kind]["total"] for kind in ("steps", "trajectories", "groups")] == [1, 1, 1]


def test_why_says_each_fate(pool_settings: LogSettings) -> None:
    """Trained when, skipped why, waiting for what; an unknown id is exit code 1."""
    states = {name: claw(pool_settings, "why", name)[0] for name in ("done", "turn", "old", "short")}
    assert [answer["state"] for answer in states.values()] == ["trained", "next", "skipped", "not_ready"]
    assert states["done"]["trained"] == [[RUN, 0, 1]]
    assert claw(pool_settings, "why", "nothing", code=1) == [{"found": False}]


def test_a_preview_names_every_group(pool_settings: LogSettings, tmp_path: Path) -> None:
    """Counts, tokens saved by shared prefixes, a reason for each group that is not in the batch."""
    (shown,) = claw(pool_settings, "batch")
    assert (shown["chosen"], shown["complete"], shown["version"]) == (["turn"], True, 1)
    assert shown["left_out"] == {
        "done": "planned_in_batch_0",
        "old": "skipped: too_stale",
        "short": "not_ready: members_missing",
    }
    assert (shown["rows"], shown["responses_trained"], shown["response_tokens"]) == (2, 4, 10)
    assert shown["tokens_saved"] > 0
    spec = tmp_path / "spec.yaml"
    spec.write_text("preset: sft_best\ngroups_per_batch: 2\ngroup_size: 2\n")
    (shown,) = claw(pool_settings, "batch", "--spec", str(spec), code=1)
    assert (shown["complete"], shown["trajectories_trained"], shown["trajectories"]) == (False, 1, 2)


def test_a_curation_is_audited_and_can_be_taken_back(pool_settings: LogSettings) -> None:
    """A filter becomes ids; --dry-run writes nothing; who, why and when stand in the event; --undo restores."""
    said = ("--no-train", "--quality", "0.1", "--set-score", "entropy@1=0.2", "--who", "ann", "--why", "copied")
    judge = ("curate", "--reward-min", "3", *said)
    before = curations(pool_settings)
    (tried,) = claw(pool_settings, *judge, "--dry-run")
    assert (tried["steps"], curations(pool_settings)) == (1, before)
    (done,) = claw(pool_settings, *judge)
    (event,) = curations(pool_settings, before)
    assert (event.group_id, event.trajectory_id, event.call_id) == ("turn", "t1", "c0")
    assert (event.who, event.note, event.trainable, event.quality) == ("ann", "copied", False, 0.1)
    assert event.scores == {"entropy@1": 0.2}
    assert event.envelope.correlation_id == done["curation_id"]
    claw(pool_settings, "curate", "--undo", done["curation_id"], "--who", "bob")
    state = StepState()
    for fact in curations(pool_settings, before):
        state = replace(state, curation=annotated(state.curation, fact))
    assert state.curation is not None
    assert (state.curation.trainable, state.curation.quality, state.curation.note) == (None, None, None)
    assert state.curation.scores == {}
    assert [one.who for one in state.curation.judgements] == ["ann", "bob"]
    claw(pool_settings, "curate", "--undo", done["curation_id"], "--who", "bob", code=1)
    claw(pool_settings, "curate", "done", "--train", "--group", "turn", "--who", "ann", code=1)


def test_an_eviction_names_what_it_erases_and_is_audited(own_pool: LogSettings) -> None:
    """A group goes as a whole; --dry-run writes nothing; who, why and when stand in the facts, which erase it."""
    who = ("--why", "asked to", "--who", "ann")
    one, whole = ("evict", "t1", "--group", "old", *who), ("evict", "old", "t1", "--group", "old", *who)
    (tried,) = claw(own_pool, *whole, "--dry-run")
    assert (tried["trajectories"], written_evictions(own_pool)) == (2, [])
    (single,) = claw(own_pool, *one)
    (done,) = claw(own_pool, *whole)
    assert (single["trajectories"], done["trajectories"]) == (1, 2), "as far as the pool had folded it"
    found = written_evictions(own_pool)
    assert [(event.group_id, getattr(event, "trajectory_id", None)) for event in found] == [
        ("old", "t1"),
        ("old", None),
    ]
    assert {(event.requested_by, event.reason) for event in found} == {("ann", "asked to")}
    assert [event.envelope.correlation_id for event in found] == [single["eviction_id"], done["eviction_id"]]
    state = None
    for fact, at in facts.placed([*group("old", [0.0, 1.0]), *found, facts.reward("old", "t0", 9.0)]):
        state = fold(state, fact, at)
    assert state is not None
    (stub,) = project(state).values()
    assert isinstance(stub, GroupRecord), "no step and no trajectory"
    assert (stub.reasons, stub.evicted_reason) == (("evicted",), "asked to")


def test_an_eviction_that_is_not_sure_evicts_nothing(pool_settings: LogSettings) -> None:
    """It cannot be undone: an id that several groups have, an unknown one beside a known one, nobody or no reason."""
    before = written_evictions(pool_settings)
    said = ("--why", "asked to", "--who", "ann")
    claw(pool_settings, "evict", "t0", *said, code=2)
    (refused,) = claw(pool_settings, "evict", "done", "misspelt", *said, code=1)
    assert (refused["unknown"], refused["trajectories"], refused["events"]) == (["misspelt"], 0, [])
    claw(pool_settings, "evict", "c0", *said, code=1)
    claw(pool_settings, "evict", "done", "--why", "asked to", "--who", "", code=2)
    claw(pool_settings, "evict", "done", "--who", "ann", code=2)
    assert written_evictions(pool_settings) == before


def test_what_is_evicted_is_not_evicted_again() -> None:
    """An eviction that broke off is repeated with the same ids; each of the others is meant once."""
    stub = TrajectoryRecord(group_id="g", trajectory_id="t", status="evicted", ready=False)
    here = replace(stub, trajectory_id="u", status="completed")
    whole = GroupRecord(group_id="g", declared=False, ready=False)
    gone = replace(whole, group_id="h", reasons=("evicted",))
    rows: list[EvictableRow] = [whole, gone, stub, here]
    assert rows_of(rows, ["t", "v"], "g") == {"t": [stub], "v": []}, "a stub is known, another id is not"
    said = {"why": "old", "who": "ann", "producer": "test", "act_id": "a"}
    (event,), groups, places, unknown = evictions(rows_of(rows, ["g", "t", "u", "h"], None), **said)
    assert (type(event).__name__, groups, places, unknown) == ("GroupEvicted", ["g"], [("g", "u")], [])
    (event,), groups, places, _ = evictions(rows_of(rows, ["t", "u"], None), **said)
    assert (type(event).__name__, groups, places) == ("TrajectoryEvicted", [], [("g", "u")])
    assert evictions(rows_of(rows, ["h", "t"], None), **said) == ([], [], [], [])


def test_a_mistake_is_one_line(pool_settings: LogSettings) -> None:
    """Nothing to judge, nobody meant, a scorer's name: refused before anything is read or written."""
    claw(pool_settings, "curate", "done", "--who", "ann", code=2)
    claw(pool_settings, "curate", "--no-train", "--who", "ann", code=2)
    claw(pool_settings, "curate", "done", "--no-train", "--who", "scorer/me@1", code=2)


def written_evictions(settings: LogSettings) -> list[EvictionFact]:
    with closing(LogReader(settings, [CALLS])) as reader:
        events = [record.event() for record in reader.read_to_end()]
    return [event for event in events if isinstance(event, EvictionFact)]


def curations(settings: LogSettings, before: Sequence[StepCurated] = ()) -> list[StepCurated]:
    """Those that were not there before."""
    with closing(LogReader(settings, [REWARDS])) as reader:
        events = [record.event() for record in reader.read_to_end()]
    return [event for event in events if isinstance(event, StepCurated) and event not in before]


def test_a_log_that_is_not_whole_any_more_is_one_line(own_pool: LogSettings) -> None:
    """Facts that retention took, and a row of another version, are said by the command itself, with exit code 2."""
    settings = own_pool
    delete_records(settings, end_offsets(settings, [CALLS]))
    assert "retention removed what was before" in refused(settings, "steps", "--text", "no such words")
    foreign = BatchAssembled(
        envelope=facts.envelope(),
        run_id="later",
        sequence=0,
        version=0,
        spec='{"of": "later"}',
        trajectories=(),
        seed=0,
    )
    row = Outgoing(topic=STEPS, key=step_key("g", "t", "c"), value=b"\0\x7f\xff\xff\xff")
    with closing(EventProducer(settings)) as producer:
        producer.publish_now(BATCHES, b"later", foreign)
        claw(settings, "batch", code=2)
        producer.produce(row).result()
    assert "schema id 2147483647" in refused(settings, "stats")


def refused(settings: LogSettings, *arguments: str) -> str:
    """The last line that `claw pool …` of a person's shell says; the exit code must be 2."""
    env = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers, "CLAW_LOG_PARTITIONS": "2"}
    command = [sys.executable, "-m", "claw_r1.claw.cli", "pool", *arguments, "--prefix", settings.prefix]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    return done.stderr.splitlines()[-1]
