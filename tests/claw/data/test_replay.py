"""Replay: ranges, filters, pace and targets. On a real broker where a log is needed."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from claw_r1.claw.answers import emit
from claw_r1.claw.data.replay import run_replay
from claw_r1.claw.data.replay_filter import filter_of
from claw_r1.claw.data.replay_range import bound, merged, paced
from claw_r1.claw.data.replay_target import into_file, is_file, target_topic
from claw_r1.claw.data.settings import ReplaySettings
from claw_r1.claw.errors import CannotRun
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.kafka.admin import create_topics, delete_records
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS, GROUPS, REWARDS, Topic
from tests import facts
from tests.consumers import published


def record(offset: int, timestamp_ms: int = 0, value: bytes | None = None, key: bytes = b"g") -> Record:
    return Record("t", 0, offset, timestamp_ms, key, value, (("ce_source", b"gateway/1"),))


def read(settings: LogSettings, topic: Topic) -> list[Record]:
    with LogReader(settings, [topic]) as reader:
        return list(reader.read_to_end())


def test_filters_read_type_key_fields_envelope_and_headers() -> None:
    """All filters must hold; a record that cannot be decoded has a type and no fields."""
    item = Outgoing.of(CALLS, b"g", facts.call("g", "t", "c", channel="val"))
    told = record(0, value=item.value)
    for text in (
        "type=CallCaptured",
        "key=g",
        "partition=0",
        "group=g",
        "call=c",
        "channel=val",
        "run=run",
        "ce_source=gateway/1",
    ):
        assert filter_of([text])(told), text
    assert filter_of(["type=CallCaptured", "group=g"])(told)
    assert not filter_of(["type=CallCaptured", "group=h"])(told)
    assert filter_of(["type=bad_magic"])(record(0, value=b"\x07no"))
    assert not filter_of(["group=g"])(record(0, value=b"\x07no"))
    assert filter_of(["type=tombstone"])(record(0))
    with pytest.raises(CannotRun, match="NAME=VALUE"):
        filter_of(["group"])


@pytest.mark.parametrize(
    ("text", "topics"),
    [("nonsense=x", [CALLS, REWARDS]), ("return_total=1", [CALLS]), ("sequence=1", [REWARDS])],
)
def test_a_filter_that_nothing_could_meet_is_refused(text: str, topics: list[Topic]) -> None:
    """A name that no record of the topics has would leave out everything in silence; the refusal lists the names."""
    with pytest.raises(CannotRun, match=r"partition, type, group, trajectory, call, .*header:NAME") as refused:
        filter_of([text], topics)
    assert "\n" not in str(refused.value)
    with pytest.raises(CannotRun, match="nonsense"):
        emit(run_replay(ReplaySettings(filters=["nonsense=x"])), as_json=True)  # before a broker is looked for


def test_any_header_may_be_a_filter() -> None:
    """Ours by their names, and a stranger's as `header:NAME`."""
    ours = record(0, value=Outgoing.of(CALLS, b"g", facts.call()).value)
    theirs = replace(ours, headers=(("shard", b"7"),))
    assert filter_of(["ce_source=gateway/1"])(ours)
    assert filter_of(["header:shard=7"])(theirs)
    assert not filter_of(["header:shard=7"])(ours)
    assert not filter_of(["header:shard=8"])(theirs)


