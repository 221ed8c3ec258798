"""A reply and what its worker handed over, joined: choices with tokens, whatever the protocol."""

from collections.abc import Sequence
from typing import NamedTuple

from claw_r1.gateway.call_protocol import Choice, EngineReply
from claw_r1.gateway.foreign_json import count
from claw_r1.gateway.tokens.engine_tokens import EngineTokens, Sampled
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.events import Usage
from claw_r1.schemas.json_values import Json

NOTHING = ("prompt_ids", "token_ids", "logprobs", "spans")
"""The parts missing from a choice whose tokens the engine did not report."""
CHOICE_INDEX = "choice_index"


class Outline(NamedTuple):
    """The outline of one choice in a protocol's reply."""

    choice: int
    """Its index."""
    finish_reason: str | None
    """In OpenAI's words, which the pool knows: stop, length, tool_calls; the protocol's own for all else."""
    body: bytes
    """The reply as the client saw it, with this choice alone."""


def reply_of(
    body: bytes,
    outlines: Sequence[Outline],
    engine_tokens: EngineTokens,
    *,
    usage: Json = None,
    ended: bool = True,
    flaws: tuple[str, ...] = (),
) -> EngineReply:
    """The reply that these make. usage: as the protocol says, for an engine that hands nothing over.

    Where a reply with one choice was generated in several goes (tools of the engine's own), each go is a choice, in
    order; the last has the body.
    """
    responses, flaws = engine_tokens.responses, (*engine_tokens.missing, *flaws)
    if not responses:
        return _without_tokens(body, outlines, usage, ended, flaws)
    if len(outlines) == 1 < len(responses):
        before = [Outline(index, each.finish_reason, b"") for index, each in enumerate(responses[:-1])]
        outlines = [*before, outlines[0]._replace(choice=len(before))]
    if sorted(outline.choice for outline in outlines) != list(range(len(responses))):
        return _without_tokens(body, outlines, usage, ended, (CHOICE_INDEX, *flaws))
    first = responses[0]
    choices = [_choice(outline, responses[outline.choice], first, ended, flaws) for outline in outlines]
    sampled_bytes = sum(len(each.ids) for each in responses)
    counts = Usage(
        prompt_tokens=len(first.prompt_ids) // ITEM_BYTES,
        completion_tokens=sampled_bytes // ITEM_BYTES,
        cached_tokens=first.cached_tokens,
    )
    return EngineReply(body, first.prompt_ids, tuple(choices), counts, ended)


def _choice(outline: Outline, own: Sampled, first: Sampled, ended: bool, flaws: tuple[str, ...]) -> Choice:
    return Choice(
        index=outline.choice,
        response_ids=own.ids,
        response_logprobs=own.logprobs,
        spans=own.spans,
        # vLLM calls a whole chat reply `tool_calls` where it holds
        # one, also where it was cut off.
        finish_reason="length" if own.finish_reason == "length" else outline.finish_reason,
        missing=tuple(dict.fromkeys((*own.missing, *flaws))),
        aborted=not ended or own.finish_reason in (None, "abort"),
        body=outline.body,
        prompt_ids=None if own.prompt_ids == first.prompt_ids else own.prompt_ids,
        sampling=own.sampling,
    )


def _without_tokens(
    body: bytes, outlines: Sequence[Outline], usage: Json, ended: bool, flaws: tuple[str, ...]
) -> EngineReply:
    """Choices that share an index are numbered in their order, since two calls must not have one id."""
    indexes = [outline.choice for outline in outlines]
    if len(set(indexes)) < len(indexes):
        indexes, flaws = list(range(len(indexes))), (CHOICE_INDEX, *flaws)
    choices = [_unsampled(index, outline, ended, flaws) for index, outline in zip(indexes, outlines, strict=True)]
    return EngineReply(body, b"", tuple(choices), _reported_usage(usage), ended)


def _unsampled(index: int, outline: Outline, ended: bool, flaws: tuple[str, ...]) -> Choice:
    return Choice(
        index=index,
        response_ids=b"",
        response_logprobs=b"",
        spans=(),
        finish_reason=outline.finish_reason,
        missing=tuple(dict.fromkeys((*NOTHING, *flaws))),
        aborted=not ended,
        body=outline.body,
    )


def _reported_usage(usage: Json) -> Usage:
    """Returns the usage that an engine reports, in OpenAI's names or Anthropic's."""
    counts = usage if isinstance(usage, dict) else {}
    prompt, sampled = (
        next((count(counts[name], 0) for name in names if name in counts), 0)
        for names in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    )
    details = counts.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=sampled,
        cached_tokens=count(cached, 0) if cached is not None else None,
    )
