"""The data that the routes read: the pool, the runs, the workers, people's feedback, and facts by
position. Safe from any thread.

Input: the pool's topics, claw.rewards, claw.training.batches, claw.weights,
claw.rollout.workers. Delivery: each is followed from its beginning, the pool from where an
earlier view ended; answers are available from the first second and show their progress.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from claw_r1.consumers.dashboard.answer_cache import KeptAnswers
from claw_r1.consumers.dashboard.call_tree import CallTrees
from claw_r1.consumers.dashboard.feedback.view import FeedbackView
from claw_r1.consumers.dashboard.log_watch import LogWatch
from claw_r1.consumers.dashboard.page_log import PageLog
from claw_r1.consumers.dashboard.personal_acts import PersonalActs
from claw_r1.consumers.dashboard.rewards.board import RewardBoard
from claw_r1.consumers.pool.acts import EvictionFact, append
from claw_r1.consumers.web.stream import LiveStream
from claw_r1.datapool.delta_decoding import bodies
from claw_r1.datapool.errors import ViewFailed
from claw_r1.datapool.feedback import FeedbackFact
from claw_r1.datapool.runs import OF_RUNS, RunIndex, RunsById
from claw_r1.datapool.view.conversations import CallBodies, ConversationTurn, conversation, reply_message, turn_of
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.errors import HistoryCut, LogError
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.protocols import Lookup
from claw_r1.eventlog.records import Position, Record, readable
from claw_r1.schemas.events import (
    BatchAssembled,
    CallCaptured,
    Event,
    TrajectoryRecord,
    WorkerReported,
)
from claw_r1.schemas.keys import group_key, parts
from claw_r1.schemas.topics import BATCHES, CALLS, GROUPS, WEIGHTS, WORKERS, Topic

T = TypeVar("T")
CATCH_UP_TIMEOUT_S = 3600.0
ENDING_CHARACTERS = 160
PRODUCER = "dashboard"
"""The producer of every event that people write on the page."""


@dataclass(slots=True)
class RunsState:
    """Everything about runs and workers that was read. Use it inside `DashboardSource.ask_runs`."""

    index: RunIndex = field(default_factory=RunIndex)
    """The runs, without plans, and which of them trained or skipped each group."""
    workers: dict[str, WorkerReported] = field(default_factory=dict)
    """The newest report of each."""
    plans: dict[tuple[str, int], Position] = field(default_factory=dict)
    """(run, sequence) -> where the plan of the batch stands."""

    @property
    def runs(self) -> RunsById:
        return self.index.runs


class ReadConversation(NamedTuple):
    """The conversation of a trajectory, and the reply that an edit would replace."""

    turns: list[ConversationTurn]
    last_call_id: str | None
    last_reply: str


class LockedLookup:
    """Facts by their position, for any thread: one waits for the other."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup, self._lock = lookup, threading.Lock()

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """Raises LogError, HistoryCut where retention took some."""
        with self._lock:
            return self._lookup.get(positions)

    def close(self) -> None:
        """Waits for who reads."""
        with self._lock:
            self._lookup.close()


