"""Events as bytes and back, and what the codec says of bytes that are none."""

import contextlib
import dataclasses
import io

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import codec
from schemas.avro_files import self_contained
from schemas.binary import LONGEST, again, long, number, read_again, read_array, read_long, read_text, read_time, time
from schemas.cloudevents import headers
from schemas.errors import BadMagic, EmptyValue, MalformedDatum, UndecodableRecord, UnknownSchemaId
from schemas.events import EVENT_TYPES, Event, Integrity, RewardAssigned
from tests.schemas.examples import ENVELOPE, EXAMPLES, golden
from tests.schemas.values import events

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_event_comes_back_equal(name: str) -> None:
    """decode(encode(event)) == event for any values that the schema allows, and the type is told without decoding."""

    @FEW
    @given(events(name))
    def comes_back(event: Event) -> None:
        value = codec.encode(event)
        assert codec.decode(value) == event
        assert codec.event_name(value) == name

    comes_back()


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_our_writer_and_fastavro_write_the_same_bytes(name: str) -> None:
    """Any Avro reader gets from us what the schema says."""
    schema = fastavro.parse_schema(self_contained(f"claw.{name}"))

    @FEW
    @given(events(name))
    def same(event: Event) -> None:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, event.to_datum())
        assert codec.encode(event)[codec.HEADER.size :] == out.getvalue()

    same()


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_our_reader_and_fastavro_read_the_same_event(name: str) -> None:
    """What another Avro reader finds in these bytes is what we find, of bytes that were damaged too."""
    schema = fastavro.parse_schema(self_contained(f"claw.{name}"))

    def theirs(value: bytes) -> Event:
        read = fastavro.schemaless_reader(io.BytesIO(value[codec.HEADER.size :]), schema, None)
        return EVENT_TYPES[name].from_datum(read)  # type: ignore[arg-type]  # a record is a dict

    @FEW
    @given(events(name), st.data())
    def same(event: Event, data: st.DataObject) -> None:
        value = codec.encode(event)
        assert codec.decode(value) == theirs(value)
        place = data.draw(st.integers(codec.HEADER.size, len(value) - 1))
        damaged = value[:place] + data.draw(st.binary(min_size=1, max_size=1)) + value[place + 1 :]
        with contextlib.suppress(MalformedDatum):
            assert repr(codec.decode(damaged)) == repr(theirs(damaged))  # as text: a damaged number may be no number
        with pytest.raises(MalformedDatum):
            codec.decode(value[:place])

    same()


def test_blocks_with_a_size_are_read_too() -> None:
    """Other writers may put a block's size behind a negative count, and several blocks into one array."""
    blocks = b"\x03\x08" + b"\x02a\x02b" + b"\x02" + b"\x02c" + b"\x00"
    assert fastavro.schemaless_reader(io.BytesIO(blocks), {"type": "array", "items": "string"}, None) == ["a", "b", "c"]
    assert read_array(read_text, blocks, 0) == (("a", "b", "c"), len(blocks))


@given(st.one_of(st.integers(-LONGEST, LONGEST - 1), st.integers(1 << 47, 1 << 57)), st.binary(max_size=9))
def test_a_time_is_written_and_read_as_any_number(value: int, rest: bytes) -> None:
    """The short cut for eight bytes changes nothing, whatever the number and whatever follows it."""
    assert time(value) == long(value)
    assert read_time(time(value) + rest, 0) == number(long(value) + rest, 0)


def test_a_number_ends_after_ten_bytes() -> None:
    """However many bytes say that they go on: a number as long as a record would hold up its reader for minutes."""
    with pytest.raises(ValueError, match="64 bits"):
        number(b"\xff" * 1000, 0)
    with pytest.raises(ValueError, match="64 bits"):
        read_time(b"\xff" * 1000, 0)
    assert [read_long(long(n), 0)[0] for n in (-LONGEST, LONGEST - 1)] == [-LONGEST, LONGEST - 1]


