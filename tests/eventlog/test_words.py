"""The parts of the log that need no broker: partitioner, settings, dead letters, sweeps."""

import pytest
from pydantic import ValidationError

from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.eventlog.kafka.ranges import sweeps
from claw_r1.eventlog.partitioner import murmur2, partition_of
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS, LARGEST_RECORD_BYTES

# From Apache Kafka's own UtilsTest.testMurmur2: signed 32-bit.
JAVA_VECTORS = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS.items())
def test_murmur2_is_the_one_of_java(key: str, expected: int) -> None:
    """The hash equals that of Kafka's Java client, on its own test vectors."""
    assert murmur2(key.encode()) == expected % (1 << 32)
    assert partition_of(key.encode(), 32) == (expected & 0x7FFFFFFF) % 32


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLAW_LOG_* and KAFKA_BOOTSTRAP_SERVERS are read; our own name wins; arguments win over both."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    assert LogSettings().bootstrap_servers == "127.0.0.1:9092"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "a:1")
    monkeypatch.setenv("CLAW_LOG_PREFIX", "demo")
    assert (LogSettings().bootstrap_servers, LogSettings().catalogue().name(CALLS)) == ("a:1", "demo.calls")
    monkeypatch.setenv("CLAW_LOG_BOOTSTRAP_SERVERS", "b:1")
    assert LogSettings().bootstrap_servers == "b:1"
    assert LogSettings(bootstrap_servers="c:1").bootstrap_servers == "c:1"


@pytest.mark.parametrize(
    "wrong",
    [{"partitions": 0}, {"prefix": "a b"}, {"bootstrap_servers": ""}, {"linger_ms": 500, "ack_timeout_ms": 400}],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    """A value out of range or a contradiction is an error at load, not at the first record."""
    with pytest.raises(ValidationError):
        LogSettings.model_validate(wrong)


def test_settings_do_not_show_the_client_config() -> None:
    """client_config may hold a password, so its value is not in the settings' text."""
    assert "s3cret" not in repr(LogSettings(client_config={"sasl.password": "s3cret"}))


BROKEN = Record("claw.calls", 3, 41, 1, b"g\xff", b"\x00not avro", (("ce_id", b"1"), ("traceparent", b"00-a")))


def test_a_dead_letter_is_the_record_byte_for_byte_with_the_reason() -> None:
    """Key, value and headers are as they were; ours come after them and say what happened where."""
    letter = dead_letter(BROKEN, "malformed_datum", "trailing bytes", reader="streams/0")
    assert (letter.key, letter.value, letter.partition) == (BROKEN.key, BROKEN.value, 3)
    assert tuple(letter.headers[:2]) == BROKEN.headers
    ours = dict(letter.headers[2:])
    assert ours["claw_reason"] == b"malformed_datum"
    assert ours["claw_error"] == b"trailing bytes"
    assert ours["claw_reader"] == b"streams/0"
    assert (ours["claw_source_topic"], ours["claw_source_partition"], ours["claw_source_offset"]) == (
        b"claw.calls",
        b"3",
        b"41",
    )
    assert ours["claw_attempt"] == b"1"


def test_a_letter_that_fails_again_keeps_its_first_failure() -> None:
    """Redriven and failed once more: first source and time stay, the reason is the new one, the attempt counts up."""
    first = dead_letter(BROKEN, "malformed_datum", "x", reader="streams/0")
    redriven = Record("claw.dead-letters", 3, 7, 2, first.key, first.value, tuple(first.headers))
    again = dict(dead_letter(redriven, "fold_bug", "y", reader="streams/1").headers)
    before = dict(first.headers)
    for kept in ("claw_source_topic", "claw_source_offset", "claw_failed_at"):
        assert again[kept] == before[kept]
    assert (again["claw_reason"], again["claw_attempt"]) == (b"fold_bug", b"2")


def test_headers_of_strangers_do_not_break_a_dead_letter() -> None:
    """A foreign claw_attempt that is no number counts as none."""
    odd = Record("claw.calls", 0, 0, 0, None, None, (("claw_attempt", b"many"),))
    assert dict(dead_letter(odd, "empty_value", "", reader="r").headers)["claw_attempt"] == b"1"


@pytest.mark.parametrize("name", ["claw_attempt", "claw_source_topic"])
def test_large_headers_of_strangers_do_not_break_a_dead_letter(name: str) -> None:
    """No letter writer kept so much: a number that Python does not read, or a header that leaves no room for ours."""
    odd = Record("claw.calls", 0, 0, 0, None, None, ((name, b"9" * (LARGEST_RECORD_BYTES - 1000)),))
    letter = dict(dead_letter(odd, "empty_value", "", reader="r").headers)
    assert (letter["claw_attempt"], letter["claw_source_topic"]) == (b"1", b"claw.calls")


def test_sweeps_cover_every_position_and_read_neighbours_together() -> None:
    """Positions close together share a range, far ones get their own round, and partitions are read side by side."""
    near = [Position("t", 0, 5), Position("t", 0, 90), Position("t", 1, 7)]
    far = [Position("t", 0, 100_000)]
    assert sweeps([*far, *near]) == [{("t", 0): (5, 91), ("t", 1): (7, 8)}, {("t", 0): (100_000, 100_001)}]
    assert sweeps([]) == []


def test_a_tombstone_needs_no_event() -> None:
    """Outgoing.tombstone removes a key of a compacted topic."""
    assert Outgoing.tombstone(CALLS, b"k").value is None
