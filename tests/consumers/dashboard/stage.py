"""The dashboard on a log in memory: in process (`page`), or on a port for a browser (`served`). Facts go in by `tell`."""

from typing import Any

from consumers.dashboard.app import dashboard_app
from consumers.dashboard.settings import DashboardSettings
from consumers.dashboard.source import DashboardSource, pool_change
from consumers.web.stream import LiveStream
from datapool.digests import call_digest
from datapool.fold.step import tokens
from datapool.view.view import TOPICS, PoolView
from eventlog.records import Outgoing
from schemas.codec import encode
from schemas.events import CallCaptured, Event, WeightsPublished, WorkerReported
from schemas.keys import tokens_key
from schemas.topics import BATCHES, STEPS, WEIGHTS, WORKERS
from tests.consumers.feedback import stage


class DashboardStage(stage.Stage):
    """As the feedback page's stage; `live` and `source` are those of the last page."""

    def page(self, **settings: Any) -> object:
        """The app."""
        self.live = LiveStream()
        heard = pool_change(self.live)
        pool = PoolView(self.log.settings, listed=True, open_reader=lambda: self.log.reader(TOPICS), heard=heard)
        self.source = DashboardSource(self.log, pool, self.live)
        return dashboard_app(DashboardSettings(**{"who": "ann", "port": 0, **settings}), self.source)

    def tell(self, *events: Event) -> None:
        """Facts, with the tokens of calls, which pass by the fold."""
        super().tell(*events)
        for call in events:
            if isinstance(call, CallCaptured):
                key = tokens_key(call.group_id, call.trajectory_id, call.call_id)
                self.log.append([Outgoing(topic=STEPS, key=key, value=encode(tokens(call, call_digest(call))))])

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
