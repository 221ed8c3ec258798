"""Spans reach a receiver that takes them; one that does not costs spans, and nothing else."""

import threading
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from claw_r1.runtime.monitoring.registry import process_registry
from claw_r1.runtime.monitoring.tracing import CONTENT, TracingRefused, receiver, spans, traced
from tests.otlp_receiver import Receiver
from tests.patience import until

CALLERS = "00-{:032x}-{:016x}-01"
NOT_SAMPLED = f"00-{7:032x}-{7:016x}-00"


@pytest.fixture
def otlp(monkeypatch: pytest.MonkeyPatch):
    with Receiver() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield running
    # A close waits for nobody, so that the thread may still say in the next test that nothing was taken.
    until(lambda: not any(thread.name.startswith("OtelBatch") for thread in threading.enumerate()), "no thread sends")


def metric(outcome):
    return process_registry().get_sample_value("claw_spans_total", {"outcome": outcome})


def one_call(parent=None):
    with spans().begin("chat", parent, {"a": 1}) as span:
        return span.traceparent


def test_a_span_is_below_its_clients_and_says_what_it_was_told(otlp):
    with traced("room"), suppress(ZeroDivisionError), spans().begin("chat m", CALLERS.format(5, 6), {"a": "b"}) as span:
        own = span.traceparent
        span.add({"n": 3, "list": ["x", "y"]})
        raise ZeroDivisionError
    assert spans() is None
    (one,) = otlp.spans
    assert (one.service, one.name, one.failed) == ("claw-room", "chat m", True)
    assert (one.context[0], one.parent) == (f"{5:032x}", f"{6:016x}")
    assert own == "00-{}-{}-01".format(*one.context)
    assert one.attributes == {"a": "b", "n": 3, "list": ["x", "y"]}


@pytest.mark.parametrize("parent", [None, "", "rubbish", f"00-{0:032x}-{0:016x}-01", "ff-" + "0" * 60])
def test_who_names_no_parent_begins_a_trace(otlp, parent):
    with traced("room"):
        one_call(parent)
    assert otlp.spans[0].parent == ""


def test_work_on_many_calls_is_linked_to_each_that_is_sampled(otlp):
    """As many spans as their links need; a call named twice is linked once, and whatever is no trace context is no call."""
    calls = [CALLERS.format(number, number) for number in range(1, 301)]
    with traced("room"):
        spans().record("fold", 1, [*calls, calls[0], None, "rubbish", NOT_SAMPLED], {"rows": 2})
        spans().record("fold", 1, [None, NOT_SAMPLED], {})
    assert [len(span.links) for span in otlp.spans] == [128, 128, 44]
    assert {link for span in otlp.spans for link in span.links} == {tuple(call.split("-")[1:3]) for call in calls}


def test_a_share_of_the_calls_keeps_whole_ways(otlp, monkeypatch):
    """The standard sampler decides over calls; work on those that it took is told, whatever it would say of a new trace."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    with traced("room"):
        assert not int(one_call()[-2:], 16) & 1
        sampled = one_call(CALLERS.format(1, 2))
        spans().record("fold", 1, [sampled], {})
    assert [span.name for span in otlp.spans] == ["chat", "fold"]


@pytest.mark.parametrize("status", [503, 400])
def test_a_receiver_that_refuses_is_one_line_until_it_takes_them_again(otlp, monkeypatch, status):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    otlp.status = status
    with traced("room"), capture_logs() as logs:
        one_call()
        until(lambda: metric("refused") == 1)
        one_call()
        until(lambda: metric("refused") == 2)
        otlp.status = 200
        one_call()
        until(lambda: metric("exported") == 1)
    assert [line["event"] for line in logs] == ["spans_refused", "spans_taken_again"]


def test_a_receiver_that_hangs_costs_the_spans_that_do_not_fit(otlp, monkeypatch):
    """Nobody waits: calls go on, what does not fit is counted, and the end of the process comes in its time."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    otlp.hang = True
    with traced("room"):
        one_call()
        assert otlp.asked.wait(30)
        for _ in range(20):
            one_call()
        assert metric("dropped") == 12
    assert otlp.spans == []
    assert not otlp.over.is_set()


def test_nobody_asked_for_spans(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with traced("room"):
        assert spans() is None
        assert metric("dropped") == 0


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "OTEL_EXPORTER_OTLP_ENDPOINT is no address"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector/x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is no address"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL: spans are sent by http/protobuf"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many", "a variable of OpenTelemetry cannot be"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "a variable of OpenTelemetry cannot be"),
        (CONTENT, "event_only", f"{CONTENT} is none of false, no_content, true, span_only, span_and_event"),
    ],
)
def test_variables_that_name_no_receiver_are_refused(otlp, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    with pytest.raises(TracingRefused, match=said), traced("room"):
        pass


def test_a_whole_address_is_taken_as_it_is(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://one:4318/")
    assert receiver() == "http://one:4318/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://two/spans")
    assert receiver() == "http://two/spans"
