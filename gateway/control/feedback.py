"""The feedback of people on replies, over HTTP: thumbs, scores, better replies, comments and comparisons become events.

Invariant: an annotator's key speaks only as the person whose name it has; operators, who run apps with many users, name
the person; agents, and callers without a key, speak for no person. A request is stored as a reward is, and answered
once all of it is.

Output: `rewards` (RewardAssigned, OutputEdited, PreferenceGiven, StepCurated), key group_id.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator, Field
from pydantic.types import StringConstraints

from claw_r1.datapool.feedback import (
    HUMAN,
    OVERALL,
    RESERVED,
    Comparison,
    FeedbackFact,
    FeedbackSubject,
    InvalidFeedback,
    Remark,
    Signature,
    checked_name,
    feedback_events,
    keyed_act,
    preference_event,
)
from claw_r1.gateway.callers.scopes import require_own
from claw_r1.gateway.control.bodies import AssignReward, Body, JsonValue, NameBody, RewardValue
from claw_r1.gateway.control.idempotency_keys import KeyedBodies
from claw_r1.gateway.control.reward_sources import RewardSources, is_ahead
from claw_r1.gateway.errors import Forbidden, Unusable
from claw_r1.gateway.headers import ClientHeaders, client_headers
from claw_r1.gateway.http.asgi import IDENTITY, KEY
from claw_r1.gateway.paths import Identity, checked_id
from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.envelopes import new_id, now_us
from claw_r1.schemas.events import Event
from claw_r1.schemas.topics import REWARDS, Topic

ITEMS_MAX = 1000
Publish = Callable[[Topic, str, Event], Awaitable[None]]
Text = Annotated[str, StringConstraints(min_length=1)]
Item = TypeVar("Item")


def _as_list(body: Any) -> Any:  # any JSON value
    return body if isinstance(body, list) else [body]


def _as_subject(value: Any) -> Any:  # any JSON value
    return {"trajectory_id": value} if isinstance(value, str) else value


class GiveFeedback(Body):
    """POST …/feedback: one item, or a list of them. Without `call_id` it is of the trajectory."""

    call_id: NameBody | None = None
    thumb: Literal["up", "down"] | None = None
    score: RewardValue | None = None
    """The score called `overall`."""
    scores: dict[str, RewardValue] = Field(default_factory=dict)
    edit: JsonValue = None
    comment: Text | None = None
    withdraw: tuple[Text, ...] = ()
    who: Text | None = None


class PreferredSubject(Body):
    """A trajectory of the group, or one call of it. Text alone is a trajectory's id."""

    trajectory_id: NameBody
    call_id: NameBody | None = None


SubjectBody = Annotated[PreferredSubject, BeforeValidator(_as_subject, json_schema_input_type=PreferredSubject | str)]


class GivePreference(Body):
    """POST /groups/{group_id}/preferences: one item, or a list of them."""

    chosen: SubjectBody
    rejected: SubjectBody
    outcome: Literal["chosen", "tie", "both_bad", "withdrawn"] = "chosen"
    name: Text = OVERALL
    strength: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    comment: Text | None = None
    who: Text | None = None


Listed = Annotated[tuple[Item, ...], Field(min_length=1, max_length=ITEMS_MAX)]
FeedbackItems = Annotated[
    Listed[GiveFeedback], BeforeValidator(_as_list, json_schema_input_type=GiveFeedback | list[GiveFeedback])
]
PreferenceItems = Annotated[
    Listed[GivePreference], BeforeValidator(_as_list, json_schema_input_type=GivePreference | list[GivePreference])
]


