"""Records that could not be read or folded, kept byte for byte, with the reason in headers."""

from datetime import UTC, datetime

from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.schemas.topics import DEAD_LETTERS, LARGEST_RECORD_BYTES

MARK = "claw_"
LEFT_OUT = "claw_left_out"
"""In a letter that has no room for its record: how many bytes of it stand at the source alone."""
ROOM_BYTES = 64 << 10
"""The part of the largest record that its frame takes."""
ERROR_CHARACTERS_MAX = 2000
KEPT_BYTES_MAX = 1000
"""The largest header of an earlier letter that is kept: no letter has a larger one but its
error, which is not kept."""


def dead_letter(record: Record, reason: str, error: str, *, reader: str) -> Outgoing:
    """The dead letter of `record`: its own key, value and headers, and ours, which all begin with `claw_`.

    A record that comes from the dead letters (redriven, and failing again) keeps its first source and failure time and
    counts one attempt more. It stays in its partition number, so letters of a key keep their order. A record that our
    headers would make larger than the log takes stays at its source: its letter says so, and has only them.
    """
    before = {name: value for name, value in record.headers if name.startswith(MARK) and len(value) <= KEPT_BYTES_MAX}
    here = {
        "claw_source_topic": record.topic.encode(),
        "claw_source_partition": str(record.partition).encode(),
        "claw_source_offset": str(record.offset).encode(),
        "claw_failed_at": datetime.now(UTC).isoformat().encode(),
    }
    ours = {
        **here,
        **{name: value for name, value in before.items() if name in here},
        "claw_reason": reason.encode(),
        "claw_error": error[:ERROR_CHARACTERS_MAX].encode("utf-8", "backslashreplace"),
        "claw_reader": reader.encode(),
        "claw_attempt": str(_number(before.get("claw_attempt", b"")) + 1).encode(),
    }
    theirs = [(name, value) for name, value in record.headers if not name.startswith(MARK)]
    size = len(record.key or b"") + len(record.value or b"") + sum(len(name) + len(value) for name, value in theirs)
    key, value = record.key, record.value
    if size > LARGEST_RECORD_BYTES - ROOM_BYTES:
        key, value, theirs = None, None, [(LEFT_OUT, str(size).encode())]
    headers = [*theirs, *ours.items()]
    return Outgoing(topic=DEAD_LETTERS, key=key, value=value, headers=headers, partition=record.partition)


def _number(text: bytes) -> int:
    """Headers may come from strangers: what is no number counts as none."""
    return int(text) if text.isdigit() else 0
