"""One record as it stands on the log, and the command that prints it elsewhere."""

import shlex
from contextlib import suppress
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.routes.parameters import Source, trajectory_of
from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.dashboard.tokens.facts import position_of
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Watching
from claw_r1.eventlog.errors import LogError, Retryable
from claw_r1.eventlog.records import Position, Record
from claw_r1.schemas.codec import event_name, schema_id_of
from claw_r1.schemas.errors import EmptyValue, MalformedDatum, UndecodableRecord, UnknownSchemaId
from claw_r1.schemas.events import Event
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import KEYS

JSON_BYTES_MAX = 2_000_000
PROBLEMS = (
    (EmptyValue, "A tombstone: it removes the row of this key."),
    (
        UnknownSchemaId,
        "Its {} is none that this version knows: a newer version of claw wrote it, so update this one to read it.",
    ),
    (MalformedDatum, "Its bytes are not what its schema says ({}); `claw dlq` lists what readers put aside."),
    (UndecodableRecord, "It is no event in the wire format ({}): whatever wrote it, it was not claw."),
)
"""The reasons why a value is no event: the first kind that fits."""
routes = APIRouter(prefix="/api/v1", tags=["record"])
TopicName = Annotated[str | None, Query(max_length=255, description="full name, as `claw topics describe` has it")]
PartitionQuery = Annotated[int | None, Query(ge=0, le=1_000_000)]
Offset = Annotated[int | None, Query(ge=0, lt=1 << 62)]
OptionalId = Annotated[str | None, Query(max_length=512)]


@routes.get(
    "/record",
    summary="One record by topic, partition and offset, or the captured call (g, t, c), as it is.",
)
def record(
    source: Source, _: Watching, topic: TopicName = None, partition: PartitionQuery = None, offset: Offset = None,
    g: OptionalId = None, t: OptionalId = None, c: OptionalId = None,
) -> Response:  # fmt: skip
    """`consumer`: the command that prints its bytes. `problem`: why there is no `value`."""
    if g and t and c:
        place = position_of(source, trajectory_of(source, g, t), c)
    elif topic and partition is not None and offset is not None:
        place = checked_place(source, Position(topic, partition, offset))
    else:
        raise PageProblem(422, "name a record: topic, partition and offset, or a captured call by g, t and c")
    stored = stored_record(source, place)
    event, problem = _event(stored)
    return SafeJson(
        {
            "topic": place.topic,
            "partition": place.partition,
            "offset": place.offset,
            "timestamp_ms": stored.timestamp_ms,
            "key": _text(stored.key),
            "headers": [(name, _text(value)) for name, value in stored.headers],
            **_schema(stored),
            **json_value(None if event is None else as_plain(event), problem),
            "size": len(stored.value or b""),
            "consumer": _console_consumer(place),
        }
    )


def checked_place(source: DashboardSource, place: Position) -> Position:
    """Raises PageProblem for a place that no record can have, before the log is asked."""
    settings = source.log.settings
    catalogue = settings.catalogue()
    names = {catalogue.name(topic): topic for topic in catalogue}
    if place.topic not in names:
        raise PageProblem(404, f"no topic {place.topic} in the catalogue; there are: {', '.join(names)}")
    if names[place.topic] is KEYS:
        raise PageProblem(403, "records of keys are not shown: `claw keys list` names them")
    if place.partition >= settings.partitions:
        raise PageProblem(404, f"{place.topic} has {settings.partitions} partitions, from 0 on")
    return place


def stored_record(source: DashboardSource, place: Position) -> Record:
    """Raises PageProblem where there is none."""
    try:
        return source.records([place])[place]
    except Retryable:
        raise
    except LogError as gone:
        why = "it was not written yet, retention or compaction took it, or a transaction's mark stands there"
        raise PageProblem(404, f"{gone}: {why}") from gone


def _event(stored: Record) -> tuple[Event | None, str | None]:
    """The event, or a sentence with the reason for none."""
    try:
        return stored.event(), None
    except UndecodableRecord as broken:
        return None, next(sentence for kind, sentence in PROBLEMS if isinstance(broken, kind)).format(broken)


def _schema(stored: Record) -> JsonDict:
    schema: JsonDict = {"schema_id": None, "schema": None}
    with suppress(UndecodableRecord):
        schema["schema_id"] = schema_id_of(stored.value)
        schema["schema"] = event_name(stored.value)
    return schema


def json_value(plain: JsonDict | None, problem: str | None) -> JsonDict:
    """`value` as `claw replay` prints it, with null for what is no finite number, or null and a `problem`."""
    try:
        value = orjson.dumps(plain)
    except orjson.JSONEncodeError as error:  # it reads deeper nesting than it writes
        value, problem = b"null", f"Its value cannot be shown as JSON ({error})."
    if len(value) > JSON_BYTES_MAX:
        value, problem = b"null", f"{len(value):,} bytes of JSON are too many for a page: `claw replay` prints them."
    return {"value": orjson.loads(value), "problem": problem}


def _console_consumer(place: Position) -> str:
    """The command that prints the record by Kafka's own tool: one command in any shell."""
    return (
        f"claw broker tool console-consumer --topic {shlex.quote(place.topic)} --partition {place.partition}"
        f" --offset {place.offset} --max-messages 1"
        " --formatter-property print.key=true --formatter-property print.headers=true"
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
