"""The chunks of a stream put together: the completion that they add up to, and its tokens.

Invariant: ids and log-probabilities are the engine's own, in its order. A chunk that says something without ids, or
with as many log-probabilities as it should not have, is named; nothing here raises for what an engine sent.
"""

import asyncio
from collections.abc import Iterable
from typing import TypeVar

from gateway.openai.fast_chunks import ChunkRun
from gateway.openai.reply import (
    CHOICE_INDEX,
    PROMPT,
    EngineReply,
    Json,
    Sampled,
    count,
    loads,
    loads_shallow,
    packed_ids,
    packed_logprobs,
    understood,
)
from gateway.openai.request import ChatRequest
from gateway.openai.sse import DONE, data_of, spans_comment
from gateway.openai.version_spans import RawSpans, parse_header
from schemas.events import Usage

AT_ONCE = 256
"""Events taken in before the loop may do something else: about a millisecond."""
T = TypeVar("T")
LAST_WINS = frozenset({"role", "id", "type", "index"})
CHUNK_INVALID, STREAM_ERROR, STREAM_END = "chunk_invalid", "stream_error", "stream_end"


async def accumulated(events: Iterable[bytes | ChunkRun], request: ChatRequest) -> "Accumulator":
    """All events of a stream, taken in without keeping the loop from others."""
    accumulator = Accumulator(request)
    taken = 0
    for event in events:
        if isinstance(event, ChunkRun):
            accumulator.add_run(event)
            taken += len(event.events) // 4
        else:
            accumulator.add(event)
            taken += 1
        if taken >= AT_ONCE:
            taken = 0
            await asyncio.sleep(0)
    return accumulator


