"""Events as bytes and back, and what the codec says of bytes that are none."""

import io
import json
import os
import subprocess
import sys
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_r1.schemas import codec
from claw_r1.schemas.avro_files import current_ids, fingerprint, schema_ids, self_contained, written_schema
from claw_r1.schemas.cloudevents import headers
from claw_r1.schemas.codec import encode, encode_item
from claw_r1.schemas.errors import BadMagic, EmptyValue, MalformedDatum, UndecodableRecord, UnknownSchemaId
from claw_r1.schemas.events import (
    EVENT_TYPES,
    CallCaptured,
    Event,
    GroupMember,
    GroupRecord,
    Sampling,
    TrajectoryRecord,
    WeightsPublished,
)
from tests import facts
from tests.schemas.examples import EVENTS, golden
from tests.schemas.values import datum, events
from tests.soak import SOAK

FEW = settings(max_examples=40 if SOAK else 10)  # of each type
KEPT_IDS = [schema_id for schema_id in schema_ids() if written_schema(schema_id) is not None]
OLDER_IDS = [schema_id for schema_id in KEPT_IDS if schema_id not in current_ids().values()]
each_type = pytest.mark.parametrize("name", sorted(EVENT_TYPES))


@pytest.mark.soak
@each_type
def test_every_event_comes_back_equal(name: str) -> None:
    """decode(encode(event)) == event for any values that the schema allows, and the type is told without decoding."""

    @FEW
    @given(events(name))
    def comes_back(event: Event) -> None:
        value = codec.encode(event)
        assert codec.decode(value) == event
        assert codec.event_name(value) == name

    comes_back()


@each_type
def test_golden_bytes_stay_readable(name: str) -> None:
    """Bytes that were written once decode to the same event, and the same event is still written as these bytes."""
    assert codec.decode(golden(name)) == EVENTS[name]
    assert codec.encode(EVENTS[name]) == golden(name)


@pytest.mark.soak
@each_type
def test_damaged_bytes_are_undecodable_or_an_event_that_can_be_written(name: str) -> None:
    """A byte that was changed gives a whole event or MalformedDatum, and bytes that were cut off always the latter."""

    @FEW
    @given(events(name), st.data())
    def holds(event: Event, data: st.DataObject) -> None:
        value = codec.encode(event)
        place = data.draw(st.integers(codec.HEADER.size, len(value) - 1))
        try:
            damaged = codec.decode(value[:place] + data.draw(st.binary(min_size=1, max_size=1)) + value[place + 1 :])
        except MalformedDatum:
            pass
        else:
            assert codec.decode(codec.encode(damaged)) is not None
        with pytest.raises(MalformedDatum):
            codec.decode(value[:place])

    holds()


def test_blocks_with_a_size_are_read_too() -> None:
    """Other writers may put a block's size behind a negative count, and several blocks into one array."""
    event = replace(EVENTS["GroupClosed"], members=("t", "u", "v"))
    one_block, two_blocks = b"\x06\x02t\x02u\x02v\x00", b"\x03\x08\x02t\x02u\x02\x02v\x00"
    value = codec.encode(event)
    assert value.count(one_block) == 1
    assert codec.decode(value.replace(one_block, two_blocks)) == event


@pytest.mark.parametrize("limit", [2**31, -(2**31) - 1])  # the first that do not fit
def test_a_number_is_as_wide_as_its_schema_says(limit: int) -> None:
    """What does not fit into 32 bits is neither written nor read: it would fail later, in whoever passes it on."""
    last = limit + 1 if limit < 0 else limit - 1
    narrow, wide = _number(last), _number(limit)
    event = replace(EVENTS["RewardAssigned"], step_index=last)
    value = codec.encode(event)
    assert value.count(narrow) == 1
    with pytest.raises(MalformedDatum, match="step_index"):
        codec.decode(value.replace(narrow, wide))
    with pytest.raises(ValueError, match="step_index"):
        codec.encode(replace(event, step_index=limit))


def _number(value: int) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, "long", value)
    return data.getvalue()


@pytest.mark.parametrize("schema_id", KEPT_IDS)
def test_the_kept_text_of_a_schema_is_the_one_that_its_id_was_given_for(schema_id: int) -> None:
    """A text that was edited later would read old records as something else."""
    assert fingerprint(written_schema(schema_id)) == schema_ids()[schema_id]["fingerprint"]


def test_every_schema_of_today_is_kept() -> None:
    """Its records must stay readable when it changes, and its text is gone from `avro/` then."""
    assert set(current_ids().values()) <= set(KEPT_IDS)


