"""The feedback of people on replies, as events, and the part of it that stands. Pure: time and ids come from the
caller.

Invariant: all feedback of a person stays in the log; the part that counts is a function of the set of facts. Of one person,
subject and name the highest (revision, occurred_at_us, event_id) counts, and a person's revision is the time of the act in
microseconds, so the later word stands. An undo is a further event, which empties the slot: nothing older returns, and the
person may judge again.

    thumb, score              RewardAssigned, source `human:<who>`, name `thumb` (1 or 0) or the score's own
    better reply              OutputEdited
    comparison                PreferenceGiven
    comment beside these      with the first of them
    comment alone             on a call: StepCurated.note; on a trajectory, which has no notes: RewardAssigned `comment`, without a value
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace

from claw_r1.datapool.errors import PoolError
from claw_r1.datapool.fold.curation import REVISION_MAX
from claw_r1.datapool.fold.validation import REWARD_MAX
from claw_r1.schemas.envelopes import decision_id
from claw_r1.schemas.events import (
    Envelope,
    OutputEdited,
    PreferenceGiven,
    PreferenceOutcome,
    RewardAssigned,
    StepCurated,
    SubjectRef,
)

HUMAN = "human:"
"""In front of a person's name in `source`."""
THUMB, COMMENT, EDIT, OVERALL = "thumb", "comment", "edit", "overall"
RESERVED = (THUMB, COMMENT, EDIT)
"""No names of scores: each is a word of its own in `Remark.withdraw`."""
NAME_CHARACTERS_MAX = 128
COMMENT_CHARACTERS_MAX = 10_000
EDIT_BYTES_MAX = 1 << 20
SCORES_MAX = 64
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
UNPRINTABLE_IN_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
FeedbackFact = RewardAssigned | OutputEdited | PreferenceGiven | StepCurated


