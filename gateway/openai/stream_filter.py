"""One stream on its way through: what the engine sent is accumulated, what the client may see comes out at once.

Invariant: the end (`[DONE]` and what follows) is held back, and everything before it is given out as soon as its event
is there.
"""

import re

from gateway.call_protocol import CallRequest, EngineReply
from gateway.engine_json import dumps, loads_shallow
from gateway.errors import GatewayError, error_body
from gateway.openai.accumulator import Accumulator
from gateway.openai.fast_chunks import ChunkShape, shape_of
from gateway.openai.reply import clean
from gateway.openai.request import LOGPROBS, TOKEN_IDS
from gateway.openai.sse import DONE, without_comment, without_fields
from gateway.tokens.sse import Splitter, data_of
from schemas.envelopes import now_us

FIRST_TOKEN = re.compile(
    rb'"token_ids"\s*:\s*\[\s*\d|"(?:text|content|reasoning|reasoning_content|refusal|arguments|name)"\s*:\s*"[^"]'
)
LESSONS_MAX = 64
"""Unusual events of a stream from which the shape of its usual chunks is learned."""


class StreamFilter:
    """Fed with the pieces of one stream, in order (a `ReplyStream`)."""

    accumulator: type[Accumulator] = Accumulator
    nulls = False
    """Of `without_fields`."""

    def __init__(self, request: CallRequest) -> None:
        self.over = False
        self.first_token_us: int | None = None
        self._request, self._accumulator = request, self.accumulator(request)
        self._cut_ids, self._cut_logprobs = TOKEN_IDS in request.added, LOGPROBS in request.added
        self._splitter = Splitter()
        self._shape: ChunkShape | None = None
        self._lessons_left = LESSONS_MAX
        self._passed: list[bytes] = []
        """What the client was given."""
        self._held: list[bytes] = []

    def feed(self, piece: bytes) -> bytes:
        # Nearly always, where tokens come one by one, a piece is a usual chunk.
        passed = None if self._splitter.rest else self._pass_usual(piece)
        if passed is None:
            passed = b"".join([self._pass(event) for event in self._splitter.feed(piece)])
        if passed:
            self._passed.append(passed)
        return passed

    @property
    def held(self) -> bytes:
        return b"".join(self._held) + self._splitter.rest

    @property
    def whole(self) -> bytes:
        return b"".join(self._passed) + self.held

    def reply(self, *, interrupted: bool) -> EngineReply:
        return self._accumulator.reply(ended=not interrupted and (self.over or self._accumulator.ended))

    def error(self, error: GatewayError) -> bytes:
        """The event that OpenAI's SDKs raise for."""
        return b"data: %b\n\n" % error_body(error)

    def _pass(self, event: bytes) -> bytes:
        passed = self._pass_usual(event)
        return self._pass_unusual(event) if passed is None else passed

    def _pass_usual(self, event: bytes) -> bytes | None:
        """What the client gets of a usual chunk; None for any other event."""
        shape = self._shape
        fields = None if shape is None or self.over else shape.read(event)
        if shape is None or fields is None:
            return None
        self._accumulator.add_usual(event, fields, shape)
        if self.first_token_us is None:
            self.first_token_us = now_us()
        if not (self._cut_ids or self._cut_logprobs):
            return event
        return shape.without(fields, token_ids=self._cut_ids, logprobs=self._cut_logprobs)

    def _pass_unusual(self, event: bytes) -> bytes:
        self._accumulator.add(event)
        if self._lessons_left:
            self._lessons_left -= 1
            self._shape = shape_of(event) or self._shape
        if self.first_token_us is None and FIRST_TOKEN.search(event):
            self.first_token_us = now_us()
        if not self.over and DONE in event and data_of(event).strip() == DONE:
            self.over = True
        passed = self._for_client(event)
        if self.over:
            self._held.append(passed)
            return b""
        return passed

    def _for_client(self, event: bytes) -> bytes:
        rest = without_comment(event)
        try:
            return without_fields(rest, token_ids=self._cut_ids, logprobs=self._cut_logprobs, nulls=self.nulls)
        except ValueError:
            return self._written_anew(rest)

    def _written_anew(self, event: bytes) -> bytes:
        """For what cannot be cut (nested deeply): the same content. What is no JSON, or nested without end, stays as it is."""
        try:
            chunk = loads_shallow(data_of(event))
        except ValueError:
            return event
        if not isinstance(chunk, dict):
            return event
        clean(chunk, self._request)
        return b"data: %s\n\n" % dumps(chunk)
