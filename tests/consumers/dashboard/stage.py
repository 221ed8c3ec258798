"""The dashboard on a log in memory with a folded pool: in process (`page`), or on a port for a browser (`served`). Facts go in by
`tell`; the pool's rows follow at once."""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import orjson
import uvicorn
from fastapi.testclient import TestClient

from claw_r1.consumers.dashboard.app import dashboard_app, sessions_of
from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.consumers.dashboard.source import DashboardSource, pool_change
from claw_r1.consumers.web.serve import PageServer, bind_page, url_of
from claw_r1.consumers.web.stream import LiveStream
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import changes, image, project
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.view.view import TOPICS, PoolView
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import (
    CallCaptured,
    Edge,
    Event,
    FactPosition,
    OutputEdited,
    PreferenceGiven,
    WeightsPublished,
    WorkerReported,
)
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import BATCHES, CALLS, REWARDS, WEIGHTS, WORKERS
from tests import facts
from tests.patience import PATIENCE_S, until

NAMES = {topic.name: topic for topic in TOPICS}


def body(value: object) -> tuple[bytes, Edge]:
    raw = orjson.dumps(value)
    return raw, Edge(suffix=raw, full_length=len(raw), full_digest=hashlib.sha256(raw).hexdigest())


def said(group: str, trajectory: str, question: str, reply: str, **changes: object) -> CallCaptured:
    """A chat call with this text."""
    _, request = body({"messages": [{"role": "user", "content": question}]})
    answer, _ = body({"choices": [{"index": 0, "message": {"role": "assistant", "content": reply}}]})
    return facts.call(group, trajectory, f"{trajectory}-0", request=request, response_body=answer, **changes)


def episode(
    group: str, trajectory: str, question: str, reply: str, reward: float | None = None, **changes: object
) -> list[Event]:
    """One call, and the end."""
    return [
        said(group, trajectory, question, reply, **changes),
        facts.completed(group, trajectory, calls=1, reward=reward),
    ]


class DashboardStage:
    """`live` and `source` are those of the last page."""

    def __init__(self, *scenes: Iterable[Event]) -> None:
        self.log = MemoryLog(LogSettings(partitions=2))
        self._states: dict[str, GroupState] = {}
        for scene in scenes:
            self.tell(*scene)

    def tell(self, *events: Event) -> None:
        """Facts, on the log and in the pool."""
        for event in events:
            topic = REWARDS if isinstance(event, facts.ON_REWARDS) else CALLS
            (at,) = self.log.append([Outgoing.of(topic, group_key(event.group_id), event)])
            if isinstance(event, PreferenceGiven | OutputEdited):
                continue  # the pool passes them by
            place = FactPosition(topic=at.topic, partition=at.partition, offset=at.offset)
            before = self._states.get(event.group_id)
            state = self._states[event.group_id] = fold(before, event, place)
            rows = changes(None if before is None else image(before), state)[1].items()
            self.log.append(
                [Outgoing(topic=NAMES[key.topic], key=key.key, value=row and row.value) for key, row in rows]
            )

    def words(self) -> Sequence[Event]:
        """What stands on claw.rewards."""
        return list(readable(self.log.reader([REWARDS]).read_to_end()))

    def page(self, **settings: Any) -> object:
        """The app."""
        self.live = LiveStream()
        on_row = pool_change(self.live)
        self.pool = PoolView(self.log.settings, listed=True, open_reader=lambda: self.log.reader(TOPICS), on_row=on_row)
        self.source = DashboardSource(self.log, self.pool, self.live)
        return self._app(settings)

    def _app(self, settings: dict[str, Any]) -> object:
        chosen = DashboardSettings(**{"who": "ann", "port": 0, **settings})
        self.sessions = sessions_of(chosen)
        return dashboard_app(chosen, self.source, self.sessions)

    def wait_read(self) -> None:
        """Returns once the page has read what was told before it started."""
        source = self.source
        until(lambda: source.has_read_all, "the dashboard has read the log")
        self.pool.wait_caught_up(PATIENCE_S)

    @contextmanager
    def asked(self, **settings: Any) -> Iterator[TestClient]:
        """The page in process, asked by who is signed in, once it has read the log."""
        with TestClient(self.page(**settings), base_url="http://127.0.0.1:8200") as client:
            client.headers["x-page-token"] = client.get("/api/v1/session").json()["token"]
            self.wait_read()
            yield client

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

    @contextmanager
    def served(self, **settings: object) -> Iterator[str]:
        """The page on a port of this machine, in a thread; gives its address, once it has read the log."""
        listener = bind_page(DashboardSettings(port=0))
        server = PageServer(
            uvicorn.Config(
                self.page(**settings), ws="none", log_level="warning", lifespan="on", timeout_graceful_shutdown=1
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        until(lambda: server.started or not thread.is_alive(), "the page starts")
        assert thread.is_alive(), "the page ended at its start"
        try:
            self.wait_read()
            yield url_of(listener, "http")
        finally:
            server.should_exit = True
            thread.join(20)


class BrokerStage(DashboardStage):
    """The dashboard on a real log."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self.settings = settings

    def page(self, **settings: Any) -> object:
        self.live = LiveStream()
        self.pool = PoolView(self.settings, listed=True, on_row=pool_change(self.live))
        self.source = DashboardSource(KafkaLog(self.settings), self.pool, self.live)
        return self._app(settings)


def seed(settings: LogSettings, group: str = "g", trajectory: str = "t") -> None:
    """A trajectory of one call on a real broker, and its rows in the pool."""
    producer, state = EventProducer(settings), None
    try:
        for fact in episode(group, trajectory, "which?", "this one"):
            at = producer.publish_now(CALLS, group_key(group), fact)
            place = FactPosition(topic=at.topic, partition=at.partition, offset=at.offset)
            state = fold(state, fact, place)
        assert state is not None
        rows = [
            Outgoing(topic=NAMES[key.topic], key=key.key, value=encode(row), partition=at.partition)
            for key, row in project(state).items()
        ]
        for sent in [producer.produce(row) for row in rows]:
            sent.result()
    finally:
        producer.close()


class Person:
    """Somebody with a browser."""

    def __init__(self, url: str, who: str | None = None) -> None:
        self.http = httpx.Client(base_url=f"{url}/api/v1/", timeout=20)
        answer = self.http.get("session") if who is None else self.http.post("session", json={"who": who})
        assert answer.status_code == 200, answer.text
        self.session = answer.json()
        self.http.headers["x-page-token"] = self.session["token"]

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def judge(self, trajectory: str, **remark: Any) -> Any:
        return self.post("judgements", group_id=trajectory[0], trajectory_id=trajectory, **remark)

    def undone(self) -> tuple[str, list[str]]:
        """Takes the latest act back: its first trajectory, and what it said."""
        act = self.post("acts/undo")["undone"]
        return act["subjects"][0]["t"], act["says"]

    def waiting(self, **query: Any) -> list[str]:
        """Ids in the queue's order; waits until the log was read."""
        until(lambda: not self.get("queue")["reading"], "the log is read")
        return [item["trajectory_id"] for item in self.get("queue", **query)["items"]]
