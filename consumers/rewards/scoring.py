"""Runs one slot: subjects of a poll are judged at once, verdicts kept as they arrive, rewards made only of kept ones.

Invariant: events on claw.rewards follow from the kept verdict and its subject, except for a day's spent budget, which
outranks nothing; ids, revisions and times use no clock or process. After a transient error no request is repeated.
"""

import dataclasses
import threading
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from msgspec.structs import replace

from claw_r1.consumers.rewards.budget import PutOffSubjects, TokenBudget, guessed_tokens
from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.kept_verdicts import Verdicts
from claw_r1.consumers.rewards.metrics import RewardsMetrics
from claw_r1.consumers.rewards.reward_events import PRODUCER, events_of, flaw_of
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion, RewardScorer
from claw_r1.consumers.rewards.subjects.subject import Subject, Unjudgeable
from claw_r1.eventlog.consume import Output
from claw_r1.eventlog.errors import RecordTooLarge
from claw_r1.eventlog.records import Place, Record
from claw_r1.runtime.monitoring.tracing import Attributes, spans
from claw_r1.schemas.envelopes import decision_id, envelope, now_us
from claw_r1.schemas.events import VerdictKept
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import REWARDS, Topic

log = structlog.get_logger()

KEPT_DETAIL_CHARACTERS_MAX = 4000
POLL_S = 0.2
BUDGET_SPENT = "budget_spent"


class ScoringStopped(Exception):
    """A stop came while verdicts were being made; the next process asks for those that are not kept."""


class SubjectSource(Protocol):
    """The source of a slot's subjects: `of_calls.CallSubjects`, `of_rows.RowSubjects`."""

    @property
    def topics(self) -> Sequence[Topic]: ...

    def add(self, record: Record) -> None: ...

    def take(self) -> list[Subject]: ...

    def forget(self, places: Collection[Place] = ()) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Question:
    """Subjects of equal content, in one partition, that wait for one verdict."""

    key: tuple[int, str]
    """(partition, verdict_id)."""
    subjects: list[Subject] = field(default_factory=list)
    judged: Judged | None = None
    """Once it was put together."""
    begin_s: float = 0.0


def verdict_id(slot: ScoredSlot, digest: str) -> str:
    """Returns the id of verdicts on equal content under one scorer, version and generation."""
    scorer = slot.scorer
    return decision_id("verdict", digest, scorer.source, scorer.name, str(scorer.version), str(slot.generation))


def failure_id(slot: ScoredSlot, subject: Subject) -> str:
    """Returns the id of a verdict with the reason for no value: for this subject alone, equal content is judged again."""
    return verdict_id(slot, f"{subject.digest} {subject.label}")


