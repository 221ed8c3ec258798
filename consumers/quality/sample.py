"""A captured call as a scorer sees it: plain values, parsed once for all scorers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from claw_r1.datapool.view.conversations import CallBodies, function_parameters, reply_message
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.events import CallCaptured


@dataclass(frozen=True)
class Sample:
    """Views of one call; what does not parse is empty."""

    call: CallCaptured
    body: Callable[[], bytes | None]
    """Gives the whole request body, or None where it is lost; called by the scorers that look at it."""

    @cached_property
    def ids(self) -> list[int]:
        """Response token ids."""
        return unpack_ids(self.call.response_ids[: len(self.call.response_ids) // 4 * 4])

    @cached_property
    def logprobs(self) -> list[float]:
        """The log-probabilities of the response tokens."""
        return unpack_floats(self.call.response_logprobs[: len(self.call.response_logprobs) // 4 * 4])

    @cached_property
    def message(self) -> dict[str, Any] | None:  # JSON of the engine's
        """The reply's message in chat's format; None where the reply says nothing in words."""
        return reply_message(CallBodies.of(self.call, b""))

    @cached_property
    def tools(self) -> dict[str, dict[str, Any]] | None:  # JSON schemas of the client's
        """Parameter schema by name of the offered functions; None where the request is lost."""
        return function_parameters(CallBodies.of(self.call, self.body() or b""))
