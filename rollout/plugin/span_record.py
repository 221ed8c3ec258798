"""What one HTTP request had sampled, joined with its `engine.generate` calls by a ContextVar.

No request ids and no table: six requests may carry one X-Request-Id, and nothing is left behind when one ends.
"""

import json
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from claw_r1.rollout.plugin.generation import Generation

Spans = list[tuple[str, int, int]]


class SpanRecord:
    """Choice index -> [(label, start, end)]. `live` counts running generate calls, `base` is the next choice index."""

    __slots__ = ("base", "generations", "live", "sent", "spans", "wants_tokens")

    def __init__(self, *, wants_tokens: bool = False) -> None:
        """wants_tokens: tokens are handed over, too, with what they were sampled by."""
        self.spans: dict[int, Spans] = {}
        self.generations: list[Generation] = []
        self.wants_tokens = wants_tokens
        self.base = 0
        self.live = 0
        self.sent = 0

    def is_ready(self) -> bool:
        """Every call has ended, and there is something that was not handed over yet."""
        return self.live == 0 and len(self.generations if self.wants_tokens else self.spans) > self.sent

    def dump(self) -> bytes:
        """Spans by choice, or (wants_tokens) what was generated since the last time, as compact ASCII JSON."""
        if self.wants_tokens:
            unsent, self.sent = self.generations[self.sent :], len(self.generations)
            return b"[%b]" % b",".join([generation.dump() for generation in unsent])
        self.sent = len(self.spans)
        return json.dumps(self.spans, separators=(",", ":"), sort_keys=True).encode()


current: ContextVar[SpanRecord | None] = ContextVar("claw_record", default=None)


def tap_engine(engine: Any) -> None:  # Any: vLLM's EngineClient; importing it here would load the engine
    """Replace `engine.generate` by one that notes what was sampled, and by which versions."""
    inner = engine.generate

    def generate(prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        request_id = args[0] if args else kwargs.get("request_id", "")
        record = current.get()
        if record is None or "-beam-" in request_id:  # beam search is many one-token calls: it has no spans
            return inner(prompt, sampling_params, *args, **kwargs)  # type: ignore[no-any-return]  # vLLM's own function has no types
        generation = Generation(sampling_params) if record.wants_tokens else None
        params = sampling_params if generation is None else generation.params
        outputs: AsyncGenerator[Any, None] = inner(prompt, params, *args, **kwargs)
        if generation is not None:
            record.generations.append(generation)
        base = record.base
        record.base += sampling_params.n
        record.live += 1
        return _tap(outputs, record, base, generation)

    engine.generate = generate


async def _tap(
    outputs: AsyncGenerator[Any, None], record: SpanRecord, base: int, generation: Generation | None
) -> AsyncGenerator[Any, None]:
    try:
        async for output in outputs:
            if generation is not None:
                generation.take(output)
            for choice in output.outputs:
                if choice.finish_reason is not None and choice.weight_versions is not None:
                    spans = [(span.version, span.start, span.end) for span in choice.weight_versions]
                    record.spans[base + choice.index] = spans
            yield output
    finally:
        record.live -= 1
        await outputs.aclose()  # client gone: abort in the engine now, not at garbage collection
