"""Reports of workers, as a test needs them."""

from msgspec.structs import replace

from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import WorkerReported

START_US = 1_000_000_000_000_000


def report(worker_id: str = "w-1", *, at_s: float | None = None, **fields: object) -> WorkerReported:
    """at_s: seconds after `START_US`; None: now."""
    stamp = envelope("test/1", run_id="r")
    shared = {"url": "http://127.0.0.1:1", "model_id": "m", "model": "m", "state": "ready", "report_interval_s": 30.0}
    return WorkerReported(
        envelope=stamp if at_s is None else replace(stamp, occurred_at_us=START_US + int(at_s * 1e6)),
        worker_id=worker_id,
        **{**shared, **fields},  # type: ignore[arg-type]  # each a field of its type
    )
