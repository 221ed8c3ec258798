"""The probes of a dashboard say what its pages say."""

from collections.abc import Sequence
from typing import Any

import pytest
from fastapi.testclient import TestClient

from claw_r1.consumers.dashboard.metrics import broken
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.memory.readers import MemoryReader
from claw_r1.eventlog.records import Record
from claw_r1.schemas.topics import KEYS, REWARDS, STEPS, VERDICTS, WORKERS, Topic
from tests.consumers.dashboard.stage import DashboardStage
from tests.patience import until


class OvertakenReader(MemoryReader):
    """A reader of the log below."""

    def __init__(self, log: "OvertakenLog", topics: Sequence[Topic], **rest: Any) -> None:
        super().__init__(log, topics, **rest)
        self.log, self.topics = log, topics

    def poll(self, timeout_s: float, records_max: int = 500) -> list[Record]:
        if self.log.cut in self.topics:
            raise HistoryCut("the log begins later")
        return super().poll(timeout_s, records_max)


class OvertakenLog(MemoryLog):
    """A log whose retention overtakes who reads one topic, once it is told to."""

    cut: Topic | None = None

    def reader(self, topics: Sequence[Topic], **rest: Any) -> OvertakenReader:
        return OvertakenReader(self, topics, **rest)


@pytest.mark.parametrize("topic", [WORKERS, STEPS, REWARDS, VERDICTS, KEYS], ids=lambda topic: topic.name)
def test_a_page_whose_reader_has_ended_is_broken(topic: Topic) -> None:
    """Whichever topic it read: pages refuse until another start, and the probes know it, though the log answers."""
    stage = DashboardStage()
    stage.log = OvertakenLog(stage.log.settings)
    with TestClient(stage.page(keys=True), base_url="http://127.0.0.1:8200"):
        stage.wait_read()
        stage.source.rewards.ask(lambda state: state)
        assert broken(stage.source, stage.sessions) is None
        stage.log.cut = topic
        until(lambda: broken(stage.source, stage.sessions), "the end is seen")
        assert "start the dashboard again" in str(broken(stage.source, stage.sessions))
