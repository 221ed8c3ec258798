"""The generations of one HTTP request, joined with its `engine.generate` calls by a ContextVar.

No request ids and no table: six requests may carry one X-Request-Id, and nothing is left behind when one ends.
"""

from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from claw_r1.rollout.plugin.generation import Generation


class Generations:
    """The generations of one request. `live` counts generate calls that run."""

    __slots__ = ("live", "made", "sent")

    def __init__(self) -> None:
        self.made: list[Generation] = []
        self.live = 0
        self.sent = 0

    def is_ready(self) -> bool:
        """Every call has ended, and there is something that was not handed over yet."""
        return self.live == 0 and len(self.made) > self.sent

    def dump(self) -> bytes:
        """Returns the generations since the last time, as compact ASCII JSON."""
        unsent, self.sent = self.made[self.sent :], len(self.made)
        return b"[%b]" % b",".join([generation.dump() for generation in unsent])


current: ContextVar[Generations | None] = ContextVar("claw_generations", default=None)
"""The generations of the request that is answered; None: nobody asked for its tokens."""


def tap_engine(engine: Any, adapter: Any = None) -> None:  # Any: vLLM's; importing them here would load the engine
    """Replace `engine.generate` by one that notes what was sampled, by which versions. adapter: LoRARequest of all calls."""
    inner = engine.generate

    def generate(prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        if adapter is not None:
            kwargs["lora_request"] = adapter
        request_id = args[0] if args else kwargs.get("request_id", "")
        record = current.get()
        if record is None or "-beam-" in request_id:  # beam search is many one-token calls: it has no spans
            return inner(prompt, sampling_params, *args, **kwargs)  # type: ignore[no-any-return]  # vLLM's own function has no types
        generation = Generation(sampling_params)
        outputs: AsyncGenerator[Any, None] = inner(prompt, generation.params, *args, **kwargs)
        record.made.append(generation)
        record.live += 1
        return _tap(outputs, record, generation)

    engine.generate = generate


async def _tap(
    outputs: AsyncGenerator[Any, None], record: Generations, generation: Generation
) -> AsyncGenerator[Any, None]:
    try:
        async for output in outputs:
            generation.take(output)
            yield output
    finally:
        record.live -= 1
        await outputs.aclose()  # client gone: abort in the engine now, not at garbage collection
