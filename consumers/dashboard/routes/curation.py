"""`/api/v1` of the queue: a person's next items and their judgements. Its undo is that of all acts."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.feedback.answers import queue_answer, subject_answer
from claw_r1.consumers.dashboard.feedback.bodies import JudgementBody, PreferenceBody, QueueQuery
from claw_r1.consumers.dashboard.feedback.view import FeedbackView
from claw_r1.consumers.dashboard.routes.parameters import Source, trajectory_of
from claw_r1.consumers.dashboard.source import PRODUCER
from claw_r1.consumers.pool.filter_query import Id
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Judging, Looking, PageSession
from claw_r1.datapool.feedback import (
    HUMAN,
    FeedbackFact,
    FeedbackSubject,
    Signature,
    feedback_events,
    preference_event,
)
from claw_r1.schemas.envelopes import new_id, now_us

routes = APIRouter(prefix="/api/v1", tags=["feedback"])


@routes.get("/queue", summary="What this person is asked next, and how far everybody is.")
def queue(query: Annotated[QueueQuery, Query()], source: Source, session: Looking) -> Response:
    """Filters are those of `claw pool`."""
    return SafeJson(queue_answer(source, query, session.who))


@routes.get("/subject", summary="A trajectory, or two of one group side by side: conversations and judgements.")
def subject(group_id: Id, trajectory_id: Id, source: Source, session: Looking, other_id: Id | None = None) -> Response:
    """Returns a subject; the feedback of others is included once this person has judged."""
    if other_id == trajectory_id:
        raise PageProblem(422, "other_id: two different trajectories of a group are compared")
    return SafeJson(subject_answer(source, group_id, trajectory_id, other_id, session.who))


@routes.post("/judgements", summary="Thumb, scores, comment or a better reply, on claw.rewards.")
def judge(body: JudgementBody, source: Source, session: Judging) -> Response:
    """Answered once the log has it."""
    about, remark = body.remark()
    row = trajectory_of(source, about.group_id, about.trajectory_id)
    if about.call_id is not None and about.call_id not in row.calls:
        raise PageProblem(404, f"the trajectory has no call {about.call_id}")
    return _append(source.feedback, feedback_events(about, remark, _signature(source.feedback, session, about)))


@routes.post("/preferences", summary="Which of two members of a group is better, on claw.rewards.")
def prefer(body: PreferenceBody, source: Source, session: Judging) -> Response:
    """Answered once the log has it."""
    comparison = body.comparison()
    for side in (comparison.chosen, comparison.rejected):
        trajectory_of(source, side.group_id, side.trajectory_id)
    by = _signature(source.feedback, session, comparison.chosen)
    return _append(source.feedback, [preference_event(comparison, by)])


def _signature(view: FeedbackView, session: PageSession, about: FeedbackSubject) -> Signature:
    """Above whatever this person said of it before, whichever clock was in use."""
    before = view.latest_revision(about, HUMAN + session.who)
    return Signature(who=session.who, producer=PRODUCER, at_us=now_us(), above=before, act_id=new_id())


def _append(view: FeedbackView, events: Sequence[FeedbackFact]) -> Response:
    view.append(events)
    return SafeJson({"events": [event.envelope.event_id for event in events]})
