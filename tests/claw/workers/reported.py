"""Reports of workers, as a test needs them."""

from contextlib import closing

from msgspec.structs import replace

from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import WeightsPublished, WorkerReported
from claw_r1.schemas.topics import WEIGHTS, WORKERS
from tests.claw.events import ENVELOPE

START_US = 1_000_000_000_000_000
PROBED = {"load": 20.0, "probe": 4.0, "probe_gap": 1e-6}


def report(worker_id: str = "w-1", *, at_s: float | None = None, **fields: object) -> WorkerReported:
    """at_s: seconds after `START_US`; None: now."""
    stamp = envelope("test/1", run_id="r")
    shared = {"url": "http://127.0.0.1:1", "model_id": "m", "model": "m", "state": "ready", "report_interval_s": 30.0}
    return WorkerReported(
        envelope=stamp if at_s is None else replace(stamp, occurred_at_us=START_US + int(at_s * 1e6)),
        worker_id=worker_id,
        **{**shared, **fields},  # type: ignore[arg-type]  # each a field of its type
    )


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
