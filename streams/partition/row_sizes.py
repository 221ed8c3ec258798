"""Rows that the log takes: what is larger than a record may be is refused before it is written. Pure."""

from claw_r1.datapool.digests import call_digest
from claw_r1.datapool.errors import RecordOverfull
from claw_r1.datapool.fold.bounds import RECORD_BYTES_MAX
from claw_r1.datapool.fold.project import GroupImage, Rows, changes
from claw_r1.datapool.fold.state import Fact, GroupState
from claw_r1.datapool.fold.step import tokens
from claw_r1.datapool.fold.trainable import FOLD_BUG
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import CallCaptured
from claw_r1.schemas.keys import tokens_key

FLAG_BYTES = 1 << 10
"""The bytes that a full row may take more when it is flagged."""
SMALL_CAPTURE_BYTES = RECORD_BYTES_MAX - (256 << 10)
"""The size of a capture up to which the row of its tokens has room for any key, in which a character of an id may take
12 bytes."""
KEY_SHOWN = 200


def writable_changes(before: GroupImage | None, state: GroupState) -> tuple[GroupImage, Rows]:
    """`changes`. Raises RecordOverfull for a row that the log may not take."""
    after, rows = changes(before, state)
    for key, row in rows.items():
        if row is not None:
            _check_size(key.key, row.value, FLAG_BYTES if FOLD_BUG in getattr(row.record, "reasons", ()) else 0)
    return after, rows


def check_tokens(fact: Fact, fact_bytes: int) -> None:
    """Raises RecordOverfull for a capture that was packed so well, or has such ids, that the row of its tokens is too large."""
    if isinstance(fact, CallCaptured) and fact_bytes > SMALL_CAPTURE_BYTES:
        key = tokens_key(fact.group_id, fact.trajectory_id, fact.call_id)
        _check_size(key, encode(tokens(fact, call_digest(fact))))


def _check_size(key: bytes, value: bytes, more: int = 0) -> None:
    size = len(key) + len(value)
    if size > RECORD_BYTES_MAX + more:
        raise RecordOverfull(f"the row {key[:KEY_SHOWN].decode('utf-8', 'replace')} would have {size} bytes")
