"""The requests of the queue: parameters of its address, and bodies of its writes."""

from typing import Literal

from pydantic import Field

from claw_r1.consumers.dashboard.feedback.queue import QueueOrder
from claw_r1.consumers.pool.filter_query import FilterQuery, Id, StrictBody
from claw_r1.datapool.feedback import OVERALL, Comparison, FeedbackSubject, Remark


class QueueQuery(FilterQuery):
    """The queue to show."""

    mode: Literal["single", "pair"] = "single"
    order: QueueOrder = "doubt"
    seed: int = 0
    overlap: int = Field(default=1, ge=1, le=100)
    """The number of people that each item is for."""
    people: tuple[Id, ...] = Field(default=(), max_length=100)
    """People who share the items: each item is for `overlap` of them, by lot; empty: all
    items are for everybody."""
    evaluation: bool = False
    """Includes evaluation, whose trajectories are not trained; a filter with a channel overrides it."""
    limit: int = Field(default=50, ge=1, le=500)


class JudgementBody(StrictBody):
    """POST /api/v1/judgements"""

    group_id: Id
    trajectory_id: Id
    call_id: Id | None = None
    thumb: bool | None = None
    scores: dict[str, float] = Field(default={})
    comment: str | None = None
    edit: str | None = None
    """A better reply to the call."""
    withdraw: list[str] = Field(default=[])

    def remark(self) -> tuple[FeedbackSubject, Remark]:
        """Returns the feedback and its subject."""
        remark = Remark(
            thumb=self.thumb,
            scores=self.scores,
            comment=self.comment,
            edit=self.edit,
            withdraw=tuple(self.withdraw),
        )
        return FeedbackSubject(self.group_id, self.trajectory_id, self.call_id), remark


class PreferenceBody(StrictBody):
    """POST /api/v1/preferences; of a tie, and of two bad ones, the order says nothing."""

    group_id: Id
    chosen: Id
    rejected: Id
    outcome: Literal["chosen", "tie", "both_bad"] = "chosen"
    name: str = OVERALL
    strength: float | None = None
    comment: str | None = None

    def comparison(self) -> Comparison:
        """Returns the comparison in the form of `claw_r1.datapool.feedback`."""
        return Comparison(
            chosen=FeedbackSubject(self.group_id, self.chosen),
            rejected=FeedbackSubject(self.group_id, self.rejected),
            outcome=self.outcome,
            name=self.name,
            strength=self.strength,
            comment=self.comment,
        )
