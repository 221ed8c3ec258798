"""The seam between the gateway and the protocols that model calls come in.

A `CallProtocol` reads what a client asks for and what an engine answers, and writes errors as its clients read them.
Capture, retries, routing and connections know a call by the neutral values of this module only. Which protocols are
served, and under which paths, stands in `protocols.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from claw_r1.gateway.callers.caller_fields import Hints
from claw_r1.gateway.errors import GatewayError
from claw_r1.gateway.upstream.http_upstream import UpstreamReply
from claw_r1.schemas.events import Sampling, Usage, VersionSpan


class CallRequest(NamedTuple):
    """A client's request as the gateway understood it."""

    body: bytes
    """The body that the client wrote."""
    forwarded: bytes
    """The body that engines get."""
    model: str | None
    sampling: Sampling
    """The temperature and the limit as the client asked for them, for engines that do not
    hand over what they used."""
    stream: bool = False
    adapted: tuple[str, ...] = ()
    """The changes of `forwarded` against the client's body, in the codes of `CallCaptured.adapted`."""
    missing: tuple[str, ...] = ()
    """The parts that every reply to it will lack, in the codes of `Integrity.missing`."""
    previous: str | None = None
    """The reply of this trajectory that it goes on from, by its id."""
    stored: bool = False
    """A later request may go on from its reply."""
    hints: Hints = Hints()
    """The hints of its fields about the caller."""


@dataclass(slots=True, kw_only=True)
class Choice:
    """One sampled response of n tokens. Ids are packed int32 [n], log-probabilities float32 [n]."""

    index: int
    response_ids: bytes
    response_logprobs: bytes
    spans: tuple[VersionSpan, ...]
    """The spans tile [0, n), or are left out."""
    finish_reason: str | None
    missing: tuple[str, ...]
    """The parts that the call lacks, in the codes of `Integrity.missing`."""
    aborted: bool
    """The response has no end: the engine or the client gave up, or the stream broke."""
    body: bytes
    """The reply as the client saw it, with this choice alone."""
    prompt_ids: bytes | None = None
    """Packed, of a choice whose prompt is not the reply's."""
    sampling: Sampling | None = None
    """The sampling parameters that the engine reports; None: as the request was understood."""


class EngineReply(NamedTuple):
    """A reply of an engine, understood."""

    body: bytes
    """The body that the client gets."""
    prompt_ids: bytes
    """Packed int32; empty where the engine gave none. Of several prompts, the first."""
    choices: tuple[Choice, ...]
    """Empty only for a stream that broke before its first choice."""
    usage: Usage
    ended: bool = True
    """The engine brought it to its end: a stream without that is broken off."""

    @property
    def spans(self) -> tuple[VersionSpan, ...]:
        """The spans of all choices."""
        return tuple([span for choice in self.choices for span in choice.spans])


class ReplyStream(Protocol):
    """One streamed reply on its way through: fed with the engine's bytes, it gives out what the client may have now.

    Invariant: the end of the stream is held back until its call is captured.
    """

    over: bool
    """The engine wrote the end."""
    first_token_us: int | None

    def feed(self, piece: bytes) -> bytes:
        """Returns the bytes that the client gets now."""

    @property
    def held(self) -> bytes:
        """The end of the stream, for a client that may have it."""

    @property
    def whole(self) -> bytes:
        """All that the client sees of a stream that came to its end."""

    @property
    def behind(self) -> bool:
        """Enough has passed to be added up now, and not at the end."""

    def add_up(self) -> None:
        """Add up some of what has passed; where it is still behind, others shall have a turn before the next."""

    def reply(self, *, interrupted: bool) -> EngineReply:
        """Returns the reply that the stream adds up to. interrupted: it was broken off, by the engine, the client or us."""

    def error(self, error: GatewayError) -> bytes:
        """The last bytes of a stream that is broken off, as this protocol's clients read them."""


class CallProtocol(Protocol):
    """One protocol of model calls, without state."""

    name: str
    """In metrics."""
    path: str
    """The path of the engine's route."""
    stream_type: str
    """The beginning of a streamed reply's content type."""

    def parse(self, body: bytes) -> CallRequest:
        """Understand a request. Raises InvalidRequest with the field at fault."""

    def parse_reply(self, reply: UpstreamReply) -> EngineReply:
        """Understand a whole reply of status 200. Raises UpstreamBroken when it makes no sense."""

    def open_stream(self) -> ReplyStream:
        """A stream that is about to arrive; its connection limits its size."""

    def error(self, error: GatewayError) -> bytes:
        """The body of an error, as this protocol's clients read it."""

    def error_message(self, body: bytes) -> str | None:
        """The message in an engine's error; None for a body that is no error of this protocol."""


class EarlierCall(NamedTuple):
    """An earlier call, as a request that goes on from its reply needs it."""

    request: bytes
    """The request that its client wrote."""
    reply: bytes
    """Whole, also where it was streamed."""
    previous: str | None
    """The reply that it goes on from itself."""


@runtime_checkable
class ContinuedProtocol(CallProtocol, Protocol):
    """A protocol whose requests may name an earlier reply instead of repeating the conversation."""

    def reply_id(self, reply: bytes) -> str | None:
        """By what a later request names this whole reply; None where it cannot."""

    def continued(self, request: CallRequest, turns: Sequence[EarlierCall] | None) -> CallRequest:
        """The request with the conversation so far, the earliest turn first. Raises NotFound where `turns` is None."""
