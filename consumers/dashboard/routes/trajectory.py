"""One trajectory: its calls as a tree and in time, its conversation and judgements, why it is trained or not."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from msgspec import to_builtins

from claw_r1.consumers.dashboard.call_messages import CallShare, bases, excerpt_of, exchanges, message_answers
from claw_r1.consumers.dashboard.call_tree import CallTree, rewards_of, totals
from claw_r1.consumers.dashboard.feedback.answers import word_answer
from claw_r1.consumers.dashboard.routes.parameters import CallIdQuery, GroupId, Source, TrajectoryIdQuery, trajectory_of
from claw_r1.consumers.dashboard.source import DashboardSource, RunsState
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.consumers.pool.perspective import explained, perspective_of
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Looking
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.why import Explanation
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.records import Position, readable
from claw_r1.schemas.events import CallCaptured, StepRecord, TrajectoryRecord

routes = APIRouter(prefix="/api/v1/trajectory", tags=["trajectory"])
PAGE_MAX = 500
"""Calls of one answer, rewards, words of people, hits."""
SLOTS_MAX = 100
"""Rewards and judgements shown beside one call."""
From = Annotated[int, Query(alias="from", ge=0, description="place of the first call in the tree's order")]
PageLimit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
Window = Annotated[int, Query(ge=1, le=50)]
Number = Annotated[int, Query(ge=0)]
Needle = Annotated[str, Query(min_length=1, max_length=200)]
ABOUT = (
    "protocol", "client", "call_kind", "parent_trajectory", "identity_source", "adapted", "http_status", "idempotency_key",
    "upstream", "choice",
)  # fmt: skip
"""The fields of a captured call that its step does not have."""


@routes.get("", summary="A trajectory: its record, rewards, why it is trained or not, and the first calls of its tree.")
def trajectory(source: Source, _: Looking, g: GroupId, t: TrajectoryIdQuery, c: str | None = None) -> Response:
    """c: a call whose place in the tree is `at`. Of `calls` the first 500; `/calls` has the others."""
    row, tree = _outline(source, g, t)
    rewards = rewards_of(row, tree)
    answer, warnings = _why(source, row, tree)
    plain = as_plain(row)
    for name in ("calls", "offsets", "rewards"):
        del plain[name]
    return SafeJson(
        {
            "trajectory": plain,
            "at": tree.place.get(c) if c else None,
            "total": len(tree.calls),
            "calls": tree.calls[:PAGE_MAX],
            **totals(tree),
            "rewards": rewards[:PAGE_MAX],
            "rewards_left_out": max(0, len(rewards) - PAGE_MAX),
            "why": answer,
            "warnings": warnings,
            "batches": _batches(source, g, t),
            "words": _words(source, g, t),
        }
    )


@routes.get("/calls", summary="Calls of the tree from one place on, in few numbers.")
def calls(
    source: Source, _: Looking, g: GroupId, t: TrajectoryIdQuery, start: From = 0, limit: PageLimit = PAGE_MAX
) -> Response:
    """In the tree's order."""
    tree = _outline(source, g, t)[1]
    return SafeJson({"from": start, "total": len(tree.calls), "calls": tree.calls[start : start + limit]})


@routes.get("/messages", summary="State, action, reward and metadata of calls from one place on: what each adds.")
def messages(
    source: Source, _: Looking, g: GroupId, t: TrajectoryIdQuery, start: From = 0, limit: Window = 10
) -> Response:
    """Long texts are cut; `/message` has the whole."""
    tree = _outline(source, g, t)[1]
    window = tree.steps[start : start + limit]
    facts, shares = _exchanges(source, tree, window)
    batches = source.ask_runs(lambda state: state.index.planned(g))
    answer = []
    for at, step in enumerate(window, start):
        fact = facts.get(step.call_id)
        trained = [[batch.run_id, batch.sequence] for batch in batches if step.call_id in batch.trained.get(t, ())]
        about = None if fact is None else {name: to_builtins(getattr(fact, name)) for name in ABOUT}
        call = {"at": at, "call_id": step.call_id, "step": _step(step), "trained": trained[:PAGE_MAX], "about": about}
        answer.append(call | _share(shares.get(step.call_id), tree))
    return SafeJson({"from": start, "total": len(tree.calls), "calls": answer})


@routes.get("/message", summary="One message of a call, whole, with the data of its images.")
def message(source: Source, _: Looking, g: GroupId, t: TrajectoryIdQuery, c: CallIdQuery, n: Number) -> Response:
    """n: its number among those that `/messages` has of the call."""
    tree = _outline(source, g, t)[1]
    share = _exchanges(source, tree, [_step_of(tree, c)])[1].get(c)
    whole = [] if share is None else message_answers(share, n)
    if not whole:
        raise PageProblem(404, f"call {c} has no message {n}: read the trajectory again")
    return SafeJson(whole[0])


@routes.get("/find", summary="Calls that add a text to the conversation, in the tree's order.")
def find(source: Source, _: Looking, g: GroupId, t: TrajectoryIdQuery, q: Needle) -> Response:
    """In any case, as the bodies have it, with the text around it. The first 500 calls."""
    steps = _outline(source, g, t)[1].steps
    facts = _facts(source, steps)
    excerpts = (
        (at, step.call_id, excerpt_of(q, facts[step.call_id])) for at, step in enumerate(steps) if step.call_id in facts
    )
    hits = [
        {"at": at, "call_id": call_id, "excerpt": excerpt} for at, call_id, excerpt in excerpts if excerpt is not None
    ]
    return SafeJson({"hits": hits[:PAGE_MAX], "total": len(hits)})