class InvalidFeedback(PoolError, ValueError):
    """A person's feedback cannot be stored. `field`: the part at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class FeedbackSubject(NamedTuple):
    """A trajectory, or one call of it."""

    group_id: str
    trajectory_id: str
    call_id: str | None = None

    def __str__(self) -> str:
        return "/".join(filter(None, self))


class Signature(Struct, frozen=True, kw_only=True):
    """The author, with time and way: one act, whose events share their correlation id."""

    who: str
    producer: str
    at_us: int
    """UTC microseconds: time of the events, and their revision unless `above` is higher."""
    act_id: str
    """A fresh id, or `keyed_act` of an idempotency key: event ids are functions of it."""
    traceparent: str | None = None
    key_name: str | None = None
    """The name of the API key by which the feedback came."""
    above: int = 0
    """A revision that the events come after; after the highest that there is by their time alone."""

    @property
    def revision(self) -> int:
        """The revision of the events."""
        return min(max(self.at_us, self.above + 1), REVISION_MAX)

    @property
    def source(self) -> str:
        """Raises InvalidFeedback for a name that is none."""
        return HUMAN + checked_name("who", self.who)


class Remark(Struct, frozen=True, kw_only=True):
    """The feedback of a person on one subject."""

    thumb: bool | None = None
    """Up or down."""
    scores: Mapping[str, float] = {}
    edit: Any = None
    """The edit of a call: the better reply, as text or as the assistant's message in chat's format."""
    comment: str | None = None
    withdraw: tuple[str, ...] = ()
    """`thumb`, `edit`, names of scores, and of a trajectory `comment`: what no longer stands of this person."""


class Comparison(Struct, frozen=True, kw_only=True):
    """The feedback of a person on two trajectories of a group, or on two calls of its trajectories."""

    chosen: FeedbackSubject
    rejected: FeedbackSubject
    outcome: PreferenceOutcome = "chosen"
    name: str = OVERALL
    strength: float | None = None
    comment: str | None = None


def keyed_act(key: str, who: str) -> str:
    """The act of a request under an idempotency key: whoever repeats it makes the same events again."""
    return decision_id("feedback", who, key)


def feedback_events(subject: FeedbackSubject, remark: Remark, by: Signature) -> list[FeedbackFact]:
    """The events of a remark, at least one. Raises InvalidFeedback."""
    source, comment = by.source, checked_comment(remark.comment)
    values = _values(subject, remark)
    events: list[FeedbackFact] = []
    for name, value in values.items():
        events.append(_reward(subject, name, value, None if events else comment, by))
    if remark.edit is not None or EDIT in remark.withdraw:
        if subject.call_id is None:
            raise InvalidFeedback(EDIT, "is of one call: name it (call_id)")
        events.append(
            OutputEdited(
                envelope=_envelope(by, "OutputEdited", *subject),
                group_id=subject.group_id,
                trajectory_id=subject.trajectory_id,
                call_id=subject.call_id,
                message=None if remark.edit is None else checked_message(remark.edit),
                comment=None if events else comment,
                source=source,
                revision=by.revision,
            )
        )
    if not events and comment is not None:
        events = [_comment(subject, comment, by)]
    if not events:
        raise InvalidFeedback("nothing is said:", "give thumb, score, scores, edit, comment or withdraw")
    return events


def preference_event(comparison: Comparison, by: Signature) -> PreferenceGiven:
    """The event of a comparison. Raises InvalidFeedback."""
    chosen, rejected, strength = comparison.chosen, comparison.rejected, comparison.strength
    if chosen == rejected:
        raise InvalidFeedback("rejected", "is the same as chosen")
    if chosen.group_id != rejected.group_id:
        raise InvalidFeedback("rejected", "is of another group: only members of one group are compared")
    if (chosen.call_id is None) != (rejected.call_id is None):
        raise InvalidFeedback("rejected", "must be a call where chosen is one, and a trajectory where chosen is one")
    if strength is not None and not 0 <= strength <= 1:
        raise InvalidFeedback("strength", "must be from 0 (barely) to 1 (clearly)")
    name, pair = checked_name("name", comparison.name), sorted([str(chosen), str(rejected)])
    return PreferenceGiven(
        envelope=_envelope(by, "PreferenceGiven", *pair, name),
        group_id=chosen.group_id,
        chosen=SubjectRef(trajectory_id=chosen.trajectory_id, call_id=chosen.call_id),
        rejected=SubjectRef(trajectory_id=rejected.trajectory_id, call_id=rejected.call_id),
        outcome=comparison.outcome,
        name=name,
        strength=strength,
        comment=checked_comment(comparison.comment),
        source=by.source,
        revision=by.revision,
    )


def undo_events(facts: Sequence[FeedbackFact], by: Signature) -> list[FeedbackFact]:
    """Takes these facts of the signer back, each by an event above it, whatever the clocks said. Raises InvalidFeedback."""
    return [_undo(fact, by) for fact in facts]


def checked_name(field: str, name: str) -> str:
    """A name of a person or a score: a part of a slot `source/name`, which patterns match. Raises InvalidFeedback."""
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise InvalidFeedback(field, f"must have 1 to {NAME_CHARACTERS_MAX} characters")
    if UNPRINTABLE.search(name) or name != name.strip():
        raise InvalidFeedback(field, "must hold no control characters, and no space at its ends")
    if "/" in name or "*" in name:
        raise InvalidFeedback(field, "must hold no / and no *")
    if field == "who" and name.startswith(HUMAN):
        raise InvalidFeedback(field, f"is the name alone: {HUMAN} is put before it")
    return name


def checked_comment(comment: str | None) -> str | None:
    """The comment itself. Raises InvalidFeedback."""
    if comment is None:
        return None
    if not comment.strip() or len(comment) > COMMENT_CHARACTERS_MAX:
        raise InvalidFeedback(COMMENT, f"must have 1 to {COMMENT_CHARACTERS_MAX} characters")
    if UNPRINTABLE_IN_TEXT.search(comment):
        raise InvalidFeedback(COMMENT, "must hold no control characters but line breaks and tabs")
    return comment


def checked_message(edit: Any) -> str:  # any JSON value
    """The assistant's message as JSON text. Raises InvalidFeedback."""
    message = {"role": "assistant", "content": edit} if isinstance(edit, str) else edit
    if not isinstance(message, Mapping) or message.get("role", "assistant") != "assistant":
        raise InvalidFeedback(EDIT, "must be text, or an assistant's message in chat's format")
    content, calls = message.get("content"), message.get("tool_calls")
    if not (isinstance(content, str | list) and content) and not (isinstance(calls, list) and calls):
        raise InvalidFeedback(EDIT, "must have content or tool_calls")
    try:
        text = orjson.dumps({**message, "role": "assistant"})
    except TypeError as broken:
        raise InvalidFeedback(EDIT, f"cannot be stored as JSON: {broken}") from broken
    if len(text) > EDIT_BYTES_MAX:
        raise InvalidFeedback(EDIT, f"must have at most {EDIT_BYTES_MAX} bytes as JSON")
    return text.decode()


