"""The demo's own counts, from records only."""

from msgspec.structs import replace

from claw_r1.claw.demo.observer import Observer
from claw_r1.eventlog.records import Record
from claw_r1.schemas.codec import encode
from claw_r1.schemas.envelopes import envelope, now_us
from claw_r1.schemas.events import (
    Event,
    GroupRecord,
    RunEnded,
    RunStarted,
    WeightsPublished,
    WorkerReported,
    WorkerState,
)
from claw_r1.schemas.topics import BATCHES, CALLS, DEAD_LETTERS, GROUPS, WEIGHTS, WORKERS, Catalogue, Topic
from tests.claw.events import ENVELOPE, trained

CATALOGUE = Catalogue()


def record(topic: Topic, value: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Record(
        topic=CATALOGUE.name(topic), partition=0, offset=0, timestamp_ms=0, key=b"k", value=value, headers=headers
    )


def group(group_id: str, *, ready: bool, run_id: str | None = "r") -> GroupRecord:
    return GroupRecord(group_id=group_id, declared=True, ready=ready, run_id=run_id, channel="train")


def worker(
    version: int, run_id: str = "r", worker_id: str = "w", state: WorkerState = "ready", age_s: float = 0.0
) -> WorkerReported:
    return WorkerReported(
        envelope=replace(envelope("test/1"), occurred_at_us=now_us() - int(age_s * 1e6)),
        worker_id=worker_id,
        url="u",
        model_id="m",
        model="m",
        state=state,
        run_id=run_id,
        version=version,
        report_interval_s=60,
    )


def observed(*events: tuple[Topic, Event]) -> Observer:
    observer = Observer("r", CATALOGUE)
    for topic, event in events:
        observer.on_record(record(topic, encode(event)))
    return observer


def test_a_run_that_is_continued_has_not_ended() -> None:
    """A start behind the end takes the end back."""
    ended = RunEnded(envelope=ENVELOPE, run_id="r", status="finished", batches=1, version=1)
    shape = {"group_size": 8, "groups_per_batch": 8, "staleness_max": 1}
    started = RunStarted(
        envelope=ENVELOPE, run_id="r", model_id="m", incarnation=2, config="{}", facts_prefix="claw", **shape
    )
    assert observed((BATCHES, ended)).progress.ended == ended
    assert observed((BATCHES, ended), (BATCHES, started)).progress.ended is None


def test_counts_are_of_this_run() -> None:
    """Groups, batches, versions and workers of another run change nothing; a group that names no run is of people."""
    published = WeightsPublished(
        envelope=ENVELOPE, model_id="m", run_id="other", version=9, digest="d", bytes_total=1, manifest=()
    )
    progress = observed(
        (GROUPS, group("a", ready=True)),
        (GROUPS, group("b", ready=True, run_id="other")),
        (GROUPS, group("person", ready=True, run_id=None)),
        (BATCHES, trained(0, 0.5)),
        (WEIGHTS, published),
        (WORKERS, worker(4, "other")),
    ).progress
    assert progress.ready == {"a", "person"}
    assert len(progress.batches) == 1
    assert progress.version is None
    assert progress.workers == {}


def test_the_engine_of_a_judge_is_no_worker_of_the_run() -> None:
    """It serves another model, never has the run's version, and would be waited for until the end of days."""
    observer = Observer("r", CATALOGUE, model_id="m")
    for each in (worker(0), replace(worker(0, worker_id="j"), model_id="judge", run_id=None)):
        observer.on_record(record(WORKERS, encode(each)))
    assert set(observer.progress.workers) == {"w"}


def test_the_end_waits_for_every_worker_that_takes_calls() -> None:
    """At the start all must be there; at the end those that were drained, killed or are not there yet are not waited for."""
    published = WeightsPublished(
        envelope=ENVELOPE, model_id="m", run_id="r", version=9, digest="d", bytes_total=1, manifest=()
    )
    gone = [worker(4, worker_id="a", state="dead"), worker(4, worker_id="b", age_s=600)]
    present = [worker(9, worker_id="c"), worker(0, worker_id="d", state="starting")]

    def settled(*workers: WorkerReported) -> bool:
        return observed((WEIGHTS, published), *((WORKERS, each) for each in workers)).progress.is_settled()

    assert settled(*gone, *present)
    assert not settled(*gone), "nobody is there"
    assert not settled(*present, worker(8, worker_id="e")), "a version behind"
    assert not settled(*present, worker(9, worker_id="e", state="updating"))
    progress = observed(*((WORKERS, each) for each in [*gone, *present])).progress
    assert (progress.workers_with(9), progress.workers_with(4)) == (1, 1)


def test_calls_are_counted_by_their_header() -> None:
    """A call needs no decoding to be counted; other facts of the topic are no calls."""
    observer = observed()
    observer.on_record(record(CALLS, b"", (("ce_type", b"claw.CallCaptured"),)))
    observer.on_record(record(CALLS, b"", (("ce_type", b"claw.GroupOpened"),)))
    assert observer.progress.calls == 1


def test_an_unreadable_record_does_not_stop_the_counting() -> None:
    """Garbage on a topic and a dead letter are seen, and the next record is counted."""
    observer = observed()
    observer.on_record(record(GROUPS, b"garbage"))
    observer.on_record(record(DEAD_LETTERS, b"garbage"))
    observer.on_record(record(GROUPS, encode(group("a", ready=True))))
    assert (observer.progress.dead_letters, observer.progress.ready) == (1, {"a"})


def test_waiting_ends_with_the_condition_or_the_deadline() -> None:
    """A condition that holds is told at once, one that does not by the deadline."""
    observer = observed((BATCHES, trained(0, 0.5)))
    assert observer.wait_for(lambda progress: len(progress.batches) == 1, timeout_s=0)
    assert not observer.wait_for(lambda progress: len(progress.batches) == 2, timeout_s=0.01)