class Accumulator:
    """What the chunks of one stream add up to so far."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._fields: dict[str, Json] = {}
        self._parts: dict[int, _ChoiceAccumulator] = {}
        self._spans: RawSpans = {}
        self._faults: dict[str, None] = {}

    def add(self, event: bytes) -> None:
        """Take in one event."""
        comment = spans_comment(event)
        if comment is not None:
            self._spans |= parse_header(comment.decode(errors="replace"))
        data = data_of(event)
        if not data or data.strip() == DONE:
            return
        try:
            chunk = loads_shallow(data)
        except ValueError:
            chunk = None
        if isinstance(chunk, dict):
            self._add_chunk(chunk)
        else:
            self._faults[CHUNK_INVALID] = None

    def add_run(self, run: ChunkRun) -> None:
        """Take in usual chunks, all at once: what `add` would make of each of them, its shape being known from one."""
        said = _said(run)
        part = self._parts.get(run.shape.choice)
        if said is None or part is None:
            for event in run.events:
                self.add(event)
        else:
            part.add_run(run.shape.name, *said)

    @property
    def ended(self) -> bool:
        """Every choice that was begun has its finish reason."""
        return bool(self._parts) and all(part.ended for part in self._parts.values())

    def reply(self, *, whole: bool) -> EngineReply | None:
        """The completion, None when there was no choice at all. whole: the stream came to its own end."""
        if not self._parts:
            return None
        holes = tuple(self._faults) if whole else (*self._faults, STREAM_END)
        parts = [self._parts[index] for index in sorted(self._parts)]
        fields = {**self._fields, "choices": [part.answer() for part in parts]}
        sampled = [part.sampled(holes, whole) for part in parts]
        reply = understood(fields, packed_ids(fields.get(PROMPT)), sampled, self._spans, self._request)
        if isinstance(self._fields.get("usage"), dict):
            return reply
        sampled_tokens = sum(choice.response_length for choice in reply.choices)  # nobody asked the engine to count
        return reply._replace(usage=Usage(prompt_tokens=reply.prompt_length, completion_tokens=sampled_tokens))

    def _add_chunk(self, chunk: dict[str, Json]) -> None:
        if "error" in chunk:
            self._faults[STREAM_ERROR] = None
        for name, value in chunk.items():
            if name == "object":
                self._fields[name] = "chat.completion"
            elif name != "choices" and value is not None:
                self._fields[name] = value
        choices = chunk.get("choices") or ()
        if not isinstance(choices, (list, tuple)) or not all(isinstance(choice, dict) for choice in choices):
            self._faults[CHUNK_INVALID] = None
            return
        if len(choices) > 1 and len({count(choice.get("index"), at) for at, choice in enumerate(choices)}) < len(
            choices
        ):
            self._faults[CHOICE_INDEX] = None
        for position, choice in enumerate(choices):
            index = count(choice.get("index"), position)
            part = self._parts.get(index)
            if part is None:
                part = self._parts[index] = _ChoiceAccumulator(index, self._request.wants_logprobs)
            part.add(choice)


class _ChoiceAccumulator:
    """One choice. Text is kept in pieces until the end: adding to a long string copies it each time."""

    def __init__(self, index: int, keep_logprobs: bool) -> None:
        self._fields: dict[str, Json] = {"index": index}
        self._message: dict[str, Json] = {}
        self._ids: list[Json] | None = None
        self._logprobs: list[Json] = []
        self._content: list[Json] | None = [] if keep_logprobs else None
        self._holes: dict[str, None] = {}

    @property
    def ended(self) -> bool:
        return self._fields.get("finish_reason") is not None

    def add(self, choice: dict[str, Json]) -> None:
        """Take in what one chunk says of this choice."""
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        _merge(self._message, delta)
        content = _content(choice.get("logprobs"))
        self._add_tokens(choice.get("token_ids"), content, says=_says(delta))
        if self._content is not None:
            self._content += content
        for name, value in choice.items():
            if value is not None and name not in ("delta", "logprobs", "token_ids"):
                self._fields[name] = value

    def add_run(self, name: str, text: str, ids: list[Json], content: list[Json]) -> None:
        """Take in a text, and the tokens that it was said in."""
        _merge(self._message, {name: text})
        self._add_tokens(ids, content, says=True)
        if self._content is not None:
            self._content += content

    def _add_tokens(self, ids: Json, content: list[Json], *, says: bool) -> None:
        if isinstance(ids, list):
            self._ids = [] if self._ids is None else self._ids
            self._ids += ids
        elif says:
            self._holes["token_ids"] = None
        if len(content) != (len(ids) if isinstance(ids, list) else 0):
            self._holes["logprobs"] = None
        self._logprobs += [token.get("logprob") if isinstance(token, dict) else None for token in content]

    def answer(self) -> dict[str, Json]:
        """As in a reply that was not streamed."""
        return {
            **self._fields,
            "message": _joined(self._message),
            "logprobs": None if self._content is None else {"content": self._content},
            "finish_reason": self._fields.get("finish_reason"),
            "token_ids": self._ids,
        }

    def sampled(self, holes: tuple[str, ...], whole: bool) -> Sampled:
        """holes: of the stream, which are those of each of its choices."""
        own = (*self._holes, *holes)
        return Sampled(packed_ids(self._ids), packed_logprobs(self._logprobs), own, ended=whole and self.ended)


def _said(run: ChunkRun) -> tuple[str, list[Json], list[Json]] | None:
    """Text, ids and tokens of a run; None when they are no JSON, or not one token for each chunk."""
    texts, tokens, token_ids = zip(*run.said, strict=True)
    try:
        text = loads(b'"%b"' % b"".join(texts))
        ids, content = loads(b"[%b]" % b",".join(token_ids)), loads(b"[%b]" % b",".join(tokens))
    except ValueError:
        return None
    return (text, ids, content) if len(content) == len(ids) == len(run.events) else None


def _content(logprobs: Json) -> list[Json]:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return content if isinstance(content, list) else []


def _says(delta: dict[str, Json]) -> bool:
    return any(value for name, value in delta.items() if name != "role")


class _Pieces(list[str]):
    """A text, not joined yet."""


class _Indexed(dict[int, dict[str, Json]]):
    """A list whose items name their places: tool calls."""


def _merge(into: dict[str, Json], delta: dict[str, Json]) -> None:
    """Texts grow; objects, and lists of objects with an index, are merged; of all else the last one counts."""
    for name, value in delta.items():
        if isinstance(value, str) and name not in LAST_WINS:
            _known(into, name, _Pieces).append(value)
        elif isinstance(value, dict):
            _merge(_known(into, name, dict), value)
        elif isinstance(value, list) and value and all(isinstance(item, dict) and "index" in item for item in value):
            items = _known(into, name, _Indexed)
            for item in value:
                _merge(items.setdefault(count(item["index"], len(items)), {}), item)
        elif value is not None or name not in into:
            into[name] = value


def _known(into: dict[str, Json], name: str, kind: type[T]) -> T:
    """What stands there, if it is of this kind; else a new one that stands there from now on."""
    known = into.get(name)
    if type(known) is not kind:
        known = into[name] = kind()
    return known


def _joined(value: Json) -> Json:
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, _Indexed):
        return [_joined(value[index]) for index in sorted(value)]
    return {name: _joined(one) for name, one in value.items()} if isinstance(value, dict) else value
