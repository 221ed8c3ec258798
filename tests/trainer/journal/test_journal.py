"""The history of a run, read from topics that it shares with others."""

import pytest
from structlog.testing import capture_logs

from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import TensorSpec, WeightsPublished
from claw_r1.schemas.topics import BATCHES, WEIGHTS
from claw_r1.trainer.journal.journal import kafka_history
from tests import facts

CUT = 4
"""Bytes at the end of a record, without which it cannot be decoded as a whole."""


@pytest.mark.kafka
async def test_what_others_wrote_is_passed_over_undecoded(log_settings):
    """By its key, and other weights of the same model by their first fields: broken ones do not disturb."""
    run_partition = partition_of(b"run", log_settings.partitions)
    producer = KafkaLog(log_settings).producer()
    try:
        await producer.publish_all(
            [
                Outgoing(topic=BATCHES, key=b"other", value=b"no event", partition=run_partition),
                Outgoing.of(WEIGHTS, b"m", published("run")),
                Outgoing(topic=WEIGHTS, key=b"m", value=encode(published("other"))[:-CUT]),
            ]
        )
    finally:
        producer.close()
    with capture_logs() as warnings:
        history = kafka_history(log_settings, "run", "m")
    assert (sorted(history.published), warnings) == ([3], [])


def published(run: str) -> WeightsPublished:
    tensor = TensorSpec(name="a", dtype="bfloat16", shape=(2, 2))
    return WeightsPublished(
        envelope=facts.envelope(), model_id="m", run_id=run, version=3, digest="d", bytes_total=8, manifest=(tensor,)
    )
