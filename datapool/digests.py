"""Digests that tie rows of different topics together. All are sha256 in lower-case hex.

Every variable-length part is preceded by its length, so that no two inputs run into the same bytes.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import CallCaptured, Event, VersionSpan

LENGTH = struct.Struct("<q").pack
SPAN = struct.Struct("<qqq")


def step_digest(prompt_digest: str, response_ids: bytes, response_logprobs: bytes, spans: Sequence[VersionSpan]) -> str:
    """Digest of what training reads of a call: `StepRecord.digest`, `PlannedStep.digest`.

    prompt_digest: sha256 hex of the whole prompt's packed ids (`Edge.full_digest`).
    """
    parts = [prompt_digest.encode(), response_ids, response_logprobs]
    for span in spans:
        parts += [span.run_id.encode(), SPAN.pack(span.version, span.start, span.end)]
    return _sha256(parts)


def call_digest(call: CallCaptured) -> str:
    """`step_digest` of a fact."""
    return step_digest(call.prompt.full_digest, call.response_ids, call.response_logprobs, call.spans)


@lru_cache(maxsize=1 << 13)  # the fold asks for each edge of a trajectory at each flush, and hashing is most of it
def base_digest(keep: int, prompt_length: int, prompt_digest: str, response_digest: str) -> str:
    """`CallCaptured.base_digest`: what a prompt edge needs of its base to be put together, and nothing more.

    An edge that keeps ids of the base's prompt only holds with any attempt of that prompt; one that keeps ids of the
    response, too, needs that very response. Log-probabilities and spans do not matter here.

    keep, prompt_length: in ids. prompt_digest, response_digest: sha256 hex of the base's packed ids.
    """
    return prompt_digest if keep <= prompt_length else _sha256([prompt_digest.encode(), response_digest.encode()])


def record_digest(record: Event) -> str:
    """Digest of a pool record: of its wire bytes, as written by the current schema."""
    return row_digest(encode(record))


def row_digest(value: bytes) -> str:
    """sha256 hex of bytes as they stand in the log."""
    return hashlib.sha256(value).hexdigest()


def rows_digest(rows: Iterable[tuple[str, str]]) -> str:
    """Over (id, `record_digest`) of rows, in order of id: `TrajectoryRecord.digest` over its steps by call_id,
    `GroupRecord.digest` over its members by trajectory_id."""
    return row_digest(b"".join([tie(*row) for row in sorted(rows)]))


def ties_digest(pieces: Iterable[bytes]) -> str:
    """`rows_digest` of rows whose ties are joined already, in order of id."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def tie(row_id: str, digest: str) -> bytes:
    """The part of one row in `rows_digest`."""
    return _delimited([part.encode("utf-8", "surrogatepass") for part in (row_id, digest)])


def _sha256(parts: Iterable[bytes]) -> str:
    return row_digest(_delimited(parts))


def _delimited(parts: Iterable[bytes]) -> bytes:
    return b"".join([LENGTH(len(part)) + part for part in parts])
