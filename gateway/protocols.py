"""The protocols that model calls are served in: the one place where they are registered.

A client's path ends in the left side; the right side knows the engine's route. Paths, routing and the routes that
engines are asked for come from this table. How to add a protocol: docs/changing.md.
"""

from gateway.call_protocol import CallProtocol
from gateway.openai.chat import ChatCompletions

Protocols = tuple[tuple[str, CallProtocol], ...]

PROTOCOLS: Protocols = (
    ("chat/completions", ChatCompletions()),
)  # fmt: skip
