"""The frame of a record in a segment of the spool: length, checksum, topic, partition and headers, key, value.

Invariant: a frame that `read_frames` yields is, byte for byte, one that was written whole. A torn tail (a write that a
crash cut short) ends the reading; a damaged frame between whole ones is left out, whatever of it is damaged.
"""

import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import orjson
import structlog

from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.topics import TOPICS

HEAD = struct.Struct(">III")  # bytes of meta, bytes after meta, crc32 of both
META_BEGINS = b'{"topic":"'  # by which a frame behind a damaged one is searched
META_BYTES_MAX = 1 << 20
BODY_BYTES_MAX = 64 << 20
BY_NAME = {topic.name: topic for topic in TOPICS}
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Spooled:
    """A record of the spool. `behind`: it must enter the log after every earlier record with its key."""

    item: Outgoing
    behind: bool
    at_s: float
    """UTC seconds when it was spooled."""


def frame(item: Outgoing, *, behind: bool) -> bytes:
    """One record as bytes."""
    key, value = item.key or b"", item.value or b""
    meta = orjson.dumps(
        {
            "topic": item.topic.name,
            "behind": behind,
            "at_s": time.time(),
            "partition": item.partition,
            "key": None if item.key is None else len(key),
            "value": None if item.value is None else len(value),
            "headers": [(name, content.decode()) for name, content in item.headers],
        }
    )
    checksum = zlib.crc32(value, zlib.crc32(key, zlib.crc32(meta)))
    return b"".join((HEAD.pack(len(meta), len(key) + len(value), checksum), meta, key, value))


def read_frames(path: Path) -> Iterator[Spooled]:
    """The whole records of a segment, oldest first."""
    start, size = 0, path.stat().st_size
    with path.open("rb") as segment:
        while start < size:
            content = _content(segment)
            if content is not None and _is_intact(*content):
                yield _spooled(content[0], content[1])
            else:
                following = _following(segment, start)
                if content is None and following is None:
                    log.warning("spool_tail_cut", segment=path.name, offset=start)
                else:
                    log.error("spool_frame_damaged", segment=path.name, offset=start)
                segment.seek(size if following is None else following)
            start = segment.tell()


def _following(segment: BinaryIO, start: int) -> int | None:
    """The start of the next intact frame behind a bad one that was just read. Where the lengths in its head, which may be what
    is damaged, lead to none, the rest is searched."""
    if _begins_at(segment, end := segment.tell()):
        return end
    segment.seek(start)
    rest = segment.read()
    mark = rest.find(META_BEGINS, HEAD.size + 1)
    while mark >= 0 and not _begins_at(segment, start + mark - HEAD.size):
        mark = rest.find(META_BEGINS, mark + 1)
    return start + mark - HEAD.size if mark >= 0 else None


def _begins_at(segment: BinaryIO, start: int) -> bool:
    segment.seek(start)
    content = _content(segment)
    return content is not None and _is_intact(*content)


def _content(segment: BinaryIO) -> tuple[bytes, bytes, int] | None:
    """Meta, body and checksum; None when the frame is not whole. Zeros, as a crash may leave them, are no frame."""
    head = segment.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    meta_bytes, body_bytes, checksum = HEAD.unpack(head)
    if not 0 < meta_bytes <= META_BYTES_MAX or body_bytes > BODY_BYTES_MAX:
        return None
    meta, body = segment.read(meta_bytes), segment.read(body_bytes)
    return (meta, body, checksum) if len(meta) == meta_bytes and len(body) == body_bytes else None


def _is_intact(meta: bytes, body: bytes, checksum: int) -> bool:
    return zlib.crc32(body, zlib.crc32(meta)) == checksum


def _spooled(meta: bytes, body: bytes) -> Spooled:
    fields = orjson.loads(meta)
    split = fields["key"] or 0
    item = Outgoing(
        topic=BY_NAME[fields["topic"]],
        key=None if fields["key"] is None else body[:split],
        value=None if fields["value"] is None else body[split:],
        headers=[(name, content.encode()) for name, content in fields["headers"]],
        partition=fields["partition"],
    )
    return Spooled(item, fields["behind"], fields["at_s"])