@pytest.mark.parametrize("schema_id", OLDER_IDS)
def test_what_an_older_schema_wrote_is_read_as_the_event_of_today(schema_id: int) -> None:
    """Every field that the writer knew has its value; fields that were added since have their defaults."""
    older = written_schema(schema_id)
    names = {field["name"] for field in older["fields"]}
    today = self_contained(f"claw.{older['name']}")
    added = {field["name"]: field["default"] for field in today["fields"] if field["name"] not in names}

    @FEW
    @given(datum(older))
    def is_read(fields: dict[str, Any]) -> None:
        value = _written(schema_id, fields)
        event = codec.decode(value)
        assert type(event) is EVENT_TYPES[older["name"]]
        assert _written(schema_id, codec.as_dict(event)) == value
        assert {name: msgspec.json.decode(msgspec.json.encode(getattr(event, name))) for name in added} == added

    is_read()


def _written(schema_id: int, fields: dict[str, Any]) -> bytes:
    data = io.BytesIO()
    data.write(codec.HEADER.pack(codec.MAGIC, schema_id))
    schema = fastavro.parse_schema(written_schema(schema_id))
    fastavro.schemaless_writer(data, schema, fields, disable_tuple_notation=True)
    return data.getvalue()


@pytest.mark.parametrize("schema_id", sorted(schema_ids().keys() - set(KEPT_IDS)))
def test_records_of_a_withdrawn_schema_are_refused(schema_id: int) -> None:
    """An id whose text is not kept names no schema that could be read."""
    with pytest.raises(UnknownSchemaId, match="withdrawn"):
        codec.decode(codec.HEADER.pack(codec.MAGIC, schema_id) + golden("GroupClosed")[codec.HEADER.size :])


@FEW
@given(st.binary(max_size=60))
def test_foreign_bytes_are_undecodable_and_nothing_else(value: bytes) -> None:
    """Whatever bytes stand on a topic, decode returns an event or raises UndecodableRecord: a reader never crashes."""
    with pytest.raises(UndecodableRecord):
        codec.decode(codec.HEADER.pack(codec.MAGIC, current_ids()["claw.CallCaptured"]) + value)
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
        (golden("RewardAssigned")[:-1], MalformedDatum),
        (golden("RewardAssigned") + b"\x00", MalformedDatum),
    ],
)
def test_the_reason_is_named(value: bytes | None, error: type[UndecodableRecord]) -> None:
    """Each way of being undecodable has its own type with a stable word for the dead letter."""
    with pytest.raises(error) as raised:
        codec.decode(value)
    assert raised.value.reason == error.reason != UndecodableRecord.reason


MISFITS: list[tuple[str, dict[str, object]]] = [
    ("RewardAssigned", {"value": "high"}),
    ("RewardAssigned", {"source": None}),
    ("RewardAssigned", {"group_id": None}),
    ("RewardAssigned", {"group_id": "\ud800"}),
    ("RewardAssigned", {"step_index": 1 << 40}),
    ("RewardAssigned", {"revision": 1 << 64}),
    ("CallCaptured", {"attempt": 1 << 31}),
    ("CallCaptured", {"attempt": 0.5}),
    ("CallCaptured", {"response_ids": "text"}),
    ("CallCaptured", {"status": "no such status"}),
    ("CallCaptured", {"tags": (1,)}),
    ("CallCaptured", {"usage": None}),
    ("StreamPosition", {"offsets": {"claw.calls": "41"}}),
]


@pytest.mark.parametrize(("name", "misfit"), MISFITS, ids=[f"{name} {misfit}" for name, misfit in MISFITS])
def test_a_value_that_does_not_fit_is_refused_when_written(name: str, misfit: dict[str, object]) -> None:
    """A wrong type, a missing id or an overflow raises at encode: it never reaches the log."""
    with pytest.raises((ValueError, TypeError)):
        codec.encode(replace(EVENTS[name], **misfit))


def test_parts_of_an_event_are_equal_by_value() -> None:
    """Folds compare and hash parts: equal fields make equal parts, and one other field makes another."""
    first, second = (Sampling(temperature=0.5, top_p=1.0, top_k=0, stop=("a",)) for _ in "ab")
    assert first == second
    assert hash(first) == hash(second)
    assert first != replace(first, stop=())


def test_headers_follow_cloudevents() -> None:
    """Envelope fields are CloudEvents attributes, the trace context rides along; pool records have type and version."""
    call = EVENTS["CallCaptured"]
    assert isinstance(call, CallCaptured)
    fact = dict(headers(call))
    assert fact["ce_specversion"] == b"1.0"
    assert fact["ce_type"] == b"claw.CallCaptured"
    assert fact["ce_id"] == call.envelope.event_id.encode()
    assert fact["ce_source"] == b"gateway/1"
    assert fact["ce_time"] == b"2026-01-01T00:00:00.000004Z"
    assert call.envelope.traceparent
    assert fact["traceparent"] == call.envelope.traceparent.encode()
    assert set(dict(headers(EVENTS["StreamPosition"]))) == {"ce_specversion", "ce_type", "content-type"}


