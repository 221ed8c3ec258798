"""An engine's reply: what training needs is read out of it, and what the client did not ask for is taken out of it.

Invariant: response ids and log-probabilities are the engine's own. Whatever is absent or contradictory is named in
`missing`; it never stops the reply.
"""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from gateway.errors import UpstreamBroken
from gateway.openai.fast_reply import taken_apart
from gateway.openai.request import ChatRequest
from gateway.openai.sse import without_fields
from gateway.openai.version_spans import RawSpans, parse_header, spans_of
from schemas.arrays import ITEM_BYTES, pack_floats, pack_ids
from schemas.events import Usage, VersionSpan

Json = Any  # parsed JSON of a foreign server
PROMPT = "prompt_token_ids"
CHOICE_INDEX = "choice_index"
INT32_MAX = (1 << 31) - 1
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
SIGNS = slice(ITEM_BYTES - 1, None, ITEM_BYTES)
"""The highest byte of each packed number."""
BELOW_ZERO = bytes(range(0x80, 0xFF))
"""Highest bytes of float32 that are below 0, and neither infinite nor no number."""
DEPTH_MAX = 200
"""Nesting of a foreign server's JSON. What is written of it must be within what orjson writes (254)."""


@dataclass(slots=True, kw_only=True)
class Choice:
    """One sampled response. Ids are packed int32 [n], log-probabilities float32 [n]."""

    index: int
    response_ids: bytes
    response_logprobs: bytes
    response_length: int
    spans: tuple[VersionSpan, ...]
    finish_reason: str | None
    missing: tuple[str, ...]
    aborted: bool
    """It has no end: the engine or the client gave up, or the stream broke."""
    body: bytes
    """The reply as the client saw it, with this choice alone."""


class EngineReply(NamedTuple):
    """A reply, understood. `body` is what the client gets."""

    body: bytes
    prompt_ids: bytes
    prompt_length: int
    choices: tuple[Choice, ...]
    usage: Usage


class Sampled(NamedTuple):
    """Tokens of one choice as the engine gave them: packed, or None where they are absent or no tokens."""

    ids: bytes | None
    logprobs: bytes | None
    holes: tuple[str, ...] = ()
    """What is known to be missing besides, in the words of `Choice.missing`."""
    ended: bool = True


def parse_reply(raw: bytes, spans_header: str | None, request: ChatRequest) -> EngineReply:
    """Read a 200 of an engine. Raises UpstreamBroken when it is no chat completion with choices, or nested too deeply."""
    parts = taken_apart(raw)
    if parts is not None:
        body = parts.shown(token_ids=request.wants_token_ids, logprobs=request.wants_logprobs)
        sampled = [Sampled(_packed(parts.response_ids), packed_logprobs(parts.logprobs))]
        spans = parse_header(spans_header)
        return understood(parts.fields, _packed(parts.prompt_ids), sampled, spans, request, body)
    fields = _json_object(raw)
    answers = fields.get("choices")
    if not (isinstance(answers, list) and answers and all(isinstance(answer, dict) for answer in answers)):
        raise UpstreamBroken("the engine's reply has no choices", code="upstream_bad_reply")
    sampled = [
        Sampled(packed_ids(answer.get("token_ids")), _packed_content(answer.get("logprobs"))) for answer in answers
    ]
    return understood(
        fields, packed_ids(fields.get(PROMPT)), sampled, parse_header(spans_header), request, _shown(raw, request)
    )


def understood(
    fields: dict[str, Json],
    prompt_ids: bytes | None,
    sampled: list[Sampled],
    spans: RawSpans,
    request: ChatRequest,
    body: bytes | None = None,
) -> EngineReply:
    """A completion with its tokens, which belong to `fields["choices"]` in order. `body`: what the client got, if known.

    prompt_ids: packed, None where there are none.

    What the client did not ask for is taken out of `fields`.
    """
    answers = fields["choices"]
    if body is None or len(answers) > 1:
        _clean(fields, request)
    body = dumps(fields) if body is None else body
    indexes = [count(answer.get("index"), position) for position, answer in enumerate(answers)]
    if len(set(indexes)) < len(indexes):
        sampled, indexes = _told_apart(sampled, indexes)
    choices = []
    for index, answer, tokens in zip(indexes, answers, sampled, strict=True):
        own_body = body if len(answers) == 1 else dumps({**fields, "choices": [answer]})
        choices.append(_choice(index, answer, tokens, spans, prompt_ids is None, own_body))
    return EngineReply(
        body=body,
        prompt_ids=prompt_ids or b"",
        prompt_length=len(prompt_ids or b"") // 4,
        choices=tuple(choices),
        usage=_usage(fields.get("usage")),
    )


def _told_apart(sampled: list[Sampled], indexes: list[int]) -> tuple[list[Sampled], list[int]]:
    """Choices that share an index: numbered in their order, since two calls must not have one id, and named as broken."""
    shared = {index for index in indexes if indexes.count(index) > 1}
    named = [
        tokens._replace(holes=(*tokens.holes, CHOICE_INDEX)) if index in shared else tokens
        for tokens, index in zip(sampled, indexes, strict=True)
    ]
    return named, list(range(len(indexes)))


