"""Model calls as spans, named after OpenTelemetry's conventions for
generative AI. What was said is in the log, and in a span only where
somebody asks for it (`claw_r1.gateway.capture.span_content`).

Each attribute costs a call some microseconds: what its event says
anyhow is found there, by `claw.call_id`.
"""

from typing import TYPE_CHECKING

from claw_r1.gateway.call_protocol import CallProtocol, EngineReply
from claw_r1.gateway.capture.idempotency import Attempt
from claw_r1.gateway.headers import ClientHeaders, version_range
from claw_r1.gateway.paths import Identity
from claw_r1.gateway.upstream.engines import Engine
from claw_r1.runtime.monitoring.tracing import Attributes, spans

if TYPE_CHECKING:
    from claw_r1.runtime.monitoring.spans import OpenSpan

OPERATIONS = {"completions": "text_completion", "generate": "text_completion"}
"""By protocol; all others are chats."""
PROVIDERS = {"messages": "anthropic"}
"""The provider that a protocol comes from; all others are OpenAI's."""


def call_span(
    protocol: CallProtocol, model: str | None, headers: ClientHeaders, identity: Identity, attempt: Attempt
) -> "OpenSpan | None":
    """Begins the span of a call, below its client's. None: nobody asked for spans."""
    if (own := spans()) is None:
        return None
    operation = OPERATIONS.get(protocol.name, "chat")
    attributes: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": PROVIDERS.get(protocol.name, "openai"),
        "gen_ai.conversation.id": identity.trajectory_id,
        "claw.group_id": identity.group_id,
        "claw.call_id": attempt.call_id,
        **({"claw.repeated": True} if attempt.finished is not None else {}),
        **({"gen_ai.request.model": model} if model else {}),
        **({"claw.run_id": headers.run_id} if headers.run_id else {}),
    }
    return own.begin(f"{operation} {model or ''}".rstrip(), headers.traceparent, attributes)


def reply_attributes(reply: EngineReply, engine: Engine) -> Attributes:
    """Returns what a reply adds to the span of its call."""
    return {
        "gen_ai.usage.input_tokens": reply.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": reply.usage.completion_tokens,
        "gen_ai.response.finish_reasons": [choice.finish_reason or "" for choice in reply.choices],
        **({"claw.worker_id": engine.worker_id} if engine.worker_id else {"server.address": engine.url}),
        **({"claw.policy_version": version_range(reply.spans)} if reply.spans else {}),
    }
