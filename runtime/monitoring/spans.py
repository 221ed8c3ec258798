"""Spans by OpenTelemetry's SDK: made here, sent by a thread of the SDK's.

Invariant: nobody waits for the receiver. What the queue has no room for is dropped,
what the receiver refuses is gone, and both are counted.
"""

import logging
import os
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Self

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from claw_r1.runtime.monitoring.tracing import Attributes

log = structlog.get_logger()

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the conventions by which spans and their attributes are named."""
LINKS_MAX = 128
"""The most links of one span, by the SDK's default."""
AT_ONCE = "128"
"""Spans of one request, unless a variable says otherwise: encoding
the SDK's 512 holds up the threads of a busy gateway."""
CLOSE_S = 2.0


class ProcessSpans:
    """The spans of one process. Safe from any thread."""

    def __init__(self, service: str, *, content: bool = False) -> None:
        """content: the spans of calls shall hold what was said."""
        self._content = content
        # It would write a line in a form of its own for each failure.
        own = logging.getLogger("opentelemetry")
        own.propagate, own.handlers = False, [logging.NullHandler()]
        name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
        resource = Resource.create({**name, "service.instance.id": f"{socket.gethostname()}-{os.getpid()}"})
        self._queue = BoundedQueue(CountedExporter(OTLPSpanExporter()))
        self._of_calls, self._of_batches = [self._tracer(resource, sampler) for sampler in (None, ALWAYS_ON)]

    def _tracer(self, resource: Resource, sampler: Sampler | None) -> Tracer:
        """sampler: None: as the variables say."""
        provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
        provider.add_span_processor(self._queue)
        return provider.get_tracer("claw_r1", schema_url=SCHEMA)

    @property
    def counts(self) -> Mapping[str, int]:
        """Returns how many spans went which way."""
        exporter = self._queue.exporter
        return {"exported": exporter.exported, "refused": exporter.refused, "dropped": self._queue.dropped}

    def begin(self, name: str, parent: str | None, attributes: Attributes) -> "OpenSpan":
        """Begins the span of work for one caller. parent: the caller's `traceparent`."""
        return OpenSpan(self._of_calls.start_span(name, _context(parent), SpanKind.SERVER, attributes), self._content)

    def record(self, name: str, began_us: int, traceparents: Iterable[str | None], attributes: Attributes) -> None:
        """Spans of work on many calls that is over, linked to those of them that are sampled: none where none is."""
        contexts = (get_current_span(_context(each)).get_span_context() for each in dict.fromkeys(traceparents))
        links = iter([Link(context) for context in contexts if context.is_valid and context.trace_flags.sampled])
        while some := list(islice(links, LINKS_MAX)):
            span = self._of_batches.start_span(
                name, Context(), SpanKind.CONSUMER, attributes, links=some, start_time=began_us * 1000
            )
            span.end()

    def close(self) -> None:
        """Sends what waits, for `CLOSE_S` at most."""
        closing = threading.Thread(target=self._queue.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_S)


class OpenSpan:
    """The span of work under way. It ends with the block, by whose error the work failed."""

    def __init__(self, span: Span, content: bool) -> None:
        self._span = span
        self.takes_content = content and span.is_recording()

    @property
    def traceparent(self) -> str:
        """The header that makes it the parent of another span."""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def add(self, attributes: Attributes) -> None:
        """Adds what is known by now."""
        self._span.set_attributes(attributes)

    def fail(self, reason: str) -> None:
        """The work failed. reason: one of few words."""
        self._span.set_attribute("error.type", reason)
        self._span.set_status(StatusCode.ERROR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class BoundedQueue(BatchSpanProcessor):
    """The SDK's queue, which is full before it drops unseen."""

    def __init__(self, exporter: "CountedExporter") -> None:
        self.exporter, self.dropped, self._accepted_count = exporter, 0, 0
        self._waiting_max = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "2048"))
        self._counting = threading.Lock()
        at_once = int(os.environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", AT_ONCE))
        super().__init__(exporter, self._waiting_max, max_export_batch_size=min(self._waiting_max, at_once))

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span, where there is room."""
        with self._counting:
            if self._accepted_count - self.exporter.given >= self._waiting_max:
                self.dropped += 1
                return
            self._accepted_count += 1
        super().on_end(span)


class CountedExporter(SpanExporter):
    """Another exporter, with counts of what became of its spans; the
    first failure is a line in the log."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.given = self.exported = self.refused = 0
        self._exporter = exporter
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends spans. In the queue's thread."""
        self.given += len(spans)
        result = self._exporter.export(spans)
        fails = result is not SpanExportResult.SUCCESS
        if fails:
            self.refused += len(spans)
        else:
            self.exported += len(spans)
        if fails != self._fails:
            log.warning("spans_refused" if fails else "spans_taken_again", refused=self.refused)
        self._fails = fails
        return result

    def shutdown(self) -> None:
        """Gives up what is being sent."""
        self._exporter.shutdown()


def _context(traceparent: str | None) -> Context:
    return TraceContextTextMapPropagator().extract({"traceparent": traceparent} if traceparent else {}, Context())