def test_the_pace_is_the_original_one_times_speed() -> None:
    """Ten times the speed waits a tenth; a reader that is late does not wait; 0 never waits."""
    waited: list[float] = []
    clock = [100.0]

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock[0] += seconds

    told = [record(n, timestamp_ms=at) for n, at in enumerate((5_000, 6_000, 6_000, 9_000))]
    assert list(paced(told, 10, now=lambda: clock[0], sleep=sleep)) == told
    assert waited == pytest.approx([0.1, 0.3])
    waited.clear()
    assert list(paced(told, 0, now=lambda: clock[0], sleep=sleep)) == told
    assert waited == []


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """A replay that fails half way leaves the older file as it was, and nothing beside it."""
    path = tmp_path / "out.jsonl"
    assert into_file([record(n) for n in range(3)], path, lambda one: {"at": one.offset}) == 3
    assert path.read_text() == '{"at":0}\n{"at":1}\n{"at":2}\n'

    def broken() -> list[Record]:
        raise HistoryCut("gone")

    with pytest.raises(HistoryCut):
        into_file((one for _ in [0] for one in broken()), path, lambda one: {"at": one.offset})
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]
    assert path.read_text() == '{"at":0}\n{"at":1}\n{"at":2}\n'
    assert [is_file(name) for name in ("x.jsonl", "a/b", "claw.calls")] == [True, True, False]


@pytest.mark.kafka
def test_a_range_is_merged_by_time_and_keeps_each_partitions_order(log_settings: LogSettings) -> None:
    """Every record of the range once, in the same order each time; times and offsets mean the same range."""
    published.say(log_settings, *(facts.call(f"g{n % 7}", "t", f"c{n}") for n in range(40)))
    written = read(log_settings, CALLS)
    starts, ends = (bound(log_settings, [CALLS], text) for text in ("beginning", "end"))
    told = list(merged(log_settings, [CALLS], starts, ends))
    assert sorted(one.position for one in told) == sorted(one.position for one in written)
    for partition in {one.partition for one in told}:
        offsets = [one.offset for one in told if one.partition == partition]
        assert offsets == sorted(offsets)
    assert told == list(merged(log_settings, [CALLS], starts, ends))
    assert [one.timestamp_ms for one in told] == sorted(one.timestamp_ms for one in told)
    assert bound(log_settings, [CALLS], "2001-01-01") == starts
    assert bound(log_settings, [CALLS], "2100-01-01T00:00:00+02:00") == ends
    assert set(bound(log_settings, [CALLS], "1").values()) <= {0, 1}
    with pytest.raises(CannotRun, match="not 'yesterday'"):
        bound(log_settings, [CALLS], "yesterday")


@pytest.mark.kafka
def test_without_a_topic_the_facts_are_replayed_as_they_were_said(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Calls and rewards in one order of time, each partition in its own order; a topic named twice comes once."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    said = [
        event
        for n in range(12)
        for event in (facts.call(f"g{n % 3}", "t", f"c{n}"), facts.reward(f"g{n % 3}", "t", call_id=f"c{n}"))
    ]
    for event in said:  # one by one: a reward is written after its call
        published.say(log_settings, event)
    assert emit(run_replay(ReplaySettings(prefix=log_settings.prefix)), as_json=True) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["timestamp_ms"] for one in told] == sorted(one["timestamp_ms"] for one in told)
    assert {one["event"]["envelope"]["event_id"] for one in told} == {event.envelope.event_id for event in said}
    assert len(told) == len(said)
    kinds = [one["event"]["type"] for one in told]
    assert kinds[:2] == ["CallCaptured", "RewardAssigned"], "both topics are in the one order, not one behind the other"
    for place in {(one["topic"], one["partition"]) for one in told}:
        offsets = [one["offset"] for one in told if (one["topic"], one["partition"]) == place]
        assert offsets == sorted(offsets)
    twice = ReplaySettings(topics=["rewards", f"{log_settings.prefix}.rewards"], prefix=log_settings.prefix)
    assert emit(run_replay(twice), as_json=True) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12