class FeedbackRoutes:
    """The handlers. All items of a request are checked before any is stored."""

    def __init__(self, publish: Publish, producer: str, keyed: KeyedBodies) -> None:
        """publish: by which rewards are stored. keyed: the same as theirs."""
        self._publish, self._producer, self._keyed = publish, producer, keyed

    async def give_feedback(self, request: Request, body: FeedbackItems) -> JSONResponse:
        """Raises Unusable, Forbidden, NotCaptured."""
        who: Identity = request.scope[IDENTITY]

        def events(item: GiveFeedback, by: Signature) -> Sequence[FeedbackFact]:
            subject = FeedbackSubject(who.group_id, who.trajectory_id, item.call_id)
            return feedback_events(subject, _remark(item), by)

        return await self._accept(request, ("feedback", who.group_id, who.trajectory_id), body, events)

    async def give_preference(self, request: Request, group_id: str, body: PreferenceItems) -> JSONResponse:
        """Raises Unusable, Forbidden, NotCaptured."""
        checked_id(group_id, "group_id")
        for item in body:
            sides = item.chosen.trajectory_id, item.rejected.trajectory_id
            require_own(request.scope[KEY], group_id=group_id, chosen=sides[0], rejected=sides[1])

        def events(item: GivePreference, by: Signature) -> Sequence[FeedbackFact]:
            sides = [
                FeedbackSubject(group_id, side.trajectory_id, side.call_id) for side in (item.chosen, item.rejected)
            ]
            comparison = Comparison(
                chosen=sides[0], rejected=sides[1], **item.model_dump(exclude={"chosen", "rejected", "who"})
            )
            return [preference_event(comparison, by)]

        return await self._accept(request, ("preferences", group_id), body, events)

    async def _accept(
        self,
        request: Request,
        place: tuple[str, ...],
        items: Sequence[Any],  # of one kind, with `who`
        events_of: Callable[[Any, Signature], Sequence[FeedbackFact]],
    ) -> JSONResponse:
        """place: what is spoken of; the second is the group. Raises Unusable, Forbidden, KeyOfOtherBody, NotCaptured."""
        key, act_id = request.scope[KEY], new_id()
        headers = client_headers(request.scope["headers"], key)
        people = sorted({item.who or headers.key_name or "" for item in items})
        keyed = headers.idempotency_key, (*place, *people), "\n".join(item.model_dump_json() for item in items)
        at_us = self._keyed.first_us(*keyed, now_us())
        events: dict[str, FeedbackFact] = {}
        for number, item in enumerate(items):
            try:
                by = self._signature(key, item.who, headers, at_us, act_id)
                for event in events_of(item, by):
                    if event.envelope.event_id in events:
                        raise InvalidFeedback("again:", "one person judges one subject twice in one request")
                    events[event.envelope.event_id] = event
            except InvalidFeedback as refused:
                where = f"{number}: " if len(items) > 1 else ""
                raise Unusable(f"{where}{refused}", param=refused.field) from refused
        self._keyed.note(*keyed, at_us)
        await asyncio.gather(*(self._publish(REWARDS, place[1], event) for event in events.values()))
        return JSONResponse({"event_ids": list(events)})

    def _signature(
        self, key: ApiKey | None, who: str | None, headers: ClientHeaders, at_us: int, act_id: str
    ) -> Signature:
        name = speaker(key, who)
        if headers.idempotency_key:
            act_id = keyed_act(headers.idempotency_key, name)
        return Signature(
            who=name,
            producer=self._producer,
            at_us=at_us,
            act_id=act_id,
            traceparent=headers.traceparent,
            key_name=headers.key_name,
        )


def speaker(key: ApiKey | None, who: str | None) -> str:
    """Returns the person who speaks in a request under this key: an annotator's own name, else the one that the request
    names.

    Raises Forbidden for another name than an annotator's own, InvalidFeedback where there is none or it is no name.
    """
    if key is not None and key.role == "annotator":
        if who not in (None, key.name):
            raise Forbidden(f"this key is of the annotator {key.name}, who speaks only for that name: leave who out")
        who = key.name
    if who is None:
        raise InvalidFeedback("who", "is missing: name the person who judges")
    return checked_name("who", who)


def as_speaker(body: AssignReward, key: ApiKey | None, sources: RewardSources, at_us: int) -> AssignReward:
    """A reward as this key may give it: an annotator's is the annotator's own word, as feedback is. Raises Forbidden, Unusable."""
    if key is not None and key.role == "annotator":
        body = _annotators(body, key, at_us)
    sources.require(key, body.source, body.revision)
    if body.source.startswith(HUMAN) and is_ahead(body.revision):
        raise Unusable(
            "revision must not be ahead: of a person's word it is the time in microseconds", param="revision"
        )
    return body


def _annotators(body: AssignReward, key: ApiKey, at_us: int) -> AssignReward:
    try:
        source = HUMAN + speaker(key, None)
    except InvalidFeedback as refused:
        raise Unusable(f"the name of this key cannot stand in a reward: {refused}", param="source") from refused
    if "source" in body.model_fields_set and body.source != source:
        raise Forbidden(f"this key has the role annotator, whose rewards have the source {source}: leave source out")
    try:
        if checked_name("name", body.name) in RESERVED:
            raise InvalidFeedback("name", f"must not be {' or '.join(RESERVED)}: POST …/feedback says these")
    except InvalidFeedback as refused:
        raise Unusable(str(refused), param=refused.field) from refused
    revision = body.revision if "revision" in body.model_fields_set else at_us
    return body.model_copy(update={"source": source, "revision": revision})


def _remark(item: GiveFeedback) -> Remark:
    if item.score is not None and OVERALL in item.scores:
        raise InvalidFeedback("score", f"is the score called {OVERALL}, which scores has too")
    scores = item.scores if item.score is None else {**item.scores, OVERALL: item.score}
    return Remark(
        thumb=None if item.thumb is None else item.thumb == "up",
        scores=scores,
        edit=item.edit,
        comment=item.comment,
        withdraw=item.withdraw,
    )
