"""An engine's reply: what training needs is read out of it, and what the client did not ask for is taken out of it.

Invariant: response ids and log-probabilities are the engine's own. Whatever is absent or contradictory is named in
`missing`; it never stops the reply.
"""

from claw_r1.gateway.call_protocol import CallRequest, Choice, EngineReply
from claw_r1.gateway.errors import UpstreamBroken
from claw_r1.gateway.foreign_json import count, dumps, loads_shallow
from claw_r1.gateway.openai.request import LOGPROBS, TOKEN_IDS
from claw_r1.gateway.openai.sse import without_fields
from claw_r1.gateway.tokens.packing import SampledTokens, packed_content, packed_ids
from claw_r1.gateway.tokens.reply import CHOICE_INDEX, told_usage
from claw_r1.gateway.tokens.version_spans import RawSpans, parse_header, spans_of
from claw_r1.gateway.upstream.pool import UpstreamReply
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.http import VERSION_SPANS_HEADER
from claw_r1.schemas.json_values import Json

PROMPT = "prompt_token_ids"


def parse_reply(reply: UpstreamReply, request: CallRequest) -> EngineReply:
    """Read a 200 of an engine. Raises UpstreamBroken when it is no chat completion with choices, or nested too deeply."""
    raw, spans = reply.body, parse_header(reply.headers.get(VERSION_SPANS_HEADER))
    fields = completion(raw)
    tokens = [
        SampledTokens(packed_ids(answer.get("token_ids")), packed_content(answer.get("logprobs")))
        for answer in fields["choices"]
    ]
    return understood(fields, packed_ids(fields.get(PROMPT)), tokens, spans, request, without_added(raw, request))


def understood(
    fields: dict[str, Json],
    prompt_ids: bytes | None,
    sampled: list[SampledTokens],
    spans: RawSpans,
    request: CallRequest,
    body: bytes | None = None,
) -> EngineReply:
    """A completion with its tokens, which belong to `fields["choices"]` in order.

    prompt_ids: packed, None where there are none. body: what the client got, if known. What the client did not ask for
    is taken out of `fields`.
    """
    answers = fields["choices"]
    if body is None or len(answers) > 1:
        clean(fields, request)
    body = dumps(fields) if body is None else body
    indexes = [count(answer.get("index"), position) for position, answer in enumerate(answers)]
    if len(set(indexes)) < len(indexes):
        sampled, indexes = _numbered(sampled, indexes)
    choices = []
    for index, answer, tokens in zip(indexes, answers, sampled, strict=True):
        own_body = body if len(answers) == 1 else dumps({**fields, "choices": [answer]})
        choices.append(_choice(index, answer, tokens, spans, prompt_ids is None, own_body))
    return EngineReply(body, prompt_ids or b"", tuple(choices), told_usage(fields.get("usage")))


def _numbered(sampled: list[SampledTokens], indexes: list[int]) -> tuple[list[SampledTokens], list[int]]:
    """Choices that share an index: numbered in their order, since two calls must not have one id, and named as broken."""
    shared = {index for index in indexes if indexes.count(index) > 1}
    named = [
        tokens._replace(missing=(*tokens.missing, CHOICE_INDEX)) if index in shared else tokens
        for tokens, index in zip(sampled, indexes, strict=True)
    ]
    return named, list(range(len(indexes)))


def _choice(
    index: int, answer: dict[str, Json], tokens: SampledTokens, spans: RawSpans, no_prompt: bool, body: bytes
) -> Choice:
    ids = tokens.ids or b""
    missing = ["prompt_ids"] if no_prompt else []
    if tokens.ids is None:
        missing.append("token_ids")
    if tokens.logprobs is None or len(tokens.logprobs) != len(ids):
        missing.append("logprobs")
    versions = spans_of(spans, index, len(ids) // ITEM_BYTES)
    if versions.missing:
        missing.append(versions.missing)
    reason = answer.get("finish_reason")
    return Choice(
        index=index,
        response_ids=ids,
        response_logprobs=tokens.logprobs or b"",
        spans=versions.spans,
        finish_reason=encodable(reason),
        missing=tuple(dict.fromkeys((*missing, *tokens.missing))),
        aborted=reason == "abort" or not tokens.ended,
        body=body,
    )


def without_added(raw: bytes, request: CallRequest) -> bytes | None:
    """The engine's bytes without what only capture asked for; None where that cannot be cut out (nested deeply)."""
    token_ids, logprobs = TOKEN_IDS in request.added, LOGPROBS in request.added
    try:
        return without_fields(raw, token_ids=token_ids, logprobs=logprobs)
    except ValueError:
        return None


def written_anew(raw: bytes, request: CallRequest) -> bytes:
    """The same content as `without_added`, of a completion that cannot be cut. Raises UpstreamBroken for what is none."""
    fields = completion(raw)
    clean(fields, request)
    return dumps(fields)


def clean(fields: dict[str, Json], request: CallRequest) -> None:
    """Take what only capture asked for out of a completion, or a chunk of one."""
    if TOKEN_IDS in request.added:
        fields.pop(PROMPT, None)
    choices = fields.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and TOKEN_IDS in request.added:
            choice.pop("token_ids", None)
        if isinstance(choice, dict) and LOGPROBS in request.added and "logprobs" in choice:
            choice["logprobs"] = None  # OpenAI's schema wants the field, null where nobody asked


def encodable(text: Json) -> str | None:
    """The text without lone surrogates, which JSON may hold and no event; None when it is no text."""
    if not isinstance(text, str):
        return None
    return text if text.isascii() else text.encode(errors="replace").decode()


def completion(raw: bytes) -> dict[str, Json]:
    """A completion with at least one choice. Raises UpstreamBroken."""
    try:
        fields = loads_shallow(raw)
    except ValueError as broken:
        raise UpstreamBroken("the engine's reply is not valid JSON", code="upstream_bad_reply") from broken
    if not isinstance(fields, dict):
        raise UpstreamBroken("the engine's reply is no JSON object", code="upstream_bad_reply")
    return with_choices(fields)


def with_choices(fields: dict[str, Json]) -> dict[str, Json]:
    """A completion that has a choice. Raises UpstreamBroken."""
    answers = fields.get("choices")
    if not (isinstance(answers, list) and answers and all(isinstance(answer, dict) for answer in answers)):
        raise UpstreamBroken("the engine's reply has no choices", code="upstream_bad_reply")
    return fields
