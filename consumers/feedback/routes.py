"""`/api/v1`: what the page asks and says. Reads and writes are JSON; nothing else is behind it."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from claw_r1.consumers.feedback.answers import queue_answer, row_of, subject_answer, word_answer
from claw_r1.consumers.feedback.bodies import Id, JudgementBody, PreferenceBody, QueueQuery
from claw_r1.consumers.feedback.view import FeedbackView
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Judging, Looking, PageSession
from claw_r1.datapool.feedback import (
    HUMAN,
    FeedbackFact,
    FeedbackSubject,
    Signature,
    feedback_events,
    preference_event,
    undo_events,
)
from claw_r1.schemas.envelopes import new_id, now_us

PRODUCER = "feedback"
routes = APIRouter(prefix="/api/v1", tags=["feedback"])


async def _view(request: Request) -> FeedbackView:
    view: FeedbackView = request.app.state.feedback
    return view


View = Annotated[FeedbackView, Depends(_view)]


@routes.get("/queue", summary="What this person is asked next, and how far everybody is.")
def queue(query: Annotated[QueueQuery, Query()], view: View, session: Looking) -> Response:
    """Filters are those of `claw pool`."""
    return SafeJson(queue_answer(view, query, session.who))


@routes.get("/subject", summary="A trajectory, or two of one group side by side: conversations and judgements.")
def subject(group_id: Id, trajectory_id: Id, view: View, session: Looking, other_id: Id | None = None) -> Response:
    """Returns a subject; the feedback of others is included once this person has judged."""
    if other_id == trajectory_id:
        raise PageProblem(422, "other_id: two different trajectories of a group are compared")
    return SafeJson(subject_answer(view, group_id, trajectory_id, other_id, session.who))


@routes.post("/judgements", summary="Thumb, scores, comment or a better reply, on claw.rewards.")
def judge(body: JudgementBody, view: View, session: Judging) -> Response:
    """Answered once the log has it."""
    about, remark = body.remark()
    row = row_of(view, about.group_id, about.trajectory_id)
    if about.call_id is not None and about.call_id not in row.calls:
        raise PageProblem(404, f"the trajectory has no call {about.call_id}")
    return _append(view, feedback_events(about, remark, _signature(view, session, about)))


@routes.post("/preferences", summary="Which of two members of a group is better, on claw.rewards.")
def prefer(body: PreferenceBody, view: View, session: Judging) -> Response:
    """Answered once the log has it."""
    comparison = body.comparison()
    for side in (comparison.chosen, comparison.rejected):
        row_of(view, side.group_id, side.trajectory_id)
    return _append(view, [preference_event(comparison, _signature(view, session, comparison.chosen))])


@routes.post("/undo", summary="Take back this person's latest act that still stands.")
def undo(view: View, session: Judging) -> Response:
    """`undone`: its words; null: nothing stands."""
    words = view.ask(lambda feedback: feedback.last_act(HUMAN + session.who))
    if not words:
        return SafeJson({"undone": None})
    view.append(undo_events([word.fact for word in words], _signature(view, session, words[0].subject)))
    return SafeJson({"undone": [word_answer(word) for word in words]})


def _signature(view: FeedbackView, session: PageSession, about: FeedbackSubject) -> Signature:
    """Above whatever this person said of it before, whichever clock was in use."""
    before = view.latest_revision(about, HUMAN + session.who)
    return Signature(who=session.who, producer=PRODUCER, at_us=now_us(), above=before, act_id=new_id())


def _append(view: FeedbackView, events: Sequence[FeedbackFact]) -> Response:
    view.append(events)
    return SafeJson({"events": [event.envelope.event_id for event in events]})
