"""Policy versions of sampled tokens, as the worker's plugin writes them: `[["run/3", 0, 36], ["run/4", 36, 50]]`.

A row is [label, start, end). A label is `<run_id>/<version>`, set by the supervisor for the weights that are really loaded.
"""

from typing import Any, NamedTuple

from claw_r1.schemas.events import VersionSpan
from claw_r1.schemas.http import parse_version_label


class Spans(NamedTuple):
    """Spans that tile the response, or none and the word for what is wrong."""

    spans: tuple[VersionSpan, ...] = ()
    missing: str | None = None


def spans_of(rows: list[Any], length: int) -> Spans:  # Any: not yet believed
    """Spans of a response with `length` tokens. They tile [0, length) or are left out with a reason."""
    if not length:
        return Spans()
    spans: list[VersionSpan] = []
    end = 0
    for row in rows:
        if not _is_row(row) or row[1] != end or row[2] <= end:
            return Spans(missing="spans")
        label = parse_version_label(row[0])
        if label is None:
            return Spans(missing="version_unknown")
        end = row[2]
        spans.append(VersionSpan(run_id=label[0], version=label[1], start=row[1], end=end))
    return Spans(tuple(spans)) if end == length else Spans(missing="spans")


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) and type(row[1]) is type(row[2]) is int
