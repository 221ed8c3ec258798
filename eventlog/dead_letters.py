"""Records that could not be read or folded, kept byte for byte, with the reason in headers."""

from datetime import UTC, datetime

from eventlog.records import Outgoing, Record
from schemas.topics import DEAD_LETTERS

MARK = "claw_"


def dead_letter(record: Record, reason: str, error: str, *, reader: str) -> Outgoing:
    """The dead letter of `record`: its own key, value and headers, and ours, which all begin with `claw_`.

    A record that comes from the dead letters (redriven, and failing again) keeps its first source and failure time and
    counts one attempt more. It stays in its partition number, so letters of a key keep their order.
    """
    before = {name: value for name, value in record.headers if name.startswith(MARK)}
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
        "claw_error": error.encode(),
        "claw_reader": reader.encode(),
        "claw_attempt": str(_number(before.get("claw_attempt", b"")) + 1).encode(),
    }
    theirs = [(name, value) for name, value in record.headers if not name.startswith(MARK)]
    return Outgoing(
        topic=DEAD_LETTERS,
        key=record.key,
        value=record.value,
        headers=[*theirs, *ours.items()],
        partition=record.partition,
    )


def _number(text: bytes) -> int:
    """Headers may come from strangers: what is no number counts as none."""
    return int(text) if text.isdigit() else 0
