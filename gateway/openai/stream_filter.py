"""A stream of chat from an engine that writes tokens into its chunks: what only capture asked for is cut out on the way.

One that hands its tokens over all the same is believed, as everywhere.

Invariant: ids and log-probabilities are the engine's own, in its order. A chunk with text and no ids, or with a wrong
number of log-probabilities, is named; nothing here raises for what an engine sent.
"""

import re
from collections.abc import Iterator

from claw_r1.gateway.call_protocol import CallRequest, EngineReply
from claw_r1.gateway.foreign_json import count, dumps, loads_shallow
from claw_r1.gateway.openai.reply import PROMPT, clean, understood
from claw_r1.gateway.openai.request import LOGPROBS, TOKEN_IDS
from claw_r1.gateway.openai.sse import spans_comment, without_comment, without_fields
from claw_r1.gateway.tokens.handed_over import COMMENT
from claw_r1.gateway.tokens.packing import SampledTokens, packed_content, packed_ids
from claw_r1.gateway.tokens.protocol import (
    CHUNK_INVALID,
    STREAM_END,
    PackedProtocol,
    PackedStream,
    no_choices,
    read_events,
)
from claw_r1.gateway.tokens.reply import CHOICE_INDEX
from claw_r1.gateway.tokens.sse import data_of
from claw_r1.gateway.tokens.version_spans import RawSpans, parse_header
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.events import Usage
from claw_r1.schemas.json_values import Json

FIRST_TOKEN = re.compile(
    rb'"token_ids"\s*:\s*\[\s*\d|"(?:text|content|reasoning|reasoning_content|refusal|arguments|name)"\s*:\s*"[^"]'
)


class StreamFilter(PackedStream):
    """Fed with the pieces of one stream, in order (a `ReplyStream`)."""

    def __init__(self, protocol: PackedProtocol, request: CallRequest) -> None:
        super().__init__(protocol, adds_up=False)
        self._request = request
        self._cut_ids, self._cut_logprobs = TOKEN_IDS in request.added, LOGPROBS in request.added
        self._events: list[bytes] = []
        """The events that the engine wrote."""

    def feed(self, piece: bytes) -> bytes:
        return self._give_out(b"".join([self._pass(event) for event in self._splitter.feed(piece)]))

    def reply(self, *, interrupted: bool) -> EngineReply:
        if any(self._handed_over):
            return super().reply(interrupted=interrupted)
        chunks, flaws = read_events(self._events)
        assembly = self._protocol.assembly()
        for chunk in chunks:
            assembly.take(chunk)
        fields = assembly.whole()
        if fields is None:
            return no_choices(self.over and not interrupted)
        answers = fields["choices"]
        finished = all(answer["finish_reason"] is not None for answer in answers)
        ended = not interrupted and (self.over or finished)
        flaws = (*flaws, *dict.fromkeys(_flaws(chunks)), *(() if ended else (STREAM_END,)))
        sampled = [
            SampledTokens(
                packed_ids(answer.get("token_ids")),
                packed_content(answer.get("logprobs") or {"content": []}),
                flaws,
                ended=ended and answer["finish_reason"] is not None,
            )
            for answer in answers
        ]
        reply = understood(fields, packed_ids(fields.get(PROMPT)), sampled, self._spans(), self._request)
        if not isinstance(fields.get("usage"), dict):  # nobody asked the engine to count
            lengths = len(reply.prompt_ids), sum(len(choice.response_ids) for choice in reply.choices)
            prompt, response = (length // ITEM_BYTES for length in lengths)
            reply = reply._replace(usage=Usage(prompt_tokens=prompt, completion_tokens=response))
        return reply._replace(ended=ended)

    def _spans(self) -> RawSpans:
        spans: RawSpans = {}
        for comment in filter(None, map(spans_comment, self._events)):
            spans |= parse_header(comment.decode(errors="replace"))
        return spans

    def _pass(self, event: bytes) -> bytes:
        if event.startswith(COMMENT):
            return super()._pass(event)
        self._events.append(event)
        self.over = self.over or (self._protocol.last in event and self._protocol.is_last(event))
        passed = self._for_client(event)
        if self.over:
            self._held.append(passed)
            return b""
        return passed

    def _for_client(self, event: bytes) -> bytes:
        rest = without_comment(event)
        try:
            return without_fields(rest, token_ids=self._cut_ids, logprobs=self._cut_logprobs)
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


def _flaws(chunks: list[dict[str, Json]]) -> Iterator[str]:
    for chunk in chunks:
        listed = chunk.get("choices")
        choices = [choice for choice in listed if isinstance(choice, dict)] if isinstance(listed, list) else []
        if listed and not (isinstance(listed, list) and len(choices) == len(listed)):
            yield CHUNK_INVALID
        indexes = [count(choice.get("index"), position) for position, choice in enumerate(choices)]
        if len(set(indexes)) < len(indexes):
            yield CHOICE_INDEX
        for choice in choices:
            yield from _choice_flaws(choice)


def _choice_flaws(choice: dict[str, Json]) -> Iterator[str]:
    delta, ids, logprobs = choice.get("delta"), choice.get("token_ids"), choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    has_output = isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role")
    if has_output and not isinstance(ids, list):
        yield "token_ids"
    if len(content if isinstance(content, list) else ()) != len(ids if isinstance(ids, list) else ()):
        yield "logprobs"