@pytest.mark.kafka
def test_a_replay_of_nothing_says_so(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr with the range and the filters that left nothing; stdout stays empty."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    published.say(log_settings, facts.call("g", "t", "c"))
    assert emit(run_replay(ReplaySettings(filters=["group=other"], prefix=log_settings.prefix)), as_json=False) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert "no record of calls and rewards from beginning to end meets group=other" in shown.err


def test_a_topic_takes_the_records_of_one() -> None:
    """Rewards in a topic of calls would be facts where nobody looks for them; refused before a broker is asked."""
    with pytest.raises(CannotRun, match="say which --topic, of calls, rewards"):
        emit(run_replay(ReplaySettings(into="staging.calls")), as_json=True)


@pytest.mark.kafka
def test_a_cut_range_is_said(log_settings: LogSettings) -> None:
    """An offset that retention removed is an error, `beginning` is what is left."""
    places = published.say(log_settings, *(facts.call("g", "t", f"c{n}") for n in range(4)))
    place = (places[0].topic, places[0].partition)
    delete_records(log_settings, {place: 2})
    ends = bound(log_settings, [CALLS], "end")
    left = list(merged(log_settings, [CALLS], bound(log_settings, [CALLS], "beginning"), ends))
    assert [one.offset for one in left] == [2, 3]
    with pytest.raises(HistoryCut):
        list(merged(log_settings, [CALLS], {**dict.fromkeys(ends, 0)}, ends))


@pytest.mark.kafka
def test_another_topic_gets_keys_bytes_and_headers(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A filtered range into another installation's topic, each key in the partition that murmur2 gives it."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    other = log_settings.model_copy(update={"prefix": f"{log_settings.prefix}x", "partitions": 3})
    create_topics(other)
    published.say(log_settings, *(facts.call(f"g{n % 5}", "t", f"c{n}") for n in range(10)), facts.completed("g1", "t"))
    target = other.catalogue().name(CALLS)
    asked = ReplaySettings(topics=["calls"], filters=["type=CallCaptured"], into=target, prefix=log_settings.prefix)
    with pytest.raises(CannotRun, match="--force"):
        emit(run_replay(asked), as_json=True)
    forced = ReplaySettings(
        topics=["calls"], filters=["type=CallCaptured"], into=target, prefix=log_settings.prefix, force=True
    )
    assert emit(run_replay(forced), as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 10
    copies, originals = (
        read(other, CALLS),
        [one for one in read(log_settings, CALLS) if filter_of(["type=CallCaptured"])(one)],
    )
    assert sorted((c.key, c.value, c.headers) for c in copies) == sorted((o.key, o.value, o.headers) for o in originals)
    assert all(copy.partition == partition_of(copy.key or b"", 3) for copy in copies)


@pytest.mark.kafka
def test_targets_that_are_refused(log_settings: LogSettings) -> None:
    """Facts need force, pool topics are never written, a topic must exist and have a prefix."""
    name = log_settings.catalogue().name
    for topic in (CALLS, REWARDS, DEAD_LETTERS):
        with pytest.raises(CannotRun, match="--force"):
            target_topic(log_settings, name(topic), force=False)
    assert target_topic(log_settings, name(CALLS), force=True)[2] == log_settings.partitions
    with pytest.raises(CannotRun, match="under a fence"):
        target_topic(log_settings, name(GROUPS), force=True)
    with pytest.raises(CannotRun, match="no such topic"):
        target_topic(log_settings, "nowhere.else", force=False)
    with pytest.raises(CannotRun, match=r"PREFIX\.NAME"):
        target_topic(log_settings, "nowhere", force=False)


@pytest.mark.kafka
def test_a_file_has_a_json_line_per_record(
    log_settings: LogSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same range gives the same file; the limit counts what the filters leave."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    published.say(log_settings, *published.group("g", [1.0, 0.0]))
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        asked = ReplaySettings(
            topics=["calls"], filters=["type=CallCaptured"], limit=3, into=str(path), prefix=log_settings.prefix
        )
        assert emit(run_replay(asked), as_json=False) == 0
    assert "3 records of calls into" in capsys.readouterr().out
    lines = [json.loads(line) for line in paths[0].read_text().splitlines()]
    assert [line["event"]["call_id"] for line in lines] == ["g-0-0", "g-0-1", "g-1-0"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