def _outline(source: DashboardSource, g: str, t: str) -> tuple[TrajectoryRecord, CallTree]:
    row = trajectory_of(source, g, t)
    return row, source.pool.ask(lambda rows: source.outlines.get(rows, row))


def _why(source: DashboardSource, row: TrajectoryRecord, tree: CallTree) -> tuple[dict[str, Any] | None, list[str]]:
    """Returns the explanation of `claw pool why`, and its warnings."""

    steps = {
        (row.group_id, row.trajectory_id): [tree.steps[tree.place[call]] for call in row.calls if call in tree.place]
    }

    def question(rows: PoolRows, runs: RunIndex) -> tuple[list[Explanation], list[str]]:
        return explained(rows, runs, perspective_of(rows, runs, None), row.trajectory_id, steps)

    try:
        answers, warnings = source.ask_both(lambda rows, state: question(rows, state.index))
    except PoolRefusal as refusal:
        return None, [str(refusal)]
    own = (each for each in answers if (each.kind, *each.ids) == ("trajectory", row.group_id, row.trajectory_id))
    answer = next(own, None)
    return None if answer is None else asdict(answer), warnings


def _batches(source: DashboardSource, g: str, t: str) -> list[dict[str, Any]]:  # JSON
    """Returns the batches that the trajectory was planned in, and the version that each made."""

    def question(state: RunsState) -> list[dict[str, Any]]:
        return [
            {
                "run_id": batch.run_id,
                "sequence": batch.sequence,
                "version": state.index.version_made(batch),
                "reward": batch.reward[t],
                "trained": len(batch.trained.get(t, ())),
                "masked": len(batch.masked.get(t, ())),
            }
            for batch in state.index.planned(g)[-PAGE_MAX:]
            if t in batch.reward
        ]

    return source.ask_runs(question)


def _words(source: DashboardSource, g: str, t: str) -> list[dict[str, Any]]:  # JSON
    """Returns the feedback of people on it that stands, the latest last."""
    words = source.feedback.ask(lambda feedback: feedback.standing(g))
    own = [word for word in words if t in (word.subject.trajectory_id, word.other and word.other.trajectory_id)]
    return [
        word_answer(word) | {"call_id": word.subject.call_id, "at_us": word.fact.envelope.occurred_at_us}
        for word in own[-PAGE_MAX:]
    ]


def _step_of(tree: CallTree, call_id: str) -> StepRecord:
    if call_id not in tree.place:
        raise PageProblem(404, f"the trajectory has no call {call_id}")
    return tree.steps[tree.place[call_id]]


def _step(step: StepRecord) -> dict[str, Any]:  # JSON
    """The step's record; of many rewards and judgements the first, and how many there are."""
    plain = as_plain(step) | {"rewards_total": len(step.rewards)}
    plain["rewards"] = plain["rewards"][:SLOTS_MAX]
    if step.curation is not None:
        judgements = plain["curation"]["judgements"]
        plain["curation"] |= {"judgements": judgements[:SLOTS_MAX], "judgements_total": len(judgements)}
    return plain


def _share(share: CallShare | None, tree: CallTree) -> dict[str, Any]:  # JSON
    """Returns what a call adds to the conversation."""
    if share is None:
        return {"messages": [], "left_out": 0, "base": None, "tools": [], "problem": "no call of it was captured yet"}
    own, at = message_answers(share), tree.place.get(share.base or "")
    return {
        "messages": own,
        "left_out": len(share.added) + (share.reply is not None) - len(own),
        "base": share.base and {"call_id": share.base, "at": at, "repeated": share.repeated, "left": share.left},
        "tools": share.tools,
        "problem": share.problem,
    }


def _exchanges(
    source: DashboardSource, tree: CallTree, window: Sequence[StepRecord]
) -> tuple[dict[str, CallCaptured], dict[str, CallShare]]:
    """The captured calls of a window, with all that their bodies are written against, and what each of the window adds."""
    before = {step.call_id: earlier.call_id for earlier, step in pairwise(tree.steps)}
    names = [step.call_id for step in window]
    facts: dict[str, CallCaptured] = {}
    needed = _likely(tree, [*names, *(before[name] for name in names if name in before)])
    looked_up: set[str] = set()
    while needed := needed - looked_up:
        looked_up |= needed
        facts |= _facts(source, [tree.steps[tree.place[call_id]] for call_id in needed])
        links = {fact.request.base_call_id or "" for fact in facts.values()}
        for name in names:
            links.update(bases(facts[name], before.get(name))[:1] if name in facts else ())
        needed = links & tree.place.keys()
    captured = [(name, before.get(name)) for name in names if name in facts]
    return facts, dict(zip((name for name, _ in captured), exchanges(captured, facts), strict=True))


def _likely(tree: CallTree, names: Sequence[str]) -> set[str]:
    """Calls with those that their prompts are written against, which are mostly what bodies are written against, too."""
    likely: set[str] = set()
    for name in names:
        while name in tree.place and name not in likely:
            likely.add(name)
            name = tree.steps[tree.place[name]].base_call_id or ""
    return likely


def _facts(source: DashboardSource, steps: Sequence[StepRecord]) -> dict[str, CallCaptured]:
    """Raises PageProblem where the log does not hold them any more."""
    places = [Position.of(step.position) for step in steps if step.position is not None]
    try:
        records = source.records(places)
    except HistoryCut as error:
        raise PageProblem(410, f"its calls are not in the log any more: {error}") from error
    return {fact.call_id: fact for fact in readable(records.values()) if isinstance(fact, CallCaptured)}
