"""The dashboard on a log in memory: in process (`page`), or on a port for a browser (`served`). Facts go in by `tell`."""

from typing import Any

from claw_r1.consumers.dashboard.app import dashboard_app
from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.consumers.dashboard.source import DashboardSource, pool_change
from claw_r1.consumers.web.stream import LiveStream
from claw_r1.datapool.view.view import TOPICS, PoolView
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import Event, WeightsPublished, WorkerReported
from claw_r1.schemas.topics import BATCHES, WEIGHTS, WORKERS
from tests.consumers.feedback import stage
from tests.patience import until


class DashboardStage(stage.Stage):
    """As the feedback page's stage; `live` and `source` are those of the last page."""

    def page(self, **settings: Any) -> object:
        """The app."""
        self.live = LiveStream()
        heard = pool_change(self.live)
        self.pool = PoolView(self.log.settings, listed=True, open_reader=lambda: self.log.reader(TOPICS), heard=heard)
        self.source = DashboardSource(self.log, self.pool, self.live)
        return dashboard_app(DashboardSettings(**{"who": "ann", "port": 0, **settings}), self.source)

    def wait_read(self) -> None:
        source = self.source
        until(lambda: source.feedback.caught_up and source.runs_caught_up, "the dashboard has read the log")
        super().wait_read()

    def report(self, *events: Event) -> None:
        """Events of runs, weights and workers."""
        for event in events:
            match event:
                case WorkerReported():
                    topic, key = WORKERS, event.worker_id
                case WeightsPublished():
                    topic, key = WEIGHTS, event.model_id
                case _:
                    topic, key = BATCHES, event.run_id  # type: ignore[union-attr]  # all that is left has one
            self.log.append([Outgoing(topic=topic, key=key.encode(), value=encode(event))])


class BrokerStage(DashboardStage):
    """The dashboard on a real log."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self.settings = settings

    def page(self, **settings: Any) -> object:
        self.live = LiveStream()
        self.pool = PoolView(self.settings, listed=True, heard=pool_change(self.live))
        self.source = DashboardSource(KafkaLog(self.settings), self.pool, self.live)
        return dashboard_app(DashboardSettings(**{"who": "ann", "port": 0, **settings}), self.source)
