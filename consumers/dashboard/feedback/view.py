"""The pool, what people said, and conversations by position, as the page's routes ask for them. Safe from any
thread.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from claw_r1.consumers.dashboard.feedback.queues import Queues
from claw_r1.consumers.dashboard.feedback.voices import Voices, voices
from claw_r1.datapool.batch.deltas import bodies
from claw_r1.datapool.errors import ViewFailed
from claw_r1.datapool.feedback import FeedbackFact, FeedbackSubject
from claw_r1.datapool.standing import Feedback
from claw_r1.datapool.view.conversations import CallBodies, ConversationTurn, conversation, reply_message
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.protocols import Log, Lookup
from claw_r1.eventlog.records import Outgoing, Place, Position, Record, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import CallCaptured, Event, TrajectoryRecord
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS, Topic

T = TypeVar("T")
CATCH_UP_TIMEOUT_S = 3600.0


class PageLog(Log, Protocol):
    """`KafkaLog` or `MemoryLog`."""

    settings: LogSettings

    def lookup(self) -> Lookup: ...

    def committed_offsets(
        self, group_id: str, topics: Sequence[Topic], partitions: Iterable[int]
    ) -> dict[Place, int | None]: ...


class ReadConversation(NamedTuple):
    """The conversation of a trajectory, and the reply that an edit would replace."""

    turns: list[ConversationTurn]
    last_call_id: str | None
    last_reply: str


class FeedbackView:
    """Followers of the topics, and a producer. `start` comes first."""

    def __init__(self, log: PageLog, pool: PoolView, heard: Callable[[Event], object]) -> None:
        """heard: called with each event of claw.rewards, in the follower's thread, and with each that is appended here."""
        self.pool, self.queues = pool, Queues(pool)
        self.caught_up = False
        """Everything that stood in the log at the start was read; until then answers grow."""
        self._log, self._heard = log, heard
        self.producer = log.producer()
        self._lookup = log.lookup()
        self._lookup_lock, self._lock = threading.Lock(), threading.Lock()
        self._feedback = Feedback()
        self._voices, self._unheard = Voices(), set[str]()
        """Summed up so far; groups of which something was said since."""
        self._follower: Follower | None = None

    def start(self) -> None:
        """Raises BrokerUnreachable, TopicMissing."""
        self.pool.start()
        self._follower = Follower(self._log.reader([REWARDS]), self._apply)
        self._follower.start()
        threading.Thread(target=self._catch_up, args=(self._follower,), name="feedback-start", daemon=True).start()

    def stop(self) -> None:
        """Ends the threads, and waits for what is not acknowledged yet."""
        self.pool.stop()
        if self._follower is not None:
            self._follower.stop()
        self.producer.close()
        with self._lookup_lock:
            self._lookup.close()

    def ask(self, question: Callable[[Feedback], T]) -> T:
        """The answer to a question about what people said. Raises ViewFailed."""
        self._check()
        with self._lock:
            return question(self._feedback)

    def voices(self) -> Voices:
        """Returns the feedback of all people, summed up; again only of groups of which something was said. Raises
        ViewFailed."""
        self._check()
        with self._lock:
            if self._unheard:
                anew = voices(word for group in self._unheard for word in self._feedback.standing(group))
                self._voices, self._unheard = self._voices.renewed(self._unheard, anew), set()
            return self._voices

    def append(self, events: Sequence[FeedbackFact]) -> None:
        """Returns once all are acknowledged, and seen here. Raises LogError; the same events may be appended again."""
        futures = [self.producer.produce(Outgoing.of(REWARDS, group_key(e.group_id), e)) for e in events]
        for future in futures:
            future.result()
        self._add(events)

    def latest_revision(self, subject: FeedbackSubject, source: str) -> int:
        """Returns the latest revision of this person's feedback on the subject; 0: none."""
        words = self.ask(lambda feedback: feedback.history(subject=subject, source=source))
        return max((word.fact.revision for word in words), default=0)

    def conversation(self, row: TrajectoryRecord) -> ReadConversation:
        """Returns the conversation of the calls that count. Raises LogError, HistoryCut where retention took some."""
        settings = self._log.settings
        partition = partition_of(group_key(row.group_id), settings.partitions)
        name = settings.catalogue().name(CALLS)
        places = [Position(name, partition, offset) for offset in row.offsets if offset >= 0]
        with self._lookup_lock:
            records = self._lookup.get(places)
        facts = [fact for fact in readable(records[at] for at in places) if isinstance(fact, CallCaptured)]
        requests = bodies({fact.call_id: fact for fact in facts})
        calls = [CallBodies.of(fact, requests.get(fact.call_id, b"")) for fact in facts]
        replies = [(fact.call_id, reply_message(call)) for fact, call in zip(facts, calls, strict=True)]
        last_id, last = next(((each, reply) for each, reply in reversed(replies) if reply), (None, {}))
        text = last.get("content")
        return ReadConversation(conversation(calls), last_id, text if isinstance(text, str) else "")

    def _check(self) -> None:
        if self._follower is not None and self._follower.error is not None:
            raise ViewFailed(f"reading claw.rewards ended ({self._follower.error}): start this page again")

    def _apply(self, record: Record) -> None:
        self._add(readable([record]))

    def _add(self, events: Iterable[Event]) -> None:
        with self._lock:
            for event in events:
                if isinstance(event, FeedbackFact) and self._feedback.add(event):
                    self._unheard.add(event.group_id)
                self._heard(event)

    def _catch_up(self, follower: Follower) -> None:
        with suppress(LogError):  # whoever asks next hears of it
            self.pool.wait_caught_up(CATCH_UP_TIMEOUT_S)
            follower.wait_caught_up(CATCH_UP_TIMEOUT_S)
            self.caught_up = True
