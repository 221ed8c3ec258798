"""Policy versions of sampled tokens, from the header of the spans plugin on the worker.

`x-claw-weight-versions: {"0": [["run/3", 0, 36], ["run/4", 36, 50]]}`: choice index -> [label, start, end). A label is
`<run_id>/<version>`, set by the supervisor for the weights that are really loaded.
"""

from typing import Any, NamedTuple

import orjson

from claw_r1.schemas.events import VersionSpan
from claw_r1.schemas.http import parse_version_label

RawSpans = dict[str, Any]  # parsed header, not yet believed


class Spans(NamedTuple):
    """Spans that tile the response, or none and the word for what is wrong."""

    spans: tuple[VersionSpan, ...] = ()
    missing: str | None = None


def parse_header(value: str | None) -> RawSpans:
    """The header as an object; empty when it is absent or unreadable."""
    try:
        parsed = orjson.loads(value) if value else {}
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def spans_of(raw: RawSpans, choice: int, length: int) -> Spans:
    """Spans of one choice with `length` response tokens. They tile [0, length) or are left out with a reason."""
    if not length:
        return Spans()
    rows = raw.get(str(choice))
    if not isinstance(rows, list):
        return Spans(missing="spans")
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
