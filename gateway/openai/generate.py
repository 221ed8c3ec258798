"""POST …/v1/generate, Claw-R1's own: token ids in, token ids out. An engine's completions by
token ids, in other words."""

from typing import Any

from claw_r1.gateway.call_protocol import CallRequest, EngineReply
from claw_r1.gateway.errors import InvalidRequest, UpstreamBroken
from claw_r1.gateway.foreign_json import dumps, loads
from claw_r1.gateway.openai.completions import TextCompletions, parse_completion
from claw_r1.gateway.openai.request import json_object
from claw_r1.gateway.tokens.packing import packed_ids
from claw_r1.gateway.upstream.http_upstream import UpstreamReply
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.http import version_label

PROMPTS = ("prompt_ids", "prompt_token_ids")
REFUSED = ("stream", "image_data", "video_data")


def parse_generate(body: bytes) -> CallRequest:
    """Understand `{prompt_ids, sampling_params?, model?}`; what else stands there counts as a sampling parameter.

    Raises InvalidRequest with the field at fault.
    """
    fields = json_object(body)
    prompt = next((fields.pop(name) for name in PROMPTS if name in fields), None)
    if not packed_ids(prompt):
        raise InvalidRequest("prompt_ids must be a list of token ids that is not empty", param="prompt_ids")
    params = fields.pop("sampling_params", None) or {}
    if not isinstance(params, dict):
        raise InvalidRequest("sampling_params must be an object", param="sampling_params")
    sampling: dict[str, Any] = {**params, **fields}
    refused = next(
        (name for name in REFUSED if sampling.get(name)), "n" if sampling.get("n") not in (None, 1) else None
    )
    if refused is not None:
        raise InvalidRequest(f"{refused} is not served here: use /v1/completions", param=refused)
    sampling.pop("logprobs", None)  # they are always there
    try:
        plain = dumps({**sampling, "prompt": prompt})
    except (RecursionError, ValueError) as broken:
        raise InvalidRequest("the body is nested too deeply, or holds a number of too many digits") from broken
    return parse_completion(plain)._replace(body=body)


class Generate(TextCompletions):
    """`POST /v1/generate`, a `CallProtocol`."""

    name = "generate"
    parse = staticmethod(parse_generate)

    def parse_reply(self, reply: UpstreamReply) -> EngineReply:
        """Parses a reply (`CallProtocol.parse_reply`). Raises UpstreamBroken for an engine that does not hand its tokens
        over, too."""
        understood = super().parse_reply(reply)
        choice = understood.choices[0]
        if not understood.prompt_ids:
            raise UpstreamBroken("the engine does not tell which tokens it sampled", code="upstream_bad_reply")
        answer = loads(understood.body)["choices"][0]
        body = dumps(
            {
                "token_ids": unpack_ids(choice.response_ids),
                "log_probs": unpack_floats(choice.response_logprobs),
                "spans": [[version_label(span.run_id, span.version), span.start, span.end] for span in choice.spans],
                "stop_reason": choice.finish_reason,
                "text": answer.get("text"),
            }
        )
        choice.body = body
        return understood._replace(body=body)
