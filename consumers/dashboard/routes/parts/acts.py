"""The acts of people on the pool from the page, and their history. By the code of `claw pool curate` and `evict`: the
same events."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Query, Response
from msgspec.structs import replace
from pydantic import Field

from claw_r1.consumers.dashboard.feedback.answers import word_answer
from claw_r1.consumers.dashboard.personal_acts import ActKind, PersonalAct, saying, subjects
from claw_r1.consumers.dashboard.routes.parameters import CallIdQuery, GroupId, Source, TrajectoryIdQuery, trajectory_of
from claw_r1.consumers.dashboard.selection import (
    TooMany,
    digest_of,
    evicted_rows,
    select_evictable,
    select_steps,
)
from claw_r1.consumers.dashboard.source import PRODUCER, DashboardSource
from claw_r1.consumers.pool.curation import CurationRequest, curations, curations_undone
from claw_r1.consumers.pool.eviction import EvictableRow, evictions
from claw_r1.consumers.pool.filter_query import FilterQuery, Id, StrictBody
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Judging, Looking, Operating
from claw_r1.datapool.feedback import HUMAN, FeedbackFact, FeedbackSubject, Signature, undo_events
from claw_r1.datapool.personal_words import PersonalWord
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.rows import as_step
from claw_r1.schemas.envelopes import new_id, now_us
from claw_r1.schemas.events import Curation, GroupRecord, StepCurated, StepRecord
from claw_r1.schemas.topics import CALLS, REWARDS

EVENTS_MAX = 20_000
"""The most events of one act; more is for the command line, which nobody waits for."""
CALLS_SUMMED_MAX = 500
SUBJECTS_MAX = 20
FACTS_TOLD_MAX = 200
"""The most facts of an act that are shown with their text; the others say the same."""
routes = APIRouter(prefix="/api/v1", tags=["acts"])


class CurationBody(StrictBody):
    """POST /api/v1/curations"""

    kind: Literal["steps", "trajectories", "groups"] = "steps"
    """The rows that the filter selects: the steps that meet it, or all steps of the
    trajectories or groups that do."""
    ids: Annotated[list[Id], Field(max_length=1000)] = Field(default=[])
    places: Annotated[list[Annotated[list[Id], Field(min_length=1, max_length=3)]], Field(max_length=1000)] = Field(
        default=[]
    )
    """[group], [group, trajectory] or [group, trajectory, call]: beside or instead of ids, which may be of
    several groups."""
    where: FilterQuery = FilterQuery()
    trainable: bool | None = None
    quality: float | None = None
    scores: dict[str, float | None] = Field(default={})
    tags: list[str] | None = None
    note: str | None = None
    dry_run: bool = False
    """Only count."""
    expected: str | None = None
    """`digest` of what was counted: of anything else the act is refused."""

    def judgement(self) -> CurationRequest:
        """Returns the judgement of the body. Raises PageProblem for nothing."""
        tags = None if self.tags is None else tuple(self.tags)
        request = CurationRequest(
            trainable=self.trainable, quality=self.quality, scores=self.scores, tags=tags, note=self.note
        )
        if request == CurationRequest():
            raise PageProblem(422, "nothing is judged: give trainable, quality, scores, tags or note")
        return request


class EvictionBody(StrictBody):
    """POST /api/v1/evictions"""

    ids: Annotated[list[Id], Field(max_length=1000)] = Field(default=[])
    group: Id | None = None
    """The group of the ids."""
    places: Annotated[list[Annotated[list[Id], Field(min_length=1, max_length=2)]], Field(max_length=1000)] = Field(
        default=[]
    )
    """[group] or [group, trajectory]."""
    why: Annotated[str, Field(min_length=1, max_length=10_000)]
    dry_run: bool = False
    expected: str | None = None
    """The expected digest, like that of a CurationBody."""


class UndoBody(StrictBody):
    """POST /api/v1/acts/undo"""

    act_id: Id | None = None
    """An act, or one event of it; null: this person's latest one of which something stands."""


@routes.post("/curations", summary="Judge steps by ids or filter, as `claw pool curate`; dry_run counts first.")
def curate(body: CurationBody, source: Source, session: Judging) -> Response:
    """Answered once the log has it."""
    judgement, act_id = body.judgement(), new_id()
    events = curations(_chosen(source, body), judgement, who=session.who, producer=PRODUCER, act_id=act_id)
    digest = _checked([(each.group_id, each.trajectory_id, each.call_id) for each in events], body.expected)
    if not body.dry_run:
        source.append(REWARDS, events)
    answer = _answer(act_id, events, dry_run=body.dry_run)
    return SafeJson({**answer, "steps": len(events), "digest": digest, "command": command(body)})


