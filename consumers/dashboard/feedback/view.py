"""The words of people, as the page's routes ask for them and add to them. Safe from any thread."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from claw_r1.consumers.dashboard.feedback.queues import Queues
from claw_r1.consumers.dashboard.feedback.voices import Voices, voices
from claw_r1.datapool.errors import ViewFailed
from claw_r1.datapool.feedback import FeedbackFact, FeedbackSubject
from claw_r1.datapool.personal_words import Feedback
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.protocols import Log
from claw_r1.eventlog.records import Outgoing, Record, readable
from claw_r1.schemas.events import Event
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import REWARDS

T = TypeVar("T")


class FeedbackView:
    """A follower of claw.rewards, and a producer. `start` comes first."""

    def __init__(self, log: Log, pool: PoolView, on_event: Callable[[Event], object]) -> None:
        """on_event: called with each event of claw.rewards, in the follower's thread, and with each that is appended here."""
        self.queues = Queues(pool)
        self._log, self._on_event = log, on_event
        self.producer = log.producer()
        self._lock = threading.Lock()
        self._feedback = Feedback()
        self._voices, self._stale = Voices(), set[str]()
        """The sums so far; groups with feedback since, whose sums are stale."""
        self._follower: Follower | None = None

    def start(self) -> Follower:
        """Raises BrokerUnreachable, TopicMissing."""
        self._follower = Follower(self._log.reader([REWARDS]), self._apply)
        self._follower.start()
        return self._follower

    def stop(self) -> None:
        """Ends the threads, and waits for what is not acknowledged yet."""
        if self._follower is not None:
            self._follower.stop()
        self.producer.close()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the reading of claw.rewards, if one did."""
        return None if self._follower is None else self._follower.error

    def ask(self, question: Callable[[Feedback], T]) -> T:
        """The answer to a question about feedback. Raises ViewFailed."""
        self._check()
        with self._lock:
            return question(self._feedback)

    def voices(self) -> Voices:
        """Returns the feedback of all people, summed up; again only for groups with new feedback. Raises ViewFailed."""
        self._check()
        with self._lock:
            if self._stale:
                anew = voices(word for group in self._stale for word in self._feedback.standing(group))
                self._voices, self._stale = self._voices.renewed(self._stale, anew), set()
            return self._voices

    def append(self, events: Sequence[FeedbackFact]) -> None:
        """Returns once all are acknowledged, and seen here. Raises LogError; the same events may be appended again."""
        futures = [self.producer.produce(Outgoing.of(REWARDS, group_key(e.group_id), e)) for e in events]
        for future in futures:
            future.result()
        self._add(events)

    def latest_revision(self, subject: FeedbackSubject, source: str) -> int:
        """Returns the latest revision of this person's feedback on the subject; 0: none."""
        return self.ask(lambda feedback: feedback.latest_revision(subject, source))

    def _check(self) -> None:
        if self.failure is not None:
            raise ViewFailed(f"reading claw.rewards ended ({self.failure}): start this page again")

    def _apply(self, record: Record) -> None:
        self._add(readable([record]))

    def _add(self, events: Iterable[Event]) -> None:
        with self._lock:
            for event in events:
                if isinstance(event, FeedbackFact) and self._feedback.add(event):
                    self._stale.add(event.group_id)
                self._on_event(event)
