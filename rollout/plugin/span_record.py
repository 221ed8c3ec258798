"""The version spans of one HTTP request, joined with its `engine.generate` calls by a ContextVar.

No request ids and no table: six requests may carry one X-Request-Id, and nothing is left behind when one ends.
"""

import json
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

Spans = list[tuple[str, int, int]]


class SpanRecord:
    """Choice index -> [(label, start, end)]. `live` counts running generate calls, `base` is the next choice index."""

    __slots__ = ("base", "live", "sent", "spans")

    def __init__(self) -> None:
        self.spans: dict[int, Spans] = {}
        self.base = 0
        self.live = 0
        self.sent = 0

    def is_ready(self) -> bool:
        """Every call has ended, and there are spans that were not handed over yet."""
        return self.live == 0 and len(self.spans) > self.sent

    def dump(self) -> bytes:
        """The spans as compact ASCII JSON; marks them as handed over."""
        self.sent = len(self.spans)
        return json.dumps(self.spans, separators=(",", ":"), sort_keys=True).encode()


current: ContextVar[SpanRecord | None] = ContextVar("claw_record", default=None)


def tap_engine(engine: Any) -> None:  # Any: vLLM's EngineClient; importing it here would load the engine
    """Replace `engine.generate` by one that notes the spans of every finished choice."""
    inner = engine.generate

    def generate(prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        outputs: AsyncGenerator[Any, None] = inner(prompt, sampling_params, *args, **kwargs)
        request_id = args[0] if args else kwargs.get("request_id", "")
        record = current.get()
        if record is None or "-beam-" in request_id:  # beam search is many one-token calls: it has no spans
            return outputs
        base = record.base
        record.base += sampling_params.n
        record.live += 1
        return _tap(outputs, record, base)

    engine.generate = generate


async def _tap(outputs: AsyncGenerator[Any, None], record: SpanRecord, base: int) -> AsyncGenerator[Any, None]:
    try:
        async for output in outputs:
            for choice in output.outputs:
                if choice.finish_reason is not None and choice.weight_versions is not None:
                    spans = [(span.version, span.start, span.end) for span in choice.weight_versions]
                    record.spans[base + choice.index] = spans
            yield output
    finally:
        record.live -= 1
        await outputs.aclose()  # client gone: abort in the engine now, not at garbage collection