class SlotScoring:
    """Belongs to one thread."""

    def __init__(
        self,
        slot: ScoredSlot,
        scorer: RewardScorer,
        verdicts: Verdicts,
        source: SubjectSource,
        metrics: RewardsMetrics,
        *,
        stop: threading.Event,
        stop_grace_s: float = 5.0,
        budget: TokenBudget | None = None,
    ) -> None:
        self._slot = slot
        self._scorer = scorer
        self._verdicts = verdicts
        self._source = source
        self._metrics = metrics
        self._stop = stop
        self._stop_grace_s = stop_grace_s
        self._budget = budget
        self._subjects: list[Subject] = []
        self._kept_now: dict[tuple[int, str], VerdictKept] = {}
        self._names: dict[str, str] = {}
        self._flying: dict[Future[Opinion], _Question] = {}
        self._unkept: dict[int, list[VerdictKept]] = defaultdict(list)
        self._put_off = PutOffSubjects()
        self._grace_end: float | None = None

    def hold(self, places: Collection[Place]) -> None:
        """The member's partitions, after each of its polls."""
        assigned = {partition for _, partition in places}
        self._metrics.partitions.labels(self._slot.name).set(len(assigned))
        if self._budget is not None:
            self._budget.assigned = assigned

    def work(self, record: Record) -> tuple[Output, ...]:
        """Takes a record in. Raises LogError."""
        self._source.add(record)
        return ()

    def rest(self) -> list[Output]:
        """The rewards of all subjects of the poll, once their verdicts are kept.

        Raises Fenced where another process owns a partition, ScoringStopped, BrokerUnreachable, and a scorer's own bugs.
        """
        self._subjects += self._source.take()
        self._subjects += self._put_off.due(self._budget, self._subjects)  # behind those that are new
        outputs: list[Output] = []
        if self._subjects:
            for partition in {subject.partition for subject in self._subjects}:
                self._verdicts.own(partition)
            self._settle()
            outputs = [output for subject in self._subjects for output in self._outputs(subject)]
            if surplus := self._put_off.forget_oldest():
                advice = "they stay without a value; claw rewards backfill scores the history"
                log.warning("rewards_budget_forgets", slot=self._slot.name, subjects=surplus, advice=advice)
            age_s = (now_us() - max(subject.occurred_at_us for subject in self._subjects)) / 1e6
            self._metrics.lag.labels(self._slot.name).set(max(0.0, age_s))
            self._subjects.clear()
            self._kept_now.clear()
            self._names.clear()
        return outputs

    def forget(self, places: Collection[Place]) -> None:
        """Partitions went to somebody else."""
        gone = {partition for _, partition in places}
        self._source.forget(places)
        self._verdicts.forget(gone)
        self._put_off.forget(gone)

    def close(self) -> None:
        """Idempotent. What is being judged is not waited for."""
        self.hold(())
        for future in self._flying:
            future.cancel()
        self._source.close()
        self._verdicts.close()

    def _settle(self) -> None:
        """Returns when every subject has a kept verdict, or is beyond the budget of the day."""
        self._keep()
        flying = {question.key for question in self._flying.values()}
        if self._budget is not None:
            # An error may have come between a reservation and its request, or before its answer.
            self._budget.release_all_but(flying)
        questions = self._questions(flying)
        while questions or self._flying:
            if not self._flying and (self._grace_end is not None or self._stop.is_set()):
                raise ScoringStopped
            if self._grace_end is None:
                self._ask(questions)
                self._keep()
            self._await_some()

    def _questions(self, flying: Collection[tuple[int, str]]) -> deque[_Question]:
        """Returns the questions that have no verdict and are not in flight yet."""
        questions: dict[tuple[int, str], _Question] = {}
        for subject in self._subjects:
            key = (subject.partition, self._name(subject))
            if self._kept(subject) is not None:
                self._metrics.cached.labels(self._slot.name).inc()
            elif key not in flying:
                questions.setdefault(key, _Question(key)).subjects.append(subject)
        return deque(questions.values())

    def _name(self, subject: Subject) -> str:
        """Its `verdict_id`, computed once in a poll."""
        if (name := self._names.get(subject.digest)) is None:
            name = self._names[subject.digest] = verdict_id(self._slot, subject.digest)
        return name

    def _kept(self, subject: Subject) -> VerdictKept | None:
        """Failures first: a failed subject stays so, whatever the verdict on equal content later."""
        failure = (
            self._look_up(subject.partition, failure_id(self._slot, subject))
            if self._verdicts.failures(subject.partition)
            else None
        )
        return failure or self._look_up(subject.partition, self._name(subject))

    def _look_up(self, partition: int, name: str) -> VerdictKept | None:
        """Returns the verdict in the log; once it was read, or written, it is in memory for the rest of the poll."""
        key = (partition, name)
        if (verdict := self._kept_now.get(key)) is None and (verdict := self._verdicts.get(*key)) is not None:
            self._kept_now[key] = verdict
        return verdict

    def _ask(self, questions: deque[_Question]) -> None:
        """Submits questions from the front while the budget has room; gives up those that cannot be put together."""
        batch: list[_Question] = []
        while questions:
            if self._budget is not None and self._budget.left() <= 0:
                self._stop_at_budget(questions)
                break
            try:
                if not self._reserve(questions[0]):
                    break
                batch.append(questions.popleft())
            except Unjudgeable as error:
                self._give_up(questions.popleft(), error.reason, error.detail)
        now_s = time.monotonic()
        answers = self._scorer.judge([question.judged for question in batch if question.judged]) if batch else ()
        for question, answer in zip(batch, answers, strict=True):
            question.begin_s, question.judged = now_s, None
            self._flying[answer] = question
        self._metrics.in_flight.labels(self._slot.name).set(len(self._flying))

    def _reserve(self, question: _Question) -> bool:
        """Puts the question together, and reserves its tokens. Returns whether the budget has them. Raises Unjudgeable."""
        if question.judged is None:
            question.judged = _assembled(question.subjects[0])
        if self._budget is None:
            return True
        return self._budget.reserve(question.key, guessed_tokens(self._slot, question.judged))

    def _stop_at_budget(self, questions: deque[_Question]) -> None:
        """No request follows: a command ends, and a day's other subjects have no value until there is room."""
        assert self._budget is not None
        if self._budget.ends:
            self._grace_end = time.monotonic() + self._stop_grace_s
            return
        subjects, advice = sum(len(question.subjects) for question in questions), "asked again once there is room"
        log.warning(
            BUDGET_SPENT, slot=self._slot.name, subjects=subjects, of_a_day=self._budget.tokens_max, advice=advice
        )
        questions.clear()

    def _await_some(self) -> None:
        """Until something was answered, and that is kept. Raises ScoringStopped when a stop waited long enough."""
        done: set[Future[Opinion]] = set()
        while self._flying and not done:
            done, _ = wait(self._flying, POLL_S, return_when=FIRST_COMPLETED)
            if self._stop.is_set():
                self._grace_end = self._grace_end or time.monotonic() + self._stop_grace_s
                if time.monotonic() > self._grace_end and not done:
                    raise ScoringStopped
        for answer in done:
            self._take(self._flying.pop(answer), answer)
        self._metrics.in_flight.labels(self._slot.name).set(len(self._flying))
        self._keep()

    def _take(self, question: _Question, answer: "Future[Opinion]") -> None:
        seconds = time.monotonic() - question.begin_s
        self._metrics.judged.labels(self._slot.name).inc()
        self._metrics.seconds.labels(self._slot.name).observe(seconds)
        if (own := spans()) is not None:
            calls = [each for subject in question.subjects for each in subject.traceparents]
            scorer: Attributes = {"claw.slot": self._slot.name, "claw.scorer_version": self._slot.scorer.version}
            own.record(f"score {self._slot.name}", now_us() - int(seconds * 1e6), calls, scorer)
        try:
            opinion = answer.result()
        except GaveUp as error:
            self._pay(question, error.tokens)
            self._give_up(question, error.reason, error.detail, tokens=error.tokens, calls=error.calls, seconds=seconds)
            return
        self._pay(question, opinion.tokens)
        if (flaw := flaw_of(opinion, question.subjects[0])) is not None:
            reason, detail = flaw
            self._give_up(question, reason, detail, tokens=opinion.tokens, calls=opinion.calls, seconds=seconds)
            return
        values = tuple(None if value is None else float(value) for value in opinion.values)
        partition, name = question.key
        cost = self._verdict(question.subjects[0], name, opinion.detail, opinion.tokens, opinion.calls, seconds)
        self._unkept[partition].append(replace(cost, values=values, spread=opinion.spread))

    def _pay(self, question: _Question, tokens: int) -> None:
        self._metrics.tokens.labels(self._slot.name).inc(tokens)
        if self._budget is not None:
            self._budget.settle(question.key, tokens)

    def _give_up(
        self,
        question: _Question,
        reason: str,
        detail: str,
        *,
        tokens: int = 0,
        calls: tuple[str, ...] = (),
        seconds: float = 0.0,
    ) -> None:
        """A failed verdict for each of the subjects; the first has the cost."""
        log.warning(
            "rewards_failed", slot=self._slot.name, subject=question.subjects[0].label, reason=reason, detail=detail
        )
        for at, subject in enumerate(question.subjects):
            name = failure_id(self._slot, subject)
            verdict = self._verdict(
                subject, name, detail, 0 if at else tokens, () if at else calls, 0.0 if at else seconds
            )
            self._unkept[subject.partition].append(replace(verdict, failed=reason))
            self._metrics.failed.labels(self._slot.name, reason).inc()

    def _verdict(
        self, subject: Subject, name: str, detail: str, tokens: int, calls: tuple[str, ...], seconds: float
    ) -> VerdictKept:
        scorer = self._slot.scorer
        price = scorer.price_per_million
        return VerdictKept(
            envelope=envelope(PRODUCER, event_id=name, run_id=subject.run_id),
            verdict_id=name,
            source=scorer.source,
            name=scorer.name,
            version=scorer.version,
            generation=self._slot.generation,
            scope=scorer.scope,
            digest=subject.digest,
            detail=detail[:KEPT_DETAIL_CHARACTERS_MAX],
            subject=subject.label,
            tokens=tokens,
            seconds=seconds,
            price=None if price is None else price * tokens / 1e6,
            calls=calls,
            settings_digest=self._slot.digest,
        )

    def _keep(self) -> None:
        """Writes all answers to the log that are not there yet: a commit may have succeeded despite its error."""
        for partition in list(self._unkept):
            self._verdicts.own(partition)
            verdicts = {verdict.verdict_id: verdict for verdict in self._unkept[partition]}
            fresh = [verdict for name, verdict in verdicts.items() if self._verdicts.get(partition, name) is None]
            if fresh:
                kept = self._fitting(partition, fresh)
                self._kept_now |= {(partition, verdict.verdict_id): verdict for verdict in kept}
            del self._unkept[partition]

    def _fitting(self, partition: int, verdicts: list[VerdictKept]) -> list[VerdictKept]:
        """Keeps the verdicts, and returns those that the log has now: one too large for a record is replaced by
        that reason."""
        try:
            self._verdicts.keep(partition, verdicts)
        except RecordTooLarge:
            if len(verdicts) > 1:
                return [kept for verdict in verdicts for kept in self._fitting(partition, [verdict])]
            log.warning("rewards_verdict_too_large", slot=self._slot.name, subject=verdicts[0].subject)
            self._metrics.failed.labels(self._slot.name, "too_large").inc()
            small = replace(verdicts[0], failed="too_large", detail="its verdict", values=(), spread=None, calls=())
            if small == verdicts[0]:
                raise
            return self._fitting(partition, [small])
        return verdicts

    def _outputs(self, subject: Subject) -> Iterator[Output]:
        verdict = self._kept(subject)
        name = failure_id(self._slot, subject) if self._put_off or verdict is None else ""
        if verdict is not None:
            self._put_off.settle(name)
        elif name in self._put_off:
            return  # it was said
        else:
            self._put_off.add(name, subject)
            self._metrics.failed.labels(self._slot.name, BUDGET_SPENT).inc()
            detail = "the slot's tokens of a day are spent; it is asked again once there is room"
            verdict = replace(self._verdict(subject, name, detail, 0, (), 0.0), failed=BUDGET_SPENT)
            # Just before whatever is kept of it later: of two failures the one that stays counts.
            subject = dataclasses.replace(subject, occurred_at_us=subject.occurred_at_us - 1)
        for event in events_of(self._slot, subject, verdict):
            if event.envelope.event_id not in subject.slots:
                yield REWARDS, group_key(subject.group_id), event


def _assembled(subject: Subject) -> Judged:
    """Its text. What foreign bytes do to our own readers is that subject's flaw, and the next one is served."""
    try:
        return subject.assemble()
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        log.exception("rewards_unreadable", subject=subject.label)
        raise Unjudgeable("unreadable", f"{type(error).__name__}: {error}") from error