def _choice(
    index: int, answer: dict[str, Json], tokens: Sampled, spans: RawSpans, no_prompt: bool, body: bytes
) -> Choice:
    length = len(tokens.ids or b"") // 4
    missing = ["prompt_ids"] if no_prompt else []
    if tokens.ids is None:
        missing.append("token_ids")
    if tokens.logprobs is None or len(tokens.logprobs) != len(tokens.ids or b""):
        missing.append("logprobs")
    versions = spans_of(spans, index, length)
    if versions.missing:
        missing.append(versions.missing)
    reason = answer.get("finish_reason")
    return Choice(
        index=index,
        response_ids=tokens.ids or b"",
        response_logprobs=tokens.logprobs or b"",
        response_length=length,
        spans=versions.spans,
        finish_reason=_encodable(reason) if isinstance(reason, str) else None,
        missing=tuple(dict.fromkeys((*missing, *tokens.holes))),
        aborted=reason == "abort" or not tokens.ended,
        body=body,
    )


def packed_ids(ids: Json) -> bytes | None:
    """Token ids as bytes; None when they are no list of int32 from 0 up."""
    return None if not isinstance(ids, list) or bool in map(type, ids) else _packed(ids)


def _packed(ids: list[int]) -> bytes | None:
    try:
        packed = pack_ids(ids)
    except (TypeError, OverflowError):
        return None
    return packed if packed[SIGNS].isascii() else None  # the highest bit of an id is its sign


def packed_logprobs(values: Json) -> bytes | None:
    """Log-probabilities as bytes; None when one of them is above 0, or nothing that a float32 holds."""
    try:
        packed = pack_floats(values)
    except (TypeError, OverflowError):
        return None
    unclear = packed[SIGNS].translate(None, BELOW_ZERO)  # looking at every value costs more than all the rest here
    return packed if not unclear or all(map(_is_logprob, values)) else None


def _is_logprob(value: float) -> bool:
    return type(value) is not bool and -FLOAT32_MAX <= value <= 0


def _packed_content(logprobs: Json) -> bytes | None:
    try:
        return packed_logprobs([token["logprob"] for token in logprobs["content"] or ()])
    except (TypeError, KeyError):
        return None


def _shown(raw: bytes, request: ChatRequest) -> bytes | None:
    """The engine's bytes without what only capture asked for; None where that cannot be cut out (nested deeply)."""
    try:
        return without_fields(raw, token_ids=not request.wants_token_ids, logprobs=not request.wants_logprobs)
    except ValueError:
        return None


def _clean(fields: dict[str, Json], request: ChatRequest) -> None:
    """Take what only capture asked for out of `fields`."""
    if not request.wants_token_ids:
        fields.pop(PROMPT, None)
    for answer in fields["choices"]:
        if not request.wants_token_ids:
            answer.pop("token_ids", None)
        if not request.wants_logprobs and "logprobs" in answer:
            answer["logprobs"] = None  # OpenAI's schema wants the field, null where nobody asked


def _usage(usage: Json) -> Usage:
    counts = usage if isinstance(usage, dict) else {}
    details = counts.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=count(counts.get("prompt_tokens"), 0),
        completion_tokens=count(counts.get("completion_tokens"), 0),
        cached_tokens=count(cached, 0) if cached is not None else None,
    )


def count(value: Json, default: int) -> int:
    """A count as it should be, or the default."""
    return value if type(value) is int and 0 <= value <= INT32_MAX else default


def _encodable(text: str) -> str:
    """The text without lone surrogates, which JSON may hold and no event."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _json_object(raw: bytes) -> dict[str, Json]:
    try:
        fields = loads_shallow(raw)
    except ValueError as broken:
        raise UpstreamBroken("the engine's reply is not valid JSON", code="upstream_bad_reply") from broken
    if not isinstance(fields, dict):
        raise UpstreamBroken("the engine's reply is no JSON object", code="upstream_bad_reply")
    return fields


def loads(raw: bytes) -> Json:
    """JSON of a foreign server. Raises ValueError."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(raw)  # takes NaN, which some engines write; such a call is stored, not trainable
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep


def loads_shallow(raw: bytes) -> Json:
    """As `loads`, of what can be walked through and written again. Raises ValueError, also for what is nested too deeply."""
    value = loads(raw)
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX and _is_deep(value):
        raise ValueError("nested too deeply")
    return value


def _is_deep(value: Json) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        lists = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [child for children in lists for child in children]
        if not level:
            return False
    return True


def dumps(fields: dict[str, Json]) -> bytes:
    """JSON of what `loads_shallow` gave."""
    try:
        return orjson.dumps(fields)
    except TypeError:  # an integer beyond 64 bits, a lone surrogate
        return json.dumps(fields).encode()
