"""What protocols share whose tokens a worker hands over by itself: replies are passed on, not taken apart.

A protocol says how its whole reply looks (`outlines`), how a stream adds up to one (`assembled`) and which event of it is
the last. An engine that hands nothing over is served all the same: its calls are stored, not trainable, and say why.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from gateway.call_protocol import CallRequest, EngineReply, ReplyStream
from gateway.errors import GatewayError, UpstreamBroken
from gateway.foreign_json import Json, dumps, loads_shallow
from gateway.tokens.handed_over import COMMENT, HandedOver, cut, parse
from gateway.tokens.reply import Outline, reply_of
from gateway.tokens.sse import Splitter, data_of
from gateway.upstream.pool import UpstreamReply
from schemas.envelopes import now_us
from schemas.events import Usage

OURS = b": claw."
"""What comments of our workers begin with."""
CHUNK_INVALID, STREAM_ERROR, STREAM_END = "chunk_invalid", "stream_error", "stream_end"


class PackedProtocol(ABC):
    """The base of such a protocol; together with `parse`, `error` and `error_message` a `CallProtocol`."""

    stream_type = "text/event-stream"
    last: bytes
    """Stands in the last event of a stream; what else holds it is looked at closely."""
    first_token: re.Pattern[bytes]
    """Matches an event with something sampled in it."""

    @abstractmethod
    def outlines(self, fields: dict[str, Json]) -> list[Outline]:
        """The choices of a whole reply. Raises UpstreamBroken when it is none of this protocol."""

    @abstractmethod
    def assembled(self, events: Sequence[dict[str, Json]]) -> dict[str, Json] | None:
        """The whole reply that these data of a stream add up to, as if it had not been streamed; None: nothing came."""

    @abstractmethod
    def is_last(self, event: bytes) -> bool:
        """Whether this event is the end of its stream."""

    @abstractmethod
    def error_event(self, error: GatewayError) -> bytes:
        """The last bytes of a stream that is broken off."""

    def parse_reply(self, reply: UpstreamReply, request: CallRequest) -> EngineReply:  # noqa: ARG002  # others need it
        """Understand a whole reply of status 200. Raises UpstreamBroken when it makes no sense."""
        body, handed_over = cut(reply)
        try:
            fields = loads_shallow(body)
        except ValueError as broken:
            raise UpstreamBroken("the engine's reply is not valid JSON", code="upstream_bad_reply") from broken
        if not isinstance(fields, dict):
            raise UpstreamBroken("the engine's reply is no JSON object", code="upstream_bad_reply")
        outlines = self.outlines(fields)
        if len(outlines) == 1:
            outlines = [outlines[0]._replace(body=body)]
        return reply_of(body, outlines, handed_over, usage=fields.get("usage"))

    def open_stream(self, request: CallRequest) -> ReplyStream:  # noqa: ARG002  # others need it
        """A stream that is about to arrive."""
        return PackedStream(self)


class PackedStream:
    """One stream (a `ReplyStream`): passed on as it comes, read when it is over."""

    def __init__(self, protocol: PackedProtocol) -> None:
        self.over = False
        self.first_token_us: int | None = None
        self._protocol, self._splitter, self._handed_over = protocol, Splitter(), HandedOver()
        self._passed: list[bytes] = []
        self._held: list[bytes] = []

    def feed(self, piece: bytes) -> bytes:
        # Nearly always a piece is whole events in the middle of the stream, and nothing has to be done with it.
        usual = not self.over and self._splitter.is_empty and piece.endswith(b"\n\n")
        if not usual or self._protocol.last in piece or OURS in piece:
            piece = b"".join([self._pass(event) for event in self._splitter.feed(piece)])
        return self._give_out(piece)

    @property
    def held(self) -> bytes:
        return b"".join(self._held) + self._splitter.rest

    @property
    def whole(self) -> bytes:
        return b"".join(self._passed) + self.held

    def reply(self, *, interrupted: bool) -> EngineReply:
        ended = self.over and not interrupted
        events, flaws = read_events(Splitter().feed(self.whole))
        whole = self._protocol.assembled(events)
        if whole is None:
            return no_choices(ended)
        body = dumps(whole)
        outlines = self._protocol.outlines(whole)
        if len(outlines) == 1:
            outlines = [outlines[0]._replace(body=body)]
        flaws = flaws if ended else (*flaws, STREAM_END)
        return reply_of(body, outlines, self._handed_over, usage=whole.get("usage"), ended=ended, flaws=flaws)

    def error(self, error: GatewayError) -> bytes:
        return self._protocol.error_event(error)

    def _give_out(self, passed: bytes) -> bytes:
        if passed:
            self._passed.append(passed)
            if self.first_token_us is None and self._protocol.first_token.search(passed):
                self.first_token_us = now_us()
        return passed

    def _pass(self, event: bytes) -> bytes:
        if event.startswith(OURS):
            if event.startswith(COMMENT):
                self._handed_over = self._handed_over.followed_by(parse(event[len(COMMENT) :].strip()))
            return b""
        self.over = self.over or (self._protocol.last in event and self._protocol.is_last(event))
        if self.over:
            self._held.append(event)
            return b""
        return event


def read_events(events: Iterable[bytes]) -> tuple[list[dict[str, Json]], tuple[str, ...]]:
    """The data of a stream's events, and the words for what is none, or says that the engine failed."""
    data: list[dict[str, Json]] = []
    flaws: dict[str, None] = {}
    for event in events:
        raw = data_of(event).strip()
        if not raw or raw == b"[DONE]":
            continue
        try:
            fields = loads_shallow(raw)
        except ValueError:
            fields = None
        if isinstance(fields, dict):
            data.append(fields)
            flaws |= {STREAM_ERROR: None} if fields.get("error") is not None or fields.get("type") == "error" else {}
        else:
            flaws[CHUNK_INVALID] = None
    return data, tuple(flaws)


def no_choices(ended: bool) -> EngineReply:
    """A stream that broke before its first choice."""
    return EngineReply(b"", b"", (), Usage(prompt_tokens=0, completion_tokens=0), ended)
