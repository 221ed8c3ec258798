"""`claw workers drain` and `probe` on a real log, with a worker that is a scripted server."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from msgspec.structs import replace

from claw_r1.claw.workers.ask import outcome_text
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import WorkerReported
from tests.claw.workers.reported import PROBED, publish, report

pytestmark = pytest.mark.kafka


class ScriptedWorker:
    """Takes what it is asked for with this status, and then does `then`."""

    def __init__(self, status: int, then: Callable[[], object]) -> None:
        self.requests: list[tuple[str, str | None]] = []
        worker = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                worker.requests.append((self.path, self.headers["authorization"]))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b'{"accepted": true}')
                if status == 202:
                    then()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the name is http.server's
                """Silent."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def scripted(log: LogSettings, *later: WorkerReported, status: int = 202) -> Iterator[ScriptedWorker]:
    """A worker `host-rollout-2` that is ready, and reports `later` once it was asked."""
    worker = ScriptedWorker(status, lambda: publish(log, *later))
    threading.Thread(target=worker.server.serve_forever, daemon=True).start()
    publish(log, report("host-rollout-2", url=worker.url + "/v1", sync_ms={"load": 20.0}))
    try:
        yield worker
    finally:
        worker.server.shutdown()
        worker.server.server_close()


def test_a_drain_waits_until_the_worker_has_ended(
    claw: Callable[..., int], log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked once, with the fleet's secret, at the route beside the API; by the end of its name."""
    monkeypatch.setenv("CLAW_WEIGHTS_SECRET", "quiet")
    ending = [report("host-rollout-2", state="draining", in_flight=3), report("host-rollout-2", state="dead")]
    with scripted(log_settings, *ending) as worker:
        assert claw("drain", "rollout-2", "--timeout-s", "30") == 0
        assert worker.requests == [("/claw/drain", "Bearer quiet")]
    assert claw("drain", "rollout-2") == 2, "it has ended already"


def test_a_wait_is_bounded_and_a_refusal_is_one_line(claw: Callable[..., int], log_settings: LogSettings) -> None:
    """A worker that only goes on, one that wants another secret, one that is not there, and a name that nobody has."""
    with scripted(log_settings, report("host-rollout-2", state="draining", in_flight=1)):
        assert claw("drain", "host-rollout-2", "--timeout-s", "1") == 1
    with scripted(log_settings, status=401):
        assert claw("drain", "rollout-2") == 2
    assert claw("drain", "rollout-2") == 2, "nobody listens there any more"
    assert claw("probe", "rollout-3") == 2


def test_a_probe_waits_for_a_new_comparison(
    claw: Callable[..., int], log_settings: LogSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old gap is no answer; one that takes the worker out is exit code 1."""
    probed = report("host-rollout-2", sync_ms=PROBED)
    with scripted(log_settings, report("host-rollout-2"), probed) as worker:
        assert claw("probe", "rollout-2", "--timeout-s", "30") == 0
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (answer["done"], answer["sync_ms"]["probe_gap"]) == (True, 1e-6)
        publish(log_settings, replace(probed, url=worker.url))
    wrong = report("host-rollout-2", state="starting", detail="gap 2", sync_ms={**PROBED, "probe_gap": 2.0})
    with scripted(log_settings, wrong):
        assert claw("probe", "rollout-2", "--timeout-s", "30") == 1


def test_an_engine_too_busy_for_a_probe_was_not_checked(claw: Callable[..., int], log_settings: LogSettings) -> None:
    """The time of a try without a gap is no comparison."""
    busy = report("host-rollout-2", sync_ms={"load": 20.0, "probe": 5000.0})
    with scripted(log_settings, busy):
        assert claw("probe", "rollout-2", "--timeout-s", "30") == 1
    text = outcome_text(busy, "probe", done=True, timeout_s=30.0)
    assert "not checked: the engine was too busy" in text
