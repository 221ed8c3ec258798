"""`--into TOPIC|FILE`: where replayed records go.

Invariant: a file appears whole or not at all; a topic gets the original keys, bytes and headers, in the order of each key.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import orjson

from claw_r1.claw.errors import CannotRun
from claw_r1.eventlog.errors import TopicMissing
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import TOPICS, Topic

OUTSTANDING_MAX = 5_000


def is_file(target: str) -> bool:
    """A name with a `/`, or one that ends with .jsonl, is a file's; any other is a topic's."""
    return "/" in target or target.endswith(".jsonl")


def into_file(records: Iterable[Record], path: Path, as_object: Callable[[Record], JsonDict]) -> int:
    """Writes one line per record; how many. An older file of the name is replaced at the end. Raises CannotRun."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with partial.open("wb") as file:
            for count, record in enumerate(records, 1):  # noqa: B007 - the last count is the result
                file.write(orjson.dumps(as_object(record), option=orjson.OPT_APPEND_NEWLINE))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise CannotRun(f"{path} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def target_topic(settings: LogSettings, name: str, *, force: bool) -> tuple[LogSettings, Topic, int]:
    """A topic that exists, the settings under which it has that name, and its partitions. Raises CannotRun."""
    prefix, dot, rest = (settings.prefix, ".", name.removeprefix(f"{settings.prefix}."))
    if not name.startswith(f"{settings.prefix}."):
        prefix, dot, rest = name.partition(".")
    if not (prefix and dot and rest):
        raise CannotRun(f"--into {name}: a topic is PREFIX.NAME; a file has a `/` or ends with .jsonl")
    _check_allowed(name, rest, force=force)
    there = settings.model_copy(update={"prefix": prefix})
    topic = Topic(name=rest, key="", policy="delete", records=(), writers=(), readers=())
    try:
        return there, topic, len(end_offsets(there, [topic]))
    except TopicMissing as missing:
        raise CannotRun(f"--into {name}: the broker has no such topic; create it first") from missing


def _check_allowed(name: str, rest: str, *, force: bool) -> None:
    """Facts are added by force only; what one owner alone writes under a fence is never added."""
    for topic in TOPICS:
        if rest != topic.name and not (topic.derived and rest.startswith("datapool.")):
            continue
        if topic.transactional or topic.derived:
            raise CannotRun(f"--into {name}: only {', '.join(topic.writers)} may write there, under a fence")
        if not force:
            raise CannotRun(f"--into {name}: readers trust the catalogue's records; use --force if you mean it")


def into_topic(records: Iterable[Record], settings: LogSettings, topic: Topic, partitions: int) -> int:
    """Appends the records; how many, once all are acknowledged. Raises LogError."""
    waiting: deque[Future[Position]] = deque()
    count = 0
    with closing(EventProducer(settings)) as producer:
        for count, record in enumerate(records, 1):  # noqa: B007 - the last count is the result
            # With a key its murmur2 decides.
            place = record.partition % partitions if record.key is None else None
            item = Outgoing(topic=topic, key=record.key, value=record.value, headers=record.headers, partition=place)
            waiting.append(producer.produce(item))
            if len(waiting) >= OUTSTANDING_MAX:
                waiting.popleft().result()
        for future in waiting:
            future.result()
    return count