@routes.post(
    "/evictions",
    summary="Erase groups or trajectories from the pool for good, as `claw pool evict`; dry_run counts first.",
)
def evict(body: EvictionBody, source: Source, session: Operating) -> Response:
    """An unknown id evicts nothing."""
    if not body.ids and not body.places:
        raise PageProblem(422, "which groups or trajectories? name ids or places")
    rows_by_id = source.pool.ask(lambda rows: select_evictable(rows, body.ids, body.group, body.places))
    act_id = new_id()
    act = evictions(rows_by_id, why=body.why, who=session.who, producer=PRODUCER, act_id=act_id)
    digest = _checked([*((name,) for name in act.groups), *act.trajectories], body.expected)
    if not body.dry_run:
        source.append(CALLS, act.events)
    answer = _answer(act_id, act.events, dry_run=body.dry_run)
    counts = {"groups": len(act.groups), "trajectories": len(act.trajectories)}
    return SafeJson({**answer, **counts, "digest": digest, "unknown": act.unknown})


@routes.post("/acts/undo", summary="Take an act back, or this person's latest one that stands.")
def undo(body: UndoBody, source: Source, session: Judging) -> Response:
    """`undone`: the act; null: nothing of it stands any more. An eviction stays."""
    own = source.acts.latest(session.who)
    candidates = [act for act in own if act.kind not in ("undone", "evicted")]
    if body.act_id is not None:
        act = source.acts.named(body.act_id)
        if act is None:
            raise PageProblem(404, f"nobody's act has the id {body.act_id}")
        if act.kind == "evicted":
            raise PageProblem(422, "an eviction cannot be undone")
        candidates = [act]
    for act in candidates:
        if events := _undoing(source, act, session.who):
            source.feedback.append(events)
            return SafeJson({"undone": _act(source, act, session.who)})
    return SafeJson({"undone": None})


