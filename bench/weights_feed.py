"""The time that readers of claw.weights take to get on behind many versions of a large model, on a real broker.

`feed_10k_s`: a worker is behind them; `resume_10k_s`: a trainer has its history; `decode_10k_s`: what all readers took
before, each manifest decoded. `python -m bench.weights_feed [VERSIONS [TENSORS]]` prints JSON.
"""

import asyncio
import time
from collections.abc import Callable

from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.rollout.topics import WeightsTopic
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import TensorSpec, WeightsPublished
from claw_r1.schemas.topics import WEIGHTS
from claw_r1.trainer.plan.journal import kafka_history

RUN, MODEL = "bench", "m"
PER_TRANSACTION = 100
DECODED = 500
"""Decoding all of them takes a minute; so many are decoded, and the rest is reckoned."""


def measure(settings: LogSettings, versions: int = 10_000, tensors: int = 310) -> dict[str, float]:
    """The figures, on a broker that is empty under the settings' prefix."""
    create_topics(settings)
    log = KafkaLog(settings)
    sample = _write(log, versions, tensors)
    return {
        "feed_versions": versions,
        "feed_tensors": tensors,
        "feed_mb": round(len(sample.value or b"") * versions / 1e6, 1),
        "feed_10k_s": round(asyncio.run(_newest(log, versions - 1)), 3),
        "resume_10k_s": round(_seconds(lambda: kafka_history(settings, RUN, MODEL)), 3),
        "decode_10k_s": round(_seconds(lambda: [sample.event() for _ in range(DECODED)]) * versions / DECODED, 3),
    }


def _write(log: KafkaLog, versions: int, tensors: int) -> Record:
    """In transactions, as a trainer does. One of the records."""
    manifest = tuple(
        TensorSpec(name=f"model.layers.{number}.self_attn.q_proj.weight", dtype="bfloat16", shape=(1024, 1024))
        for number in range(tensors)
    )
    writer = log.transactions("bench")
    writer.open()
    items: list[Outgoing] = []
    for version in range(versions):
        event = WeightsPublished(
            envelope=envelope("bench", run_id=RUN),
            model_id=MODEL,
            run_id=RUN,
            version=version,
            digest="0" * 64,
            bytes_total=1,
            manifest=manifest,
        )
        items.append(Outgoing.of(WEIGHTS, MODEL.encode(), event))
        if len(items) == PER_TRANSACTION or version == versions - 1:
            writer.commit(items)
            items = items[-1:] if version == versions - 1 else []
    writer.close()
    return Record(WEIGHTS.name, 0, 0, 0, None, items[0].value)


async def _newest(log: KafkaLog, version: int) -> float:
    """Seconds until a worker that starts has its version."""
    began = time.monotonic()
    versions: list[int] = []
    caught_up = asyncio.Event()
    feed = asyncio.create_task(
        WeightsTopic(log, MODEL, RUN).run(lambda event: versions.append(event.version), caught_up)
    )
    await caught_up.wait()
    seconds = time.monotonic() - began
    feed.cancel()
    await asyncio.gather(feed, return_exceptions=True)
    assert versions[-1] == version
    return seconds


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
