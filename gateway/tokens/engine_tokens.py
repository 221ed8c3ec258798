"""The data that a worker's plugin hands over besides the reply: tokens, log-probabilities, versions, sampling parameters.

The format stands in `rollout/plugin/generation.py`. It comes as the last member of a JSON reply, whose length a header
tells, or as a comment in a stream. Invariant: no text of a model can be taken for it, since a client's header never
reaches the reply's, and a line of a stream that begins with a colon is never the engine's data.
"""

from typing import Any, NamedTuple

import msgspec

from claw_r1.gateway.tokens.packing import are_ids, are_logprobs
from claw_r1.gateway.tokens.version_spans import spans_of
from claw_r1.gateway.upstream.http_upstream import UpstreamReply
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.events import Sampling, VersionSpan
from claw_r1.schemas.http import TOKENS_COMMENT, TOKENS_HEADER, TOKENS_MEMBER

MEMBER = b"," + TOKENS_MEMBER.encode()
COMMENT = TOKENS_COMMENT.encode()
INVALID = "tokens_invalid"


class _Choice(msgspec.Struct):
    ids: bytes
    logprobs: bytes
    spans: list[Any]
    """Rows, not yet believed."""
    finish: str | None


class _Generation(msgspec.Struct):
    prompt: bytes
    sampling: Sampling
    choices: list[_Choice]
    cached: int | None = None


GENERATIONS = msgspec.json.Decoder(list[_Generation])


class Sampled(NamedTuple):
    """One response of n tokens, as the engine sampled it. Ids are packed int32, log-probabilities float32 [n]."""

    prompt_ids: bytes
    ids: bytes
    logprobs: bytes
    spans: tuple[VersionSpan, ...]
    finish_reason: str | None
    """The engine's: stop, length, abort; None: it did not come to an end."""
    sampling: Sampling
    cached_tokens: int | None
    missing: tuple[str, ...]
    """The faults of the data, in the codes of `Integrity.missing`."""


class EngineTokens(NamedTuple):
    """All responses of one reply, in the order of their choices. `missing` says why there are none."""

    responses: tuple[Sampled, ...] = ()
    missing: tuple[str, ...] = ()

    def followed_by(self, other: "EngineTokens") -> "EngineTokens":
        """A stream hands over in parts."""
        return EngineTokens(self.responses + other.responses, self.missing + other.missing)


def split_tokens(reply: UpstreamReply) -> tuple[bytes, EngineTokens]:
    """The reply as the engine wrote it, and what its worker handed over; nothing where the worker does not."""
    body, length = reply.body, reply.headers.get(TOKENS_HEADER, "")
    if not length.isdecimal():
        return body, EngineTokens()
    start = len(body) - int(length) - 1
    if start <= 0 or not body.startswith(MEMBER, start):
        return body, EngineTokens(missing=(INVALID,))
    return body[:start] + b"}", parse(body[start + len(MEMBER) : -1])


def parse(raw: bytes) -> EngineTokens:
    """A list of generations; nothing, and the word for it, where it is none."""
    try:
        generations = GENERATIONS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return EngineTokens(missing=(INVALID,))
    return EngineTokens(tuple([_sampled(each, choice) for each in generations for choice in each.choices]))


def _sampled(generation: _Generation, choice: _Choice) -> Sampled:
    missing = []
    if not (generation.prompt and are_ids(generation.prompt)):
        missing.append("prompt_ids")
    ids = choice.ids if are_ids(choice.ids) else b""
    if len(ids) < len(choice.ids):
        missing.append("token_ids")
    if len(choice.logprobs) != len(ids) or not are_logprobs(choice.logprobs):
        missing.append("logprobs")
    versions = spans_of(choice.spans, len(ids) // ITEM_BYTES)
    if versions.missing:
        missing.append(versions.missing)
    return Sampled(
        prompt_ids=generation.prompt if "prompt_ids" not in missing else b"",
        ids=ids,
        logprobs=choice.logprobs if "logprobs" not in missing else b"",
        spans=versions.spans,
        finish_reason=choice.finish,
        sampling=generation.sampling,
        cached_tokens=generation.cached,
        missing=tuple(missing),
    )