@routes.get(
    "/acts", summary="What people did, the newest first; with kind=evicted also what operators erased elsewhere."
)
def history(
    source: Source,
    session: Looking,
    who: str | None = None,
    kind: ActKind | None = None,
    before: Annotated[str | None, Query(description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Lists acts on claw.rewards, and evictions."""
    acts = [act for act in source.acts.latest(who) if kind in (None, act.kind)]
    rows = [(act.at_us, act.act_id, partial(_act, source, act, session.who)) for act in acts]
    if kind == "evicted" and who is None:
        own = {name for act in acts for name in act.event_ids()}
        gone = source.pool.ask(evicted_rows)
        words = [(_eviction_of(row), row) for row in gone]
        rows += [
            (word.at_us, word.event_id, partial(_erased, word, row)) for word, row in words if word.event_id not in own
        ]
        rows.sort(key=lambda row: row[:2], reverse=True)
    keys = [f"{at_us}.{name}" for at_us, name, _ in rows]
    start = keys.index(before) + 1 if before in keys else 0
    page = rows[start : start + limit]
    more = keys[start + limit - 1] if len(rows) > start + limit else None
    return SafeJson({"acts": [describe() for _, _, describe in page], "total": len(rows), "next": more})


@routes.get("/judged", summary="What counts of a trajectory's calls, or of one call, and what this person said of it.")
def judged(
    g: GroupId, t: TrajectoryIdQuery, source: Source, session: Looking, c: CallIdQuery | None = None
) -> Response:
    """Also what the pool has not folded yet. Of several calls, a field in `mixed` is not the same for all."""
    row = trajectory_of(source, g, t)
    names = row.calls[:CALLS_SUMMED_MAX] if c is None else (c,)
    stored = source.pool.ask(lambda rows: rows.store.steps(g, t))
    pooled = {name: as_step(stored[name]).curation if name in stored else None for name in names}
    each = [source.acts.curation((g, t, name), curation) for name, curation in pooled.items()]
    subject, person = FeedbackSubject(g, t, c), HUMAN + session.who
    mine = source.feedback.ask(lambda feedback: feedback.standing(g, subject, person))
    return SafeJson(
        {
            "g": g,
            "t": t,
            "c": c,
            "calls": len(row.calls) if c is None else 1,
            "return_total": row.return_total,
            **_common([curation or Curation() for curation in each]),
            "judged": sum(curation is not None and bool(curation.who) for curation in each),
            "mine": [word_answer(word) for word in mine if word.other is None],
        }
    )


def _common(each: list[Curation]) -> dict[str, Any]:  # JSON
    fields: dict[str, Any] = {}
    mixed = []
    for name in ("trainable", "quality", "tags", "note", "scores"):
        values = [getattr(curation, name) for curation in each]
        same = all(value == values[0] for value in values)
        fields[name] = values[0] if values and same else None
        mixed += [] if same else [name]
    return {"curation": fields, "mixed": mixed}


def _chosen(source: DashboardSource, body: CurationBody) -> list[StepRecord]:
    """The steps that are meant, in order, with all that people said of them. Raises PageProblem where that is none or all."""
    try:
        filters = body.where.filter()
    except ValueError as error:
        raise PageProblem(422, str(error)) from error
    if not body.ids and not body.places and filters == PoolFilter():
        raise PageProblem(422, "which steps? name ids, or a filter such as channel")
    try:
        steps = source.pool.ask(
            lambda rows: select_steps(rows, body.kind, filters, body.ids, body.places, EVENTS_MAX),
        )
    except TooMany as error:
        raise PageProblem(422, f"{error}: narrow the filter, or type the command of claw pool curate") from error
    return [
        replace(step, curation=source.acts.curation((step.group_id, step.trajectory_id, step.call_id), step.curation))
        for step in steps
    ]


def _checked(places: Sequence[tuple[str, ...]], expected: str | None) -> str:
    """The digest of what an act is of. Raises PageProblem where that is not what was counted."""
    digest = digest_of(places)
    if expected not in (None, digest):
        raise PageProblem(409, "since it was counted, the pool has changed what this is about: count again")
    return digest


def _undoing(source: DashboardSource, act: PersonalAct, who: str) -> list[FeedbackFact]:
    """Makes the facts that take back all that still stands of the act; of words, only who spoke them may. Raises
    PageProblem."""
    by = Signature(who=who, producer=PRODUCER, at_us=now_us(), act_id=new_id())
    words = _words(source, act)
    if words and act.who != who:
        raise PageProblem(403, f"these are words of {act.who}, who alone can take them back")
    return [*_uncurated(source, act, by), *undo_events([word.fact for word in words], by)]


def _uncurated(source: DashboardSource, act: PersonalAct, by: Signature) -> list[StepCurated]:
    """Makes the facts that take back the curations of the act that stand."""
    facts = (fact for fact in act.facts if isinstance(fact, StepCurated))
    history = source.acts.curations({(fact.group_id, fact.trajectory_id, fact.call_id) for fact in facts})
    return curations_undone(history, act.act_id, who=by.who, producer=by.producer, act_id=by.act_id)


def _words(source: DashboardSource, act: PersonalAct) -> list[PersonalWord]:
    """The words of the act that stand; curations are none."""
    groups = {fact.group_id for fact in act.facts if not isinstance(fact, StepCurated)}
    standing = source.feedback.ask(lambda feedback: [word for group in groups for word in feedback.standing(group)])
    return [word for word in standing if word.act_id == act.act_id and not isinstance(word.fact, StepCurated)]


def _answer(act_id: str, events: Sequence[Any], *, dry_run: bool) -> dict[str, Any]:  # JSON
    return {"act_id": act_id, "dry_run": dry_run, "subjects": subjects(events, SUBJECTS_MAX)}


def _act(source: DashboardSource, act: PersonalAct, who: str) -> dict[str, Any]:  # JSON
    facts = list(act.facts)
    stands = act.kind == "evicted" or source.acts.curates(act) or bool(_words(source, act))
    mine = act.who == who or act.is_of_curations
    return {
        "act_id": act.act_id,
        "at_us": act.at_us,
        "who": act.who,
        "kind": act.kind,
        "through": facts[0].envelope.producer,
        "events": len(facts),
        "says": list(dict.fromkeys(map(saying, facts[:FACTS_TOLD_MAX])))[:5],
        "subjects": subjects(facts, 3),
        "stands": stands,
        "may_undo": stands and mine and act.kind != "evicted",
    }


class _EvictionWord(NamedTuple):
    at_us: int
    event_id: str
    reason: str


def _eviction_of(row: EvictableRow) -> _EvictionWord:
    if isinstance(row, GroupRecord):
        return _EvictionWord(row.evicted_us, row.evicted_event_id, row.evicted_reason)
    return _EvictionWord(row.status_us, row.status_event_id, row.reason)


def _erased(word: _EvictionWord, row: EvictableRow) -> dict[str, Any]:  # JSON
    """An eviction as the pool's row tells it: who asked for it stands in the fact alone."""
    return {
        "act_id": word.event_id,
        "at_us": word.at_us,
        "who": None,
        "kind": "evicted",
        "through": None,
        "events": 1,
        "says": [f"evicted: {word.reason}"],
        "subjects": [{"g": row.group_id, "t": getattr(row, "trajectory_id", None), "c": None}],
        "stands": True,
        "may_undo": False,
    }


def command(body: CurationBody) -> list[str] | None:
    """The words of a command that does the same, unquoted; None where there is none: `--text` of a command reads conversations, too."""
    where = body.where.model_dump(exclude_none=True)
    beyond = "text" in where or body.tags == [] or None in body.scores.values()
    if body.kind != "steps" or beyond or body.places or any(name.startswith("-") for name in body.ids):
        return None
    words = ["claw", "pool", "curate", *body.ids]
    words += {None: [], True: ["--train"], False: ["--no-train"]}[body.trainable]
    words += [] if body.quality is None else ["--quality", repr(body.quality)]
    words += [f"--set-score={scorer}={score!r}" for scorer, score in body.scores.items()]
    words += [f"--set-tag={tag}" for tag in body.tags or ()]
    words += [] if body.note is None else [f"--why={body.note}"]
    for name, value in where.items():
        word = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{word}" if value else f"--not-{word}")
        else:
            words += [f"--{word}={each}" for each in (value if isinstance(value, tuple) else [value])]
    return words
