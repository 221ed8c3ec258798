"""OpenAI's completions as vLLM serves them: prompts, as token ids or as text, and their choices.

Only an engine that packs tokens tells them exactly; from any other the calls are stored and not trainable.
"""

from typing import Any

from claw_r1.gateway.call_protocol import CallRequest
from claw_r1.gateway.openai.chat import OpenAIProtocol
from claw_r1.gateway.openai.request import call_request, json_object

NOT_TRAINED = {"echo": "echo", "suffix": "suffix", "prompt_embeds": "prompt_ids", "use_beam_search": "beam_search"}
"""Fields by which a reply is more, or other, than what was sampled after the prompt; and the words for that."""


def parse_completion(body: bytes) -> CallRequest:
    """Parse the body of a completions request; the engine judges its prompt. Raises InvalidRequest with the field at fault."""
    fields = json_object(body)
    return call_request(body, fields)._replace(missing=not_trained(fields))


def not_trained(fields: dict[str, Any]) -> tuple[str, ...]:  # Any: the client's
    """Returns the codes of fields whose replies are never trained."""
    words = [word for name, word in NOT_TRAINED.items() if fields.get(name)]
    return (*words, "best_of") if fields.get("best_of") not in (None, 1) else tuple(words)


class TextCompletions(OpenAIProtocol):
    """`POST /v1/completions`, a `CallProtocol`."""

    name = "completions"
    path = "/v1/completions"
    kind = "text_completion"
    parse = staticmethod(parse_completion)
