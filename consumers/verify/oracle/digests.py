"""Digests of records' content: SHA-256 as hexadecimal text, over parts framed by their lengths."""

import hashlib
import struct
from collections.abc import Iterable, Sequence

from claw_r1.schemas.events import CallCaptured


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def framed(parts: Iterable[bytes]) -> str:
    """The digest of several parts; each is preceded by its length as eight bytes, little-endian."""
    return sha(b"".join(struct.pack("<q", len(part)) + part for part in parts))


def joined(pairs: Sequence[tuple[str, str]]) -> str:
    """The digest of (name, digest) pairs, in the order of the names."""
    return framed(text.encode() for pair in sorted(pairs) for text in pair)


def tokens_digest(call: CallCaptured) -> str:
    """Returns the digest of a call's training data: prompt, response ids, log-probabilities, and which version sampled
    which of them."""
    parts = [call.prompt.full_digest.encode(), call.response_ids, call.response_logprobs]
    for span in call.spans:
        parts += [span.run_id.encode(), struct.pack("<qqq", span.version, span.start, span.end)]
    return framed(parts)
