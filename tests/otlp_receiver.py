"""A receiver of spans, by the schema of OTLP: keeps them, or does not take them as a test says."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ERROR = 2
"""The code of a span that failed."""


@dataclass(frozen=True)
class ReceivedSpan:
    """One span as it came. Its context and those of its links are (trace, span) in hex."""

    service: str
    name: str
    context: tuple[str, str]
    parent: str
    links: tuple[tuple[str, str], ...]
    failed: bool
    attributes: Mapping[str, object]


class Receiver:
    """An OTLP receiver on a free port. `status` is what it answers; while `hang` is set and not over, it does not."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.status, self.hang, self.asked = 200, False, threading.Event()
        self.over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.asked.set()
                if receiver.hang:
                    receiver.over.wait()
                if receiver.status == 200:
                    receiver.spans += _spans(body, self.headers.get("content-encoding"))
                with suppress(ConnectionError):
                    self.send_response(receiver.status)
                    self.end_headers()
                    self.wfile.write(b"\x00rubbish")

            def log_message(self, *_: object) -> None:
                """Nothing: the tests' output is for failures."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def named(self, service: str, name: str = "") -> list[ReceivedSpan]:
        """Returns the spans of a service whose names begin so."""
        return [span for span in list(self.spans) if span.service == service and span.name.startswith(name)]

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


def _spans(body: bytes, encoding: str | None) -> list[ReceivedSpan]:
    assert encoding in (None, "identity"), encoding
    return [
        ReceivedSpan(
            service={pair.key: pair.value.string_value for pair in resource.resource.attributes}["service.name"],
            name=span.name,
            context=(span.trace_id.hex(), span.span_id.hex()),
            parent=span.parent_span_id.hex(),
            links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            failed=span.status.code == ERROR,
            attributes={pair.key: _value(pair.value) for pair in span.attributes},
        )
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _value(value: object) -> object:
    kind = value.WhichOneof("value")  # type: ignore[attr-defined]  # of a generated class
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]  # type: ignore[attr-defined]  # the same
    return getattr(value, kind)
