"""The chunks of a stream put together: the completion that they add up to, and its tokens.

Invariant: ids and log-probabilities are the engine's own, in its order. A chunk with text and no ids, or with a wrong
number of log-probabilities, is named; nothing here raises for what an engine sent.
"""

from collections.abc import Sequence

from gateway.call_protocol import CallRequest, EngineReply
from gateway.engine_json import Json, count, loads, loads_shallow
from gateway.openai.fast_chunks import ChunkFields, ChunkShape
from gateway.openai.message import joined, merge
from gateway.openai.reply import CHOICE_INDEX, PROMPT, understood
from gateway.openai.request import LOGPROBS, TOKEN_IDS
from gateway.openai.sse import DONE, spans_comment
from gateway.tokens.packing import SampledTokens, packed_ids, packed_logprobs
from gateway.tokens.sse import data_of
from gateway.tokens.version_spans import RawSpans, parse_header
from schemas.arrays import ITEM_BYTES
from schemas.events import Usage

RUN_MAX = 256
"""Usual chunks that are parsed together."""
CHUNK_INVALID, STREAM_ERROR, STREAM_END = "chunk_invalid", "stream_error", "stream_end"
Tokens = tuple[str, list[Json], list[Json]]
"""A text, its token ids, and the objects with their log-probabilities."""


class Accumulator:
    """What the chunks of one stream add up to so far."""

    kind = "chat.completion"

    def __init__(self, request: CallRequest) -> None:
        self._request = request
        self._shape: ChunkShape | None = None
        """Of the usual chunks that came last."""
        self._run: list[tuple[bytes, ChunkFields]] = []
        """They themselves, not parsed yet."""
        self._fields: dict[str, Json] = {}
        self._prompt_ids: bytes | None = None
        """Packed at once: as objects, the ids of a long prompt would take a megabyte of each open stream."""
        self._choices: dict[int, ChoiceAccumulator] = {}
        self._spans: RawSpans = {}
        self._flaws: dict[str, None] = {}

    def add(self, event: bytes) -> None:
        self._end_run()
        self._add_event(event)

    def add_usual(self, event: bytes, fields: ChunkFields, shape: ChunkShape) -> None:
        """As `add`, of a chunk of this shape. Those that follow each other are parsed together."""
        if shape is not self._shape or len(self._run) >= RUN_MAX:
            self._end_run()
            self._shape = shape
        self._run.append((event, fields))

    def _end_run(self) -> None:
        run, self._run = self._run, []
        if self._shape is None or not run:
            return
        choice, tokens = self._choices.get(self._shape.choice), _parsed([fields for _, fields in run])
        if choice is None or tokens is None:
            for event, _ in run:
                self._add_event(event)
        else:
            choice.add_run(self._shape.name, tokens)

    def _add_event(self, event: bytes) -> None:
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
            self._flaws[CHUNK_INVALID] = None

    @property
    def ended(self) -> bool:
        """Every choice that was begun has its finish reason."""
        self._end_run()
        return bool(self._choices) and all(choice.ended for choice in self._choices.values())

    def reply(self, *, ended: bool) -> EngineReply:
        """The completion, without choices when there was none at all. ended: the stream came to its own end."""
        self._end_run()
        flaws = tuple(self._flaws) if ended else (*self._flaws, STREAM_END)
        choices = [self._choices[index] for index in sorted(self._choices)]
        fields = {**self._fields, "choices": [choice.answer() for choice in choices]}
        sampled = [choice.sampled(flaws, ended) for choice in choices]
        prompt_ids = packed_ids(fields[PROMPT]) if PROMPT in fields else self._prompt_ids
        reply = understood(fields, prompt_ids, sampled, self._spans, self._request)
        if not isinstance(self._fields.get("usage"), dict):  # nobody asked the engine to count
            sampled_bytes = sum(len(choice.response_ids) for choice in reply.choices)
            usage = Usage(
                prompt_tokens=len(reply.prompt_ids) // ITEM_BYTES, completion_tokens=sampled_bytes // ITEM_BYTES
            )
            reply = reply._replace(usage=usage)
        return reply._replace(ended=ended)

    def _add_chunk(self, chunk: dict[str, Json]) -> None:
        if "error" in chunk:
            self._flaws[STREAM_ERROR] = None
        for name, value in chunk.items():
            if name == "object":
                self._fields[name] = self.kind
            elif name == PROMPT and value is not None and TOKEN_IDS in self._request.added:
                self._prompt_ids = packed_ids(value)
            elif name != "choices" and value is not None:
                self._fields[name] = value
        choices = chunk.get("choices") or ()
        if not isinstance(choices, (list, tuple)) or not all(isinstance(choice, dict) for choice in choices):
            self._flaws[CHUNK_INVALID] = None
            return
        indexes = [count(choice.get("index"), position) for position, choice in enumerate(choices)]
        if len(indexes) > 1 and len(set(indexes)) < len(indexes):
            self._flaws[CHOICE_INDEX] = None
        for index, choice in zip(indexes, choices, strict=True):
            if index not in self._choices:
                self._choices[index] = self.new_choice(index, keep_logprobs=LOGPROBS not in self._request.added)
            self._choices[index].add(choice)

    def new_choice(self, index: int, *, keep_logprobs: bool) -> "ChoiceAccumulator":
        """A choice of no chunks yet."""
        return ChoiceAccumulator(index, keep_logprobs=keep_logprobs)


