"""The budget that a slot has left: the tokens of one command (a backfill), or those of a UTC day.

Invariant: the estimated cost of an answer is reserved before the request, so at most one answer exceeds the budget.
The cost of the first one is unknown: it is requested alone.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import islice

from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.kept_verdicts import DAY_US, Verdicts
from claw_r1.consumers.rewards.scorer import guessed
from claw_r1.consumers.rewards.subjects.subject import Subject
from claw_r1.schemas.envelopes import now_us

PUT_OFF_MAX, PUT_OFF_AT_ONCE = 500, 50
"""Subjects beyond the budget of a day that are in memory, and that are asked about in one
poll once there is room."""
PAID_KINDS = ("judge", "pooling")
"""Kinds whose verdicts cost tokens."""


class TokenBudget:
    """The budget of one command in this process. Used by one thread at a time."""

    ends = True
    """The process ends once the budget is spent; otherwise there is room again some day."""

    def __init__(self, tokens_max: int) -> None:
        self.tokens_max = tokens_max
        self.assigned: Collection[int] = ()
        """Partitions of the group's member, after its last poll."""
        self._paid = 0
        self._reserved: dict[tuple[int, str], int] = {}
        self._dearest: int | None = None

    def left(self) -> float:
        """Tokens that are not spent, those that are reserved among them. Raises LogError."""
        return self.tokens_max - self._paid

    def reserve(self, key: tuple[int, str], tokens: int) -> bool:
        """Returns whether a question, by its (partition, verdict_id), may be asked now; its tokens, or those of
        the dearest answer so far, are held until `settle`.

        With no request in flight it may: a caller that waits for room checks `left` first.
        """
        held = max(tokens, self._dearest or 0)
        if self._reserved and (self._dearest is None or sum(self._reserved.values()) + held > self.left()):
            return False
        self._reserved[key] = held
        return True

    def settle(self, key: tuple[int, str], tokens: int) -> None:
        """An answer came, and cost this."""
        self._reserved.pop(key, None)
        self._paid += tokens
        self._dearest = max(self._dearest or 0, tokens)

    def release_all_but(self, flying: Collection[tuple[int, str]]) -> None:
        """Nothing but these questions is on its way any more."""
        self._reserved = {key: tokens for key, tokens in self._reserved.items() if key in flying}


class DailyBudget(TokenBudget):
    """The budget of a UTC day: the share of the assigned partitions, less the cost of today's verdicts in them, by
    any process."""

    ends = False

    def __init__(
        self, tokens_max: int, verdicts: Verdicts, partitions: int, clock_us: Callable[[], int] = now_us
    ) -> None:
        """partitions: of the topics, all processes together."""
        super().__init__(tokens_max)
        self._verdicts, self._partitions, self._clock_us = verdicts, partitions, clock_us

    def left(self) -> float:
        """Returns the tokens that are left; the assigned partitions are owned first, so that what others paid there
        today is known."""
        for partition in self.assigned:
            self._verdicts.own(partition)
        share = self.tokens_max * len(self.assigned) / self._partitions
        return share - self._verdicts.tokens_today(self._clock_us() // DAY_US)


class PutOffSubjects:
    """The subjects reported as beyond a day's budget, oldest first; such a report is no kept verdict. Only in
    memory."""

    def __init__(self) -> None:
        self._subjects: dict[str, Subject] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._subjects

    def __bool__(self) -> bool:
        return bool(self._subjects)

    def add(self, name: str, subject: Subject) -> None:
        """name: of its failure."""
        self._subjects[name] = subject

    def settle(self, name: str) -> None:
        """Drops a subject that has a verdict."""
        self._subjects.pop(name, None)

    def due(self, budget: TokenBudget | None, others: Iterable[Subject]) -> list[Subject]:
        """Some of them, but `others`, once there is room for one. Raises LogError."""
        if not self._subjects or budget is None or budget.left() <= 0:
            return []
        present = {id(subject) for subject in others}
        oldest = islice(self._subjects.values(), PUT_OFF_AT_ONCE)
        return [subject for subject in oldest if id(subject) not in present]

    def forget(self, partitions: Collection[int]) -> None:
        """Drops the subjects of partitions that belong to another member now."""
        self._subjects = {name: each for name, each in self._subjects.items() if each.partition not in partitions}

    def forget_oldest(self) -> int:
        """Drops the oldest beyond the bound, and returns how many those were."""
        surplus = max(0, len(self._subjects) - PUT_OFF_MAX)
        self._subjects = dict(islice(self._subjects.items(), surplus, None))
        return surplus


def is_paid(slot: ScoredSlot) -> bool:
    """Returns whether the slot's verdicts cost tokens."""
    return slot.scorer.use.partition(":")[0] in PAID_KINDS


def guessed_tokens(slot: ScoredSlot, judged: Judged) -> int:
    """A guess by the length of what is shown, for each vote; the rubric and the answers are not in it."""
    if not is_paid(slot):
        return 0
    parts = [judged.task, *judged.conversation, *(message for each in judged.members for message in each.conversation)]
    return guessed(*parts) * int(getattr(slot.scorer, "votes", 1))