def test_a_list_that_is_not_needed_is_passed_over() -> None:
    """The event is the same but for that list, and what stands before it can be read alone; bad bytes are refused."""
    published = EVENTS["WeightsPublished"]
    assert isinstance(published, WeightsPublished)
    value = codec.encode(published)
    assert published.manifest
    assert codec.decode(value, without="manifest") == replace(published, manifest=())
    head = codec.fields_before_lists(value)
    assert (head["run_id"], head["version"], head["digest"]) == (
        published.run_id,
        published.version,
        published.digest,
    )
    for read in (codec.fields_before_lists, lambda broken: codec.decode(broken, without="manifest")):
        with pytest.raises(MalformedDatum):
            read(value[:20])


AT_ONCE = """
import ast, msgspec, sys, threading
import claw_r1.schemas.codec
from claw_r1.schemas.events import CallCaptured
fields, barrier = ast.literal_eval(sys.argv[1]), threading.Barrier(8)
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=lambda: (barrier.wait(), msgspec.convert(fields, CallCaptured))) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
"""


def test_threads_that_read_their_first_event_at_once_end_no_process() -> None:
    """A library that learns a type when it is first asked for took a process with it, once in some thousand starts."""
    command = [sys.executable, "-c", AT_ONCE, repr(codec.as_dict(facts.call("g", "t", "c")))]
    assert [subprocess.run(command, timeout=60, check=False).returncode for _ in range(3)] == [0, 0, 0]


WRITES = """
import json
from claw_r1.schemas import codec
from tests.schemas.examples import EVENTS
for event in EVENTS.values():
    kinds = {name: getattr(kind, "__origin__", None) for name, kind in type(event).__annotations__.items()}
    lists = {name: getattr(event, name) for name, kind in kinds.items() if kind is tuple}
    items = {name: [codec.encode_item(type(event), name, each) for each in many] for name, many in lists.items()}
    assert codec.encode(event, {name: (len(each), each) for name, each in items.items()}) == codec.encode(event)
print(json.dumps({name: codec.encode(event).hex() for name, event in EVENTS.items()}))
"""


@pytest.mark.parametrize("until", [100_000, 100_054, max(OLDER_IDS)])
def test_records_are_written_for_the_version_before(until: int) -> None:
    """By the newest schema that it knows, as it would have written them, also lists whose items are encoded before; an event that
    it does not know by its own."""
    done = subprocess.run(
        [sys.executable, "-c", WRITES],
        env={**os.environ, "CLAW_SCHEMAS_UNTIL": str(until)},
        capture_output=True,
        check=True,
        text=True,
    )
    wrote = {name: bytes.fromhex(digits) for name, digits in json.loads(done.stdout).items()}
    for name, value in wrote.items():
        known = [each for each in KEPT_IDS if each <= until and schema_ids()[each]["name"] == f"claw.{name}"]
        schema_id = max(known, default=current_ids()[f"claw.{name}"])
        assert codec.schema_id_of(value) == schema_id
        assert value == _written(schema_id, codec.as_dict(EVENTS[name]))
        assert type(codec.decode(value)) is EVENT_TYPES[name]


@pytest.mark.parametrize("items", [0, 1, 3, 200])
def test_packed_lists_are_the_bytes_of_the_whole_event(items):
    """In any pieces, of plain values and of records, with fields before, between and behind."""
    ids, offsets = [f"c{number}" * 20 for number in range(items)], [number << 20 for number in range(items)]
    trajectory = TrajectoryRecord(
        group_id="g",
        trajectory_id="t",
        status="open",
        calls=tuple(ids),
        offsets=tuple(offsets),
        branches=7,
        ready=False,
    )
    packed = {
        "calls": (items, [encode_item(TrajectoryRecord, "calls", call_id) for call_id in ids]),
        "offsets": (items, [b"".join(encode_item(TrajectoryRecord, "offsets", offset) for offset in offsets)]),
    }
    assert encode(trajectory, packed) == encode(trajectory)
    member = GroupMember(trajectory_id="t", status="failed", ready=True, return_total=0.5, min_version=3, digest="d")
    group = GroupRecord(group_id="g", declared=True, members=(member,) * items, ready=False)
    one = encode_item(GroupRecord, "members", member)
    assert encode(group, {"members": (items, [one] * items)}) == encode(group)