def _values(subject: FeedbackSubject, remark: Remark) -> dict[str, float | None]:
    """Value by name of slot, in the order of the events; None takes it back."""
    if len(remark.scores) + len(remark.withdraw) > SCORES_MAX:
        raise InvalidFeedback("scores", f"must be at most {SCORES_MAX}")
    values: dict[str, float | None] = {} if remark.thumb is None else {THUMB: float(remark.thumb)}
    for name, value in sorted(remark.scores.items()):
        if checked_name("scores", name) in RESERVED:
            raise InvalidFeedback("scores", f"must not be called {' or '.join(RESERVED)}")
        if not (math.isfinite(value) and abs(value) <= REWARD_MAX):
            raise InvalidFeedback("scores", f"must be finite numbers up to {REWARD_MAX:g}: {name} is {value}")
        values[name] = float(value)
    for name in sorted(set(remark.withdraw)):
        if name in values or (name == EDIT and remark.edit is not None):
            raise InvalidFeedback("withdraw", f"contradicts the rest: {name} is given too")
        if name == COMMENT and (subject.call_id is not None or remark.comment is not None):
            raise InvalidFeedback(
                "withdraw", "of a comment is of a trajectory's alone; a call's: claw label --undo, or a new comment"
            )
        if name != EDIT:
            values[checked_name("withdraw", name)] = None
    return values


def _reward(
    subject: FeedbackSubject, name: str, value: float | None, comment: str | None, by: Signature
) -> RewardAssigned:
    return RewardAssigned(
        envelope=_envelope(by, "RewardAssigned", *subject, name),
        group_id=subject.group_id,
        trajectory_id=subject.trajectory_id,
        call_id=subject.call_id,
        source=by.source,
        name=name,
        value=value,
        revision=by.revision,
        metadata=None if comment is None else orjson.dumps({COMMENT: comment}).decode(),
    )


def _comment(subject: FeedbackSubject, comment: str, by: Signature) -> FeedbackFact:
    if subject.call_id is None:
        return _reward(subject, COMMENT, None, comment, by)
    return StepCurated(
        envelope=_envelope(by, "StepCurated", *subject),
        group_id=subject.group_id,
        trajectory_id=subject.trajectory_id,
        call_id=subject.call_id,
        note=comment,
        who=by.source.removeprefix(HUMAN),  # as `claw pool curate` signs
        revision=by.revision,
    )


def _undo(fact: FeedbackFact, by: Signature) -> FeedbackFact:
    own = replace(by, above=max(by.above, fact.revision))
    if isinstance(fact, PreferenceGiven):
        place = [FeedbackSubject(fact.group_id, ref.trajectory_id, ref.call_id) for ref in (fact.chosen, fact.rejected)]
        return preference_event(
            Comparison(chosen=place[0], rejected=place[1], name=fact.name, outcome="withdrawn"), own
        )
    subject = FeedbackSubject(fact.group_id, fact.trajectory_id, fact.call_id)
    if isinstance(fact, RewardAssigned):
        return _reward(subject, fact.name, None, None, own)
    if isinstance(fact, OutputEdited):
        return feedback_events(subject, Remark(withdraw=(EDIT,)), own)[0]
    return StepCurated(
        envelope=_envelope(own, "StepCurated", *subject, fact.envelope.event_id),
        group_id=fact.group_id,
        trajectory_id=fact.trajectory_id,
        call_id=fact.call_id,
        who=own.source.removeprefix(HUMAN),
        revision=own.revision,
        undoes=(fact.envelope.event_id,),
    )


def _envelope(by: Signature, kind: str, *subject: str | None) -> Envelope:
    return Envelope(
        event_id=decision_id(kind, by.act_id, by.source, *(part or "" for part in subject)),
        occurred_at_us=by.at_us,
        producer=by.producer,
        correlation_id=by.act_id,
        traceparent=by.traceparent,
        key_name=by.key_name,
    )
