"""`claw workers` on a real log, with a worker that is a scripted server."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from msgspec.structs import replace

from claw_r1.claw.cli import REFUSALS, app
from claw_r1.claw.workers import reports
from claw_r1.claw.workers.ask import outcome_text
from claw_r1.claw.workers.reports import NEWEST_FIRST, known_workers, newest_versions
from claw_r1.claw.workers.show import as_text
from claw_r1.consumers.runs.workers import worker_row
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import stream_ranges
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import WeightsPublished, WorkerReported
from claw_r1.schemas.topics import WEIGHTS, WORKERS
from tests.claw.events import ENVELOPE
from tests.claw.workers.reported import report

pytestmark = pytest.mark.kafka
WAY = "trainer; not by gloo: a member of the group is gone"
PROBED = {"load": 20.0, "probe": 4.0, "probe_gap": 1e-6}


def publish(log: LogSettings, *events: WorkerReported | WeightsPublished) -> None:
    """Each to its topic."""
    with closing(EventProducer(log)) as producer:
        for event in events:
            topic, key = (WORKERS, event.worker_id) if isinstance(event, WorkerReported) else (WEIGHTS, event.model_id)
            producer.publish_now(topic, key.encode(), event)


def version(number: int, run_id: str) -> WeightsPublished:
    return WeightsPublished(
        envelope=ENVELOPE, model_id="m", run_id=run_id, version=number, digest="d", bytes_total=1, manifest=()
    )


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


@pytest.fixture
def claw(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`claw workers …` on this log; its exit code."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)

    def run(*words: str) -> int:
        try:
            app(["workers", *words, "--prefix", log_settings.prefix, "--json"])
        except SystemExit as ended:
            return int(ended.code or 0)
        except REFUSALS:
            return 2
        raise AssertionError("typer always exits")

    return run


def test_the_list_says_what_each_worker_serves(
    claw: Callable[..., int], log_settings: LogSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions behind are of the worker's own run, however long ago that was; who does not report is silent."""
    old = replace(ENVELOPE, occurred_at_us=ENVELOPE.occurred_at_us - 1_800_000_000)
    publish(
        log_settings,
        *(version(number, "r") for number in range(3)),
        *(version(number, "other") for number in range(NEWEST_FIRST + 1)),
        report(
            "a",
            run_id="r",
            version=0,
            state="behind",
            detail="3 versions",
            kv_usage=0.5,
            sync_ms=PROBED,
            weights_from=WAY,
        ),
        replace(report("b", run_id="other", version=NEWEST_FIRST), envelope=old),
        report("c", state="dead"),
    )
    assert claw("list") == 0
    a, b, c = json.loads(capsys.readouterr().out.splitlines()[-1])["workers"]
    assert (a["versions_behind"], a["state"], a["why"], a["kv_usage"], a["sync_ms"]) == (
        2,
        "behind",
        "3 versions",
        0.5,
        PROBED,
    )
    assert (b["versions_behind"], b["silent"], a["silent"], c["silent"]) == (0, True, False, False)
    assert c["versions_behind"] is None
    text = "\n".join(as_text([worker_row(worker) for worker in known_workers(log_settings)]))
    assert a["weights_from"] == WAY
    for words in ("behind", "50%", "load 20 probe 4", ", from trainer", "silent "):
        assert words in text


def test_workers_of_long_ago_leave_the_list(
    claw: Callable[..., int], log_settings: LogSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who ended or fell silent more than an hour ago is counted, and shown by --all; who reports is shown however seldom."""
    old = replace(ENVELOPE, occurred_at_us=now_us() - 3_700_000_000)
    publish(
        log_settings,
        replace(report("a", state="dead"), envelope=old),
        replace(report("b"), envelope=old),
        replace(report("c", report_interval_s=3600.0), envelope=old),
        report("d", state="dead"),
    )
    for flags, ids, left_out in (((), ["c", "d"], 2), (("--all",), ["a", "b", "c", "d"], 0)):
        assert claw("list", *flags) == 0
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert ([each["worker"] for each in answer["workers"]], answer["left_out"]) == (ids, left_out)


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


def test_no_version_is_read_twice(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is not there is looked for in all of the topic, in ranges that meet; for a dead worker nothing is read."""
    publish(log_settings, *(version(number, "other") for number in range(NEWEST_FIRST + 9)))
    offsets = list[tuple[str, int, int]]()

    def counted(settings: LogSettings, ranges: dict[Place, tuple[int, int]]) -> Iterator[Record]:
        for record in stream_ranges(settings, ranges):
            offsets.append((record.topic, record.partition, record.offset))
            yield record

    monkeypatch.setattr(reports, "stream_ranges", counted)
    publish(log_settings, report("gone", run_id="absent", state="dead"))
    assert ([each.newest for each in known_workers(log_settings)], offsets) == ([None], [])
    assert newest_versions(log_settings, [("m", "absent"), ("m", "other")]) == {("m", "other"): NEWEST_FIRST + 8}
    assert (len(offsets), len(set(offsets))) == (NEWEST_FIRST + 9, NEWEST_FIRST + 9)
