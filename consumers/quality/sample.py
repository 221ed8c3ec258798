"""A captured call as a scorer sees it: plain values, parsed once for all scorers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from schemas.arrays import unpack_floats, unpack_ids
from schemas.events import CallCaptured


@dataclass(frozen=True)
class Sample:
    """Views of one call; what does not parse is empty."""

    call: CallCaptured
    body: Callable[[], bytes | None]
    """Gives the whole request body, or None where it is not to be had; asked by the scorers that look at it."""

    @cached_property
    def ids(self) -> list[int]:
        """Response token ids."""
        return unpack_ids(self.call.response_ids[: len(self.call.response_ids) // 4 * 4])

    @cached_property
    def logprobs(self) -> list[float]:
        """Of the response tokens."""
        return unpack_floats(self.call.response_logprobs[: len(self.call.response_logprobs) // 4 * 4])

    @cached_property
    def message(self) -> dict[str, Any] | None:  # JSON of the engine's
        """The reply's message; None where the reply is no chat completion."""
        choices = _parsed(self.call.response_body).get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        return message if isinstance(message, dict) else None

    @cached_property
    def tools(self) -> dict[str, dict[str, Any]] | None:  # JSON schemas of the client's
        """Parameter schema by name of the request's functions; None where nobody knows what was asked."""
        request = _parsed(self.body() or b"")
        if not request:
            return None
        tools = request.get("tools") or []
        functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
        return {
            one["name"]: one.get("parameters") or {} for one in functions if isinstance(one, dict) and "name" in one
        }


def _parsed(body: bytes) -> dict[str, Any]:  # JSON
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