def test_a_number_is_as_wide_as_its_schema_says() -> None:
    """What could not be written again is not read: it would fail later, in whoever passes it on."""
    value = codec.encode(
        RewardAssigned(envelope=ENVELOPE, group_id="g", trajectory_id="t", value=0.5, step_index=2**31 - 1)
    )
    wider = value.replace(long(2**31 - 1), long(2**31))
    assert len(wider) == len(value)
    with pytest.raises(MalformedDatum, match="32 bits"):
        codec.decode(wider)


def test_a_shared_record_is_remembered_by_its_bytes_alone() -> None:
    """The same bytes give the same object, others do not, and what was cut off is not remembered."""
    first, second = Integrity(complete=True), Integrity(complete=False, missing=("logprobs",))
    read = [read_again(Integrity, one.binary(), 0)[0] for one in (first, first, second, first)]
    assert read == [first, first, second, first]
    assert read[0] is read[1]
    cut = second.binary()[:-3]
    with contextlib.suppress(IndexError):
        read_again(Integrity, cut, 0)
    assert read_again(Integrity, second.binary(), 0)[0] == second
    assert [again(one) for one in (first, first, second, first)] == [
        one.binary() for one in (first, first, second, first)
    ]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_golden_bytes_stay_readable(event: Event) -> None:
    """Bytes that were written once decode to the same event, and the same event is still written as these bytes."""
    value = bytes.fromhex(golden(event).read_text())
    assert codec.decode(value) == event
    assert codec.encode(event) == value


@FEW
@given(st.binary(max_size=60))
def test_foreign_bytes_are_undecodable_and_nothing_else(value: bytes) -> None:
    """Whatever bytes stand on a topic, decode returns an event or raises UndecodableRecord: a reader never crashes."""
    with pytest.raises(UndecodableRecord):
        codec.decode(b"\x00\x00\x01\x86\xa3" + value)
    with pytest.raises(UndecodableRecord):
        codec.decode(b"\x01" + value)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, EmptyValue),
        (b"", EmptyValue),
        (b"\x00\x00", BadMagic),
        (b'{"json": 1}', BadMagic),
        (b"\x00\x7f\xff\xff\xff\x00", UnknownSchemaId),
        (codec.encode(EXAMPLES[1])[:-1], MalformedDatum),
        (codec.encode(EXAMPLES[1]) + b"\x00", MalformedDatum),
    ],
)
def test_the_reason_is_named(value: bytes | None, error: type[UndecodableRecord]) -> None:
    """Each way of being undecodable has its own type with a stable word for the dead letter."""
    with pytest.raises(error) as raised:
        codec.decode(value)
    assert raised.value.reason == error.reason != UndecodableRecord.reason


@pytest.mark.parametrize("wrong", [{"value": "high"}, {"group_id": None}, {"step_index": 1 << 40}])
def test_a_value_that_does_not_fit_is_refused_when_written(wrong: dict[str, object]) -> None:
    """A wrong type, a missing id or an overflow raises at encode: it never reaches the log."""
    event = RewardAssigned(envelope=ENVELOPE, group_id="g", trajectory_id="t", value=0.5)
    with pytest.raises((ValueError, TypeError, OverflowError)):
        codec.encode(dataclasses.replace(event, **wrong))  # type: ignore[arg-type]  # wrong on purpose


def test_headers_follow_cloudevents() -> None:
    """Envelope fields are CloudEvents attributes, the trace context rides along; pool records have type and version."""
    fact = dict(headers(EXAMPLES[0]))
    assert fact["ce_specversion"] == b"1.0"
    assert fact["ce_type"] == b"claw.CallCaptured"
    assert fact["ce_id"] == ENVELOPE.event_id.encode()
    assert fact["ce_source"] == b"gateway/1"
    assert fact["ce_time"] == b"2026-01-01T00:00:00.000001Z"
    assert ENVELOPE.traceparent
    assert fact["traceparent"] == ENVELOPE.traceparent.encode()
    assert set(dict(headers(EXAMPLES[4]))) == {"ce_specversion", "ce_type", "content-type"}