class DashboardSource:
    """Followers of the topics. `start` comes first."""

    def __init__(self, log: PageLog, pool: PoolView, live: LiveStream) -> None:
        """pool: its `on_row` is `pool_change` of this module on `live`."""
        self.log, self.pool, self.live = log, pool, live
        self.acts = PersonalActs()
        self.feedback = FeedbackView(log, pool, self._did)
        self.kept = KeptAnswers()
        self.watch = LogWatch(log, lambda: live.changed("log"))
        self.outlines = CallTrees()
        self.rewards = RewardBoard(log)
        self.caught_up = False
        """The pool and people's feedback were read up to their ends at the start; until then answers grow."""
        self.runs_caught_up = False
        self._runs = RunsState()
        self.facts = LockedLookup(log.lookup())
        self._runs_lock = threading.Lock()
        self._follower: Follower | None = None

    @property
    def has_read_all(self) -> bool:
        """Pool, words and runs, as far as they stood at the start."""
        return self.caught_up and self.runs_caught_up

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the reading of a topic, for good; the first of several."""
        own = None if self._follower is None else self._follower.error
        return own or self.pool.failure or self.feedback.failure or self.rewards.failure

    def start(self) -> None:
        """Raises BrokerUnreachable, TopicMissing."""
        self.pool.start()
        words = self.feedback.start()
        self._follower = Follower(self.log.reader([BATCHES, WEIGHTS, WORKERS]), self._apply)
        self._follower.start()
        for wait in (partial(self._read_runs, self._follower), partial(self._read_pool, words)):
            threading.Thread(target=wait, name="dashboard-start", daemon=True).start()
        self.watch.start()

    def stop(self) -> None:
        """Ends the threads, and waits for what is not acknowledged yet."""
        self.watch.stop()
        self.pool.stop()
        self.feedback.stop()
        self.rewards.stop()
        if self._follower is not None:
            self._follower.stop()
        self.facts.close()

    def ask_runs(self, question: Callable[[RunsState], T]) -> T:
        """The answer to a question about runs and workers at one moment. Raises ViewFailed, and whatever the question raises."""
        if self._follower is not None and self._follower.error is not None:
            raise ViewFailed(f"reading the runs ended ({self._follower.error}): start the dashboard again")
        with self._runs_lock:
            return question(self._runs)

    def ask_both(self, question: Callable[[PoolRows, RunsState], T]) -> T:
        """The answer to a question about the pool and the runs at one moment; always in this order, so that nobody waits for
        another for ever. Raises ViewFailed, and whatever the question raises."""
        return self.ask_runs(lambda state: self.pool.ask(lambda rows: question(rows, state)))

    def records(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """Records of the log at these positions. Raises LogError, HistoryCut where retention took some."""
        return self.facts.get(positions)

    def endings(self, places: Sequence[Position]) -> dict[Position, str]:
        """The last characters of the replies at these positions; none for a call that retention removed, or that
        has no text. Raises LogError."""
        try:
            records = self.records(places)
        except HistoryCut:
            halves = places[: len(places) // 2], places[len(places) // 2 :]
            return {} if len(places) < 2 else self.endings(halves[0]) | self.endings(halves[1])
        texts = {place: reply_ending(records[place].event()) for place in places}
        return {place: text for place, text in texts.items() if text}

    def positions(self, row: TrajectoryRecord) -> dict[str, Position]:
        """The positions of the captures of a trajectory that count, by call_id."""
        settings = self.log.settings
        partition = partition_of(group_key(row.group_id), settings.partitions)
        topic = settings.catalogue().name(CALLS)
        offsets = zip(row.calls, row.offsets, strict=False)
        return {call_id: Position(topic, partition, offset) for call_id, offset in offsets if offset >= 0}

    def calls(self, row: TrajectoryRecord, names: Collection[str]) -> dict[str, CallCaptured]:
        """These captured calls of a trajectory by call_id. Raises LogError, HistoryCut."""
        places = [place for call_id, place in self.positions(row).items() if call_id in names]
        records = self.records(places)
        facts = readable(records[place] for place in places)
        return {fact.call_id: fact for fact in facts if isinstance(fact, CallCaptured)}

    def conversation(self, row: TrajectoryRecord) -> ReadConversation:
        """Returns the conversation of the calls that count. Raises LogError, HistoryCut where retention took some."""
        facts = self.calls(row, row.calls)
        requests = bodies(facts)
        calls = [CallBodies.of(fact, requests.get(name, b"")) for name, fact in facts.items()]
        replies = [(name, reply_message(call)) for name, call in zip(facts, calls, strict=True)]
        last_id, last = next(((each, reply) for each, reply in reversed(replies) if reply), (None, {}))
        text = last.get("content")
        return ReadConversation(conversation(calls), last_id, text if isinstance(text, str) else "")

    def append(self, topic: Topic, events: Sequence[FeedbackFact | EvictionFact]) -> None:
        """Appends the acts of a person; returns once all of it is acknowledged, and seen here. Raises LogError."""
        append(self.feedback.producer, topic, events)
        for event in events:
            self._did(event)

    def _did(self, event: Event) -> None:
        if (act_id := self.acts.add(event)) is not None:
            self.live.changed("act", act_id)

    def _apply(self, record: Record) -> None:
        with self._runs_lock:
            for event in readable([record]):
                if isinstance(event, WorkerReported):
                    self._runs.workers[event.worker_id] = event
                    self.live.changed("worker", event.worker_id)
                if not isinstance(event, OF_RUNS):
                    continue
                self._runs.index.apply(event, record.timestamp_ms * 1000)
                if isinstance(event, BatchAssembled):
                    self._runs.plans[event.run_id, event.sequence] = record.position
                self.live.changed("run", event.run_id)

    def _read_runs(self, follower: Follower) -> None:
        with suppress(LogError):  # whoever asks next hears of it
            follower.wait_caught_up(CATCH_UP_TIMEOUT_S)
            self.runs_caught_up = True

    def _read_pool(self, words: Follower) -> None:
        with suppress(LogError):  # as above
            self.pool.wait_caught_up(CATCH_UP_TIMEOUT_S)
            words.wait_caught_up(CATCH_UP_TIMEOUT_S)
            self.caught_up = True


def reply_ending(call: object) -> str | None:
    """Returns how the reply of a captured call ends."""
    message = reply_message(CallBodies.of(call, b"")) if isinstance(call, CallCaptured) else None
    return None if message is None else turn_of(message)["content"].strip()[-ENDING_CHARACTERS:]


def pool_change(live: LiveStream) -> Callable[[str, bytes], None]:
    """`PoolView(on_row=…)`: each row becomes a change of its kind: group (g), trajectory (g, t); steps and tokens are
    their trajectory's."""

    def on_row(topic: str, key: bytes) -> None:
        if topic == GROUPS.name:
            live.changed("group", key.decode("utf-8", "surrogatepass"))
        else:
            live.changed("trajectory", *parts(key)[:2])

    return on_row
