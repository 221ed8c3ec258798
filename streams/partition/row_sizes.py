"""Rows that the log accepts: rows above the record limit are refused before they are written. Pure."""

from claw_r1.datapool.errors import RecordOverfull
from claw_r1.datapool.fold.bounds import RECORD_BYTES_MAX
from claw_r1.datapool.fold.project import GroupImage, Rows, changes
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.fold.trainable import FOLD_BUG

FLAG_BYTES = 1 << 10
"""The bytes that a full row may take more when it is flagged."""
KEY_SHOWN = 200


def writable_changes(before: GroupImage | None, state: GroupState) -> tuple[GroupImage, Rows]:
    """`changes`. Raises RecordOverfull for a row that the log may not take."""
    after, rows = changes(before, state)
    for key, row in rows.items():
        if row is not None:
            _check_size(key.key, row.value, FLAG_BYTES if FOLD_BUG in getattr(row.record, "reasons", ()) else 0)
    return after, rows


def _check_size(key: bytes, value: bytes, more: int = 0) -> None:
    size = len(key) + len(value)
    if size > RECORD_BYTES_MAX + more:
        raise RecordOverfull(f"the row {key[:KEY_SHOWN].decode('utf-8', 'replace')} would have {size} bytes")