class ChoiceAccumulator:
    """One choice. Text is kept in pieces until the end: adding to a long string copies it each time."""

    def __init__(self, index: int, *, keep_logprobs: bool) -> None:
        self._fields: dict[str, Json] = {"index": index}
        self._message: dict[str, Json] = {}
        self._ids: list[Json] | None = None
        self._logprobs: list[Json] = []
        self._content: list[Json] | None = [] if keep_logprobs else None
        self._flaws: dict[str, None] = {}

    @property
    def ended(self) -> bool:
        return self._fields.get("finish_reason") is not None

    def add(self, choice: dict[str, Json]) -> None:
        """Take in this choice of one chunk."""
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        merge(self._message, delta)
        self._add_content(choice.get("token_ids"), _content(choice.get("logprobs")), has_output=_has_output(delta))
        for name, value in choice.items():
            if value is not None and name not in ("delta", "logprobs", "token_ids"):
                self._fields[name] = value

    def add_run(self, name: str, tokens: Tokens) -> None:
        """Take in a text of this name, and its tokens."""
        text, ids, content = tokens
        merge(self._message, {name: text})
        self._add_content(ids, content, has_output=True)

    def _add_content(self, ids: Json, content: list[Json], *, has_output: bool) -> None:
        logprobs = [token.get("logprob") if isinstance(token, dict) else None for token in content]
        self._add_tokens(ids, logprobs, has_output=has_output)
        if self._content is not None:
            self._content += content

    def _add_tokens(self, ids: Json, logprobs: list[Json], *, has_output: bool) -> None:
        if isinstance(ids, list):
            self._ids = [] if self._ids is None else self._ids
            self._ids += ids
        elif has_output:
            self._flaws["token_ids"] = None
        if len(logprobs) != (len(ids) if isinstance(ids, list) else 0):
            self._flaws["logprobs"] = None
        self._logprobs += logprobs

    def answer(self) -> dict[str, Json]:
        """As in a reply that was not streamed."""
        return {
            **self._fields,
            "message": joined(self._message),
            "logprobs": None if self._content is None else {"content": self._content},
            "finish_reason": self._fields.get("finish_reason"),
            "token_ids": self._ids,
        }

    def sampled(self, stream_flaws: tuple[str, ...], stream_ended: bool) -> SampledTokens:
        """The tokens. Flaws of the stream are those of each of its choices."""
        flaws = (*self._flaws, *stream_flaws)
        return SampledTokens(
            packed_ids(self._ids), packed_logprobs(self._logprobs), flaws, ended=stream_ended and self.ended
        )


def _parsed(run: Sequence[ChunkFields]) -> Tokens | None:
    """What the chunks of a run hold; None when they are no JSON, or not one token for each chunk."""
    texts, tokens, token_ids = zip(*run, strict=True)
    try:
        text = loads(b'"%b"' % b"".join(texts))
        ids, content = loads(b"[%b]" % b",".join(token_ids)), loads(b"[%b]" % b",".join(tokens))
    except ValueError:
        return None
    return (text, ids, content) if len(content) == len(ids) == len(run) else None


def _content(logprobs: Json) -> list[Json]:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return content if isinstance(content, list) else []


def _has_output(delta: dict[str, Json]) -> bool:
    return any(value for name, value in delta.items() if name != "role")
