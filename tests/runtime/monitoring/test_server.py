"""Metrics and probes on a port of their own: what they answer, to whom, and who cannot hold them up."""

import http.client
import json
import socket
import threading
import time
from contextlib import closing, suppress
from http import HTTPStatus
from socketserver import ThreadingMixIn

import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from claw_r1.claw.local.ports import free_ports
from claw_r1.runtime.monitoring.registry import process_registry
from claw_r1.runtime.monitoring.server import ANSWERS_MAX, MetricsPortTaken, application, monitored
from tests.patience import until

HOST = "127.0.0.1"


def ask(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(HOST, port, timeout=10)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def test_the_probes_tell_whether_it_lives_and_whether_it_can_work(port: int) -> None:
    """`/livez` is 200 as long as the process answers; `/readyz` is 503 with its reason until there is none."""
    reasons: list[str | None] = ["reading the pool"]
    with monitored(process_registry(), HOST, port, lambda: reasons[-1]):
        assert ask(port, "/livez")[0] == HTTPStatus.OK
        status, body = ask(port, "/readyz")
        assert (status, json.loads(body)) == (503, {"ready": False, "reason": "reading the pool"})
        reasons.append(None)
        status, body = ask(port, "/readyz")
        assert (status, json.loads(body)) == (200, {"ready": True, "reason": None})
        assert ask(port, "/else")[0] == HTTPStatus.NOT_FOUND
    with pytest.raises(OSError, match="refused"):
        ask(port, "/livez")


def test_a_process_that_nothing_but_a_start_helps_is_neither_alive_nor_ready(port: int) -> None:
    """Who watches it by `/livez` starts it again."""
    reasons: list[str | None] = [None]
    with monitored(process_registry(), HOST, port, broken=lambda: reasons[-1]):
        assert (ask(port, "/livez")[0], ask(port, "/readyz")[0]) == (200, 200)
        reasons.append("its reader ended")
        status, body = ask(port, "/livez")
        assert (status, json.loads(body)) == (503, {"status": "broken", "reason": "its reader ended"})
        status, body = ask(port, "/readyz")
        assert (status, json.loads(body)) == (503, {"ready": False, "reason": "its reader ended"})


def test_every_process_tells_its_version_its_memory_and_its_lost_lines(port: int) -> None:
    """They come with the registry, beside what the room adds."""
    registry = process_registry()
    Counter("claw_test_things", "Things.", registry=registry).inc(3)
    with monitored(registry, HOST, port):
        families = {family.name: family for family in text_string_to_metric_families(ask(port, "/metrics")[1])}
    assert {"claw_log_lines_dropped", "claw_info", "claw_test_things", "process_open_fds"} <= families.keys()
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6


def test_it_listens_where_it_is_told_alone(port: int) -> None:
    """The default of every room is this machine's own address, so that nobody else reads it unasked."""
    with monitored(process_registry(), HOST, port), pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_a_taken_port_is_one_line_that_names_it(port: int) -> None:
    """So is an address that is none of this machine's."""
    with socket.create_server((HOST, port)), pytest.raises(MetricsPortTaken, match=rf"{port}.*--metrics-port"):
        monitored(process_registry(), HOST, port).__enter__()
    with pytest.raises(MetricsPortTaken, match=r"192\.0\.2\.1"):
        monitored(process_registry(), "192.0.2.1", port).__enter__()


def test_scrapers_that_never_ask_or_read_hold_up_nobody(port: int) -> None:
    """Silent connections end after their time; those beyond the bound are closed at once, and the next one is answered."""
    with monitored(process_registry(), HOST, port, answer_s=1.0):
        silent = [socket.create_connection((HOST, port), timeout=10) for _ in range(ANSWERS_MAX + 8)]
        for connection in silent:
            assert connection.recv(1) == b""  # closed by the server, of each
            connection.close()
        assert ask(port, "/livez")[0] == HTTPStatus.OK


def test_scrapers_that_ask_byte_by_byte_are_ended_for_the_next_one(port: int) -> None:
    """Each byte begins a new wait, so none of them would ever end: once all places are taken, the oldest goes."""
    with monitored(process_registry(), HOST, port, answer_s=0.5):
        slow = [socket.create_connection((HOST, port), timeout=10) for _ in range(ANSWERS_MAX)]
        answered = threading.Event()

        def drip() -> None:
            while not answered.wait(0.1):
                for connection in slow:
                    with suppress(OSError):
                        connection.send(b"G")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            until(lambda: _answers(port))
        finally:
            answered.set()
            dripping.join()
            for connection in slow:
                connection.close()


def _answers(port: int) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return ask(port, "/livez")[0] == HTTPStatus.OK
    return False


def test_a_thread_that_cannot_be_started_takes_no_place(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process at its bound of threads refuses that question, and not the ones after it for ever."""
    with monitored(process_registry(), HOST, port):
        monkeypatch.setattr(ThreadingMixIn, "process_request", refuse)
        for _ in range(ANSWERS_MAX + 1):
            assert not _answers(port)
        monkeypatch.undo()
        assert ask(port, "/livez")[0] == HTTPStatus.OK


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_process_that_is_done_stays_until_its_end_was_seen(port: int) -> None:
    """One that nobody reads goes at once; so does one that is asked to stop, and one that nobody reads any more."""
    stop = threading.Event()
    with monitored(process_registry(), HOST, port) as watchers:
        watchers.wait_for_one(stop)
        ask(port, "/metrics")
        left = threading.Thread(target=watchers.wait_for_one, args=(stop,))
        left.start()
        ask(port, "/livez")
        assert left.is_alive()
        ask(port, "/metrics")
        left.join()
        watchers.wait_for_one(stop, timeout_s=0.0)
        stop.set()
        watchers.wait_for_one(stop)


def test_ten_scrapers_at_once_are_answered_each(port: int) -> None:
    """Whole expositions, all the same."""
    registry = process_registry()
    things = Counter("claw_test_things", "Things.", ["kind"], registry=registry)
    for number in range(2000):
        things.labels(str(number)).inc()
    answers: list[tuple[int, str]] = []
    with monitored(registry, HOST, port):
        threads = [threading.Thread(target=lambda: answers.append(ask(port, "/metrics"))) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [status for status, _ in answers] == [200] * 10
    assert all(body.count("claw_test_things_total{") == 2000 for _, body in answers)


def test_a_collector_that_fails_is_that_answers_failure_alone(port: int) -> None:
    """The scrape is 500; probes and the next scrape are as before."""
    registry, fails = process_registry(), [True]

    class Failing:
        def collect(self) -> list[object]:
            if fails[0]:
                raise RuntimeError("no value")
            return []

    fails[0] = False
    registry.register(Failing())  # type: ignore[arg-type]  # a collector by its method
    fails[0] = True
    with monitored(registry, HOST, port):
        assert ask(port, "/metrics")[0] == HTTPStatus.INTERNAL_SERVER_ERROR
        assert ask(port, "/livez")[0] == HTTPStatus.OK
        fails[0] = False
        assert ask(port, "/metrics")[0] == HTTPStatus.OK


def test_without_a_port_nothing_listens() -> None:
    """No thread is started."""
    before = threading.active_count()
    with monitored(process_registry(), HOST, None):
        assert threading.active_count() <= before  # those of earlier tests may end meanwhile


def test_a_question_for_readiness_is_asked_when_it_comes() -> None:
    """Nothing is remembered between two."""
    asked: list[float] = []
    app = application(process_registry(), lambda: asked.append(time.monotonic()))
    for _ in range(2):
        app({"PATH_INFO": "/readyz"}, lambda *_: lambda _: None)
    assert len(asked) == 2
