"""The protocols that model calls are served in: the one place where they are registered.

A client's path ends in the left side, of which the first that fits counts; the right side knows the engine's route.
Paths, routing and the routes that engines are asked for come from this table. How to add a protocol: docs/changing.md.
"""

from claw_r1.gateway.anthropic.messages import AnthropicMessages
from claw_r1.gateway.call_protocol import CallProtocol
from claw_r1.gateway.openai.chat import ChatCompletions
from claw_r1.gateway.openai.completions import TextCompletions
from claw_r1.gateway.openai.generate import Generate
from claw_r1.gateway.openai.responses import Responses

Protocols = tuple[tuple[str, CallProtocol], ...]

PROTOCOLS: Protocols = (
    ("chat/completions", ChatCompletions()),
    ("completions", TextCompletions()),
    ("responses", Responses()),
    ("messages", AnthropicMessages()),
    ("generate", Generate()),
)
