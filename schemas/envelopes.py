"""Making envelopes: ids that sort by time for observations, ids that repeat for decisions."""

import os
import time
import uuid

from claw_r1.schemas.events import Envelope

VARIANT = "89ab"
DECISIONS = uuid.uuid5(uuid.NAMESPACE_URL, "claw:decisions")


def new_id() -> str:
    """A fresh id: UUID version 7 (RFC 9562), so that ids sort by the time they were made (to the millisecond)."""
    moment, chance = f"{time.time_ns() // 1_000_000:012x}", os.urandom(10)
    digits = chance.hex()
    return f"{moment[:8]}-{moment[8:]}-7{digits[:3]}-{VARIANT[chance[9] & 3]}{digits[3:6]}-{digits[6:18]}"


def decision_id(*subject: str) -> str:
    """Id of a decision that may be taken again after a crash: equal subjects give equal ids (uuid5)."""
    return str(uuid.uuid5(DECISIONS, "\x00".join(subject)))


def now_us() -> int:
    """UTC microseconds."""
    return time.time_ns() // 1000


def envelope(
    producer: str,
    *,
    event_id: str | None = None,
    run_id: str | None = None,
    traceparent: str | None = None,
    causation_id: str | None = None,
    key_name: str | None = None,
) -> Envelope:
    """An envelope that is stamped now. key_name: of the API key of whoever asked for the event."""
    return Envelope(
        event_id=event_id or new_id(),
        occurred_at_us=now_us(),
        producer=producer,
        run_id=run_id,
        traceparent=traceparent,
        causation_id=causation_id,
        key_name=key_name,
    )
