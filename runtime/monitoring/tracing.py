"""The opening of a process's spans: by OpenTelemetry's variables, and not unless they name a receiver.

Like the log, spans belong to the process: its root opens them
(`traced`), and whoever has something to tell asks for them (`spans`).
Nothing of OpenTelemetry is imported before.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from claw_r1.runtime.modules import advice

if TYPE_CHECKING:
    from claw_r1.runtime.monitoring.spans import ProcessSpans

PROTOCOL = "http/protobuf"
BASE, WHOLE = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_IN_SPANS = {
    "": False,
    "false": False,
    "no_content": False,
    "true": True,
    "span_only": True,
    "span_and_event": True,  # there are no events
}
Attributes = Mapping[str, str | int | Sequence[str]]

_spans: "ProcessSpans | None" = None


class TracingRefused(OSError):
    """Nothing can be told to the receiver that the variables name."""


def receiver() -> str | None:
    """Returns the URL that takes spans; None: nobody asked for any. Raises TracingRefused."""
    whole, base = os.environ.get(WHOLE), os.environ.get(BASE)
    if not (whole or base) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    url = whole or f"{(base or '').rstrip('/')}/v1/traces"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TracingRefused(f"{WHOLE if whole else BASE} is no address; one looks like http://127.0.0.1:4318")
    for variable in PROTOCOLS:
        if os.environ.get(variable, PROTOCOL) != PROTOCOL:
            raise TracingRefused(f"{variable}: spans are sent by {PROTOCOL} and by nothing else")
    return url


def takes_content() -> bool:
    """Returns whether spans of calls shall hold what was said. Raises TracingRefused."""
    value = os.environ.get(CONTENT, "").lower()
    if value not in CONTENT_IN_SPANS:
        raise TracingRefused(f"{CONTENT} is none of {', '.join(filter(None, CONTENT_IN_SPANS))}")
    return CONTENT_IN_SPANS[value]


@contextmanager
def traced(service: str) -> Iterator[None]:
    """Sends the spans of this process while the block runs, as `claw-SERVICE`. Raises TracingRefused."""
    global _spans
    if receiver() is None:
        yield
        return
    try:
        from claw_r1.runtime.monitoring.spans import ProcessSpans

        _spans = opened = ProcessSpans(f"claw-{service}", content=takes_content())
    except ModuleNotFoundError as error:
        raise TracingRefused(advice(error, ["traces"]) or str(error)) from error
    except ValueError as error:
        raise TracingRefused(f"a variable of OpenTelemetry cannot be: {error}") from error
    try:
        yield
    finally:
        _spans = None
        opened.close()


def spans() -> "ProcessSpans | None":
    """Returns the spans of this process; None: nobody asked for any."""
    return _spans
