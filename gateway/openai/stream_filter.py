"""One stream on its way through: what the engine sent is kept, what the client may see comes out at once.

Invariant: the end (`[DONE]` and what follows) is held back, and everything before it is given out as soon as its event
is there.
"""

import re

from gateway.errors import UpstreamBroken
from gateway.openai.fast_chunks import RUN_MAX, ChunkRun, Said, Shape, shape_of
from gateway.openai.reply import Json, dumps, loads_shallow
from gateway.openai.request import ChatRequest
from gateway.openai.sse import DONE, Splitter, data_of, without_comment, without_fields
from schemas.envelopes import now_us

LESSONS_MAX = 64
"""Unusual chunks of a stream that are looked at for a shape to come."""

FIRST_TOKEN = re.compile(
    rb'"token_ids"\s*:\s*\[\s*\d|"(?:content|reasoning|reasoning_content|refusal|arguments|name)"\s*:\s*"[^"]'
)


class StreamFilter:
    """Fed with the pieces of one stream, in order."""

    def __init__(self, request: ChatRequest, bytes_max: int) -> None:
        self.events: list[bytes | ChunkRun] = []
        """As the engine sent them."""
        self.shown: list[bytes] = []
        """What the client was given."""
        self.over = False
        """The engine said that this was all."""
        self.first_token_us: int | None = None
        self._take_ids, self._take_logprobs = not request.wants_token_ids, not request.wants_logprobs
        self._splitter = Splitter()
        self._shape: Shape | None = None
        self._run: ChunkRun | None = None
        """What came last, if it was usual."""
        self._lessons_left = LESSONS_MAX
        self._held: list[bytes] = []
        self._bytes_left = bytes_max

    def feed(self, piece: bytes) -> bytes:
        """What the client gets now. Raises UpstreamBroken when the reply is over its limit."""
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            raise UpstreamBroken("the engine's reply is over its limit", code="upstream_reply_too_large")
        said = self._said(piece) if not self._splitter.rest else None
        if said is not None:  # nearly always, where tokens come one by one
            shown = self._passed_usual(piece, said)
        else:
            shown = b"".join([self._passed(event) for event in self._splitter.feed(piece)])
        if shown:
            self.shown.append(shown)
        return shown

    @property
    def held(self) -> bytes:
        """The end of the stream, for the client that may have it."""
        return b"".join(self._held) + self._splitter.rest

    @property
    def whole(self) -> bytes:
        """Everything that the client sees of a stream that came to its end."""
        return b"".join(self.shown) + self.held

    def _passed(self, event: bytes) -> bytes:
        said = self._said(event)
        return self._passed_unusual(event) if said is None else self._passed_usual(event, said)

    def _said(self, event: bytes) -> Said | None:
        return None if self._shape is None or self.over else self._shape.said(event)

    def _passed_usual(self, event: bytes, said: Said) -> bytes:
        run = self._run
        if run is None or len(run.events) >= RUN_MAX:
            run = self._begin_run()
        run.events.append(event)
        run.said.append(said)
        if self._take_ids and self._take_logprobs:
            return run.shape.front + said[0] + run.shape.tail
        if self._take_ids or self._take_logprobs:
            return run.shape.shown(said, token_ids=self._take_ids, logprobs=self._take_logprobs)
        return event

    def _begin_run(self) -> ChunkRun:
        assert self._shape is not None, "it recognised an event"
        if self.first_token_us is None:
            self.first_token_us = now_us()
        run = self._run = ChunkRun(self._shape)
        self.events.append(run)
        return run

    def _passed_unusual(self, event: bytes) -> bytes:
        self.events.append(event)
        self._run = None
        if self._lessons_left:
            self._lessons_left -= 1
            self._shape = shape_of(event) or self._shape
        if self.first_token_us is None and FIRST_TOKEN.search(event):
            self.first_token_us = now_us()
        if not self.over and DONE in event and data_of(event).strip() == DONE:
            self.over = True
        shown = self._for_client(event)
        if self.over:
            self._held.append(shown)
            return b""
        return shown

    def _for_client(self, event: bytes) -> bytes:
        shown = without_comment(event)
        try:
            return without_fields(shown, token_ids=self._take_ids, logprobs=self._take_logprobs)
        except ValueError:
            return self._written_anew(shown)

    def _written_anew(self, event: bytes) -> bytes:
        """For what cannot be cut (nested deeply): the same content. What is no JSON, or nested without end, stays as it is."""
        try:
            chunk = loads_shallow(data_of(event))
        except ValueError:
            return event
        if not isinstance(chunk, dict):
            return event
        if self._take_ids:
            chunk.pop("prompt_token_ids", None)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            self._clean(choice)
        return b"data: %s\n\n" % dumps(chunk)

    def _clean(self, choice: Json) -> None:
        if isinstance(choice, dict):
            if self._take_ids:
                choice.pop("token_ids", None)
            if self._take_logprobs and "logprobs" in choice:
                choice["logprobs"] = None
