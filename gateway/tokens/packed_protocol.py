"""The common part of the protocols whose tokens a worker hands over by itself: replies are passed on, not taken apart.

A protocol says how its whole reply looks (`outlines`), how a stream adds up to one (`assembly`) and which event of it
is the last. Invariant: a stream is added up while it passes, some at a time, so neither its end nor a piece of it,
however long, holds the loop for longer than that takes. An engine that hands nothing over also works: its calls are
stored, not trainable, with the reason.
"""

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from claw_r1.gateway.call_protocol import EngineReply, ReplyStream
from claw_r1.gateway.errors import GatewayError, UpstreamBroken
from claw_r1.gateway.foreign_json import dumps, loads_shallow
from claw_r1.gateway.tokens.engine_tokens import COMMENT, EngineTokens, parse, split_tokens
from claw_r1.gateway.tokens.reply import Outline, reply_of
from claw_r1.gateway.tokens.sse import Splitter, data_of
from claw_r1.gateway.upstream.http_upstream import UpstreamReply
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import Usage
from claw_r1.schemas.json_values import Json

OURS = b": claw."
"""The beginning of our workers' comments."""
CHUNK_INVALID, STREAM_ERROR, STREAM_END = "chunk_invalid", "stream_error", "stream_end"


READ_BYTES = 32 << 10
"""The bytes of a stream that are added up at once: some 150 events, about two milliseconds."""


class Assembly(Protocol):
    """The sum of the events of one stream."""

    def take(self, event: dict[str, Json]) -> None:
        """The data of the next event."""

    def whole(self) -> dict[str, Json] | None:
        """The whole reply, as if it had not been streamed; None: nothing came."""


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
    def assembly(self) -> Assembly:
        """Returns the assembly of a stream that begins."""

    @abstractmethod
    def is_last(self, event: bytes) -> bool:
        """Returns whether this event is the end of its stream."""

    @abstractmethod
    def error_event(self, error: GatewayError) -> bytes:
        """The last bytes of a stream that is broken off."""

    def is_whole(self, outlines: list[Outline]) -> bool:  # noqa: ARG002  # others need it
        """Returns whether a stream that ended without its last event is whole all the same."""
        return False

    def parse_reply(self, reply: UpstreamReply) -> EngineReply:
        """Understand a whole reply of status 200. Raises UpstreamBroken when it makes no sense."""
        body, engine_tokens = split_tokens(reply)
        try:
            fields = loads_shallow(body)
        except ValueError as broken:
            raise UpstreamBroken("the engine's reply is not valid JSON", code="upstream_bad_reply") from broken
        if not isinstance(fields, dict):
            raise UpstreamBroken("the engine's reply is not a JSON object", code="upstream_bad_reply")
        outlines = self.outlines(fields)
        if len(outlines) == 1:
            outlines = [outlines[0]._replace(body=body)]
        return reply_of(body, outlines, engine_tokens, usage=fields.get("usage"))

    def open_stream(self) -> ReplyStream:
        """A stream that is about to arrive."""
        return PackedStream(self)


class EventSum:
    """The events of one stream, added up."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly, self._splitter = assembly, Splitter()
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._flaws: dict[str, None] = {}

    def add(self, piece: bytes) -> None:
        """Take note of what has passed; `read` looks at it."""
        self._unread.append(piece)
        self._unread_bytes += len(piece)

    @property
    def behind(self) -> bool:
        """A portion waits to be read."""
        return self._unread_bytes >= READ_BYTES

    def read(self) -> None:
        """Add up the next portion."""
        self._read(min(READ_BYTES, self._unread_bytes))

    def whole(self, rest: bytes) -> tuple[dict[str, Json] | None, tuple[str, ...]]:
        """The reply with what has not passed, as `Assembly.whole`, and the words for what is wrong with its events."""
        self.add(rest)
        self._read(self._unread_bytes)
        return self._assembly.whole(), tuple(self._flaws)

    def _read(self, size: int) -> None:
        portion: list[bytes] = []
        while size > 0:
            piece = self._unread.popleft()
            portion.append(piece[:size])
            if len(piece) > size:
                self._unread.appendleft(piece[size:])
            size -= len(piece)
        read = b"".join(portion)
        self._unread_bytes -= len(read)
        events, flaws = read_events(self._splitter.feed(read))
        self._flaws.update(dict.fromkeys(flaws))
        for event in events:
            self._assembly.take(event)


class PackedStream:
    """One stream (a `ReplyStream`): passed on as it comes, and added up beside that."""

    def __init__(self, protocol: PackedProtocol) -> None:
        self.over = False
        self.first_token_us: int | None = None
        self._protocol, self._splitter, self._engine_tokens = protocol, Splitter(), EngineTokens()
        self._sum = EventSum(protocol.assembly())
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

    @property
    def behind(self) -> bool:
        return self._sum.behind

    def add_up(self) -> None:
        self._sum.read()

    def reply(self, *, interrupted: bool) -> EngineReply:
        whole, flaws = self._sum.whole(self.held)
        if whole is None:
            return EngineReply(b"", b"", (), Usage(prompt_tokens=0, completion_tokens=0), self.over and not interrupted)
        body = dumps(whole)
        outlines = self._protocol.outlines(whole)
        believed = not any(self._engine_tokens) and self._protocol.is_whole(outlines)
        ended = not interrupted and (self.over or believed)
        if len(outlines) == 1:
            outlines = [outlines[0]._replace(body=body)]
        flaws = flaws if ended else (*flaws, STREAM_END)
        return reply_of(body, outlines, self._engine_tokens, usage=whole.get("usage"), ended=ended, flaws=flaws)

    def error(self, error: GatewayError) -> bytes:
        return self._protocol.error_event(error)

    def _give_out(self, passed: bytes) -> bytes:
        if passed:
            self._passed.append(passed)
            self._sum.add(passed)
            if self.first_token_us is None and self._protocol.first_token.search(passed):
                self.first_token_us = now_us()
        return passed

    def _pass(self, event: bytes) -> bytes:
        if event.startswith(OURS):
            if event.startswith(COMMENT):
                self._engine_tokens = self._engine_tokens.followed_by(parse(event[len(COMMENT) :].strip()))
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
