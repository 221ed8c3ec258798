"""A consumer whose broker hangs in the middle of its work."""

import signal
import threading

import pytest
from structlog.testing import capture_logs

from claw_r1.claw.local.broker import LocalBroker
from claw_r1.eventlog.consume import ConsumeLimits, Output, consume
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS
from tests.eventlog.test_consume import GROUP, PARTITIONS, committed, in_topic, judged, numbered, publish
from tests.patience import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_broker_that_hangs_delays_a_consumer_and_loses_nothing(
    local_broker: LocalBroker, local_log: LogSettings
) -> None:
    """Outputs that nobody acknowledges are produced again until the broker goes on; only then do offsets move."""
    assert local_log.partitions == PARTITIONS
    publish(KafkaLog(local_log), numbered(6))
    log = KafkaLog(local_log.model_copy(update={"ack_timeout_ms": 500}))
    stop, hangs = threading.Event(), threading.Event()
    broker = local_broker.process
    assert broker is not None

    def work(record: Record) -> list[Output]:
        if not hangs.is_set():
            broker.signal(signal.SIGSTOP)
            hangs.set()
        return judged(record)

    limits = ConsumeLimits(commit_interval_s=0.01)
    thread = threading.Thread(target=consume, args=(log, [CALLS], GROUP, work), kwargs={"stop": stop, "limits": limits})
    with capture_logs() as lines:
        thread.start()
        try:
            until(hangs.is_set, "the first record")
            until(lambda: any(line["event"] == "consumer_retries" for line in lines), "a retry")
        finally:
            broker.signal(signal.SIGCONT)
        until(lambda: committed(log) == {0: 3, 1: 3})
        stop.set()
        thread.join()
    assert len({record.event().envelope.event_id for record in in_topic(log)}) == 6
