"""The JSON of the queue and its subjects. Blind: before judging, people do not see others' and scorers'
judgements.
"""

from functools import partial
from itertools import islice
from typing import Any

from claw_r1.consumers.dashboard.feedback.bodies import QueueQuery
from claw_r1.consumers.dashboard.feedback.differences import ShownTurn, beside, plain
from claw_r1.consumers.dashboard.feedback.queue import QueueItem, is_for, is_open, progress, sides, with_feedback
from claw_r1.consumers.dashboard.personal_acts import saying
from claw_r1.consumers.dashboard.routes.parameters import trajectory_of
from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.web.problems import PageProblem
from claw_r1.datapool.feedback import HUMAN
from claw_r1.datapool.personal_words import PersonalWord
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.schemas.events import TrajectoryRecord


def queue_answer(source: DashboardSource, query: QueueQuery, who: str) -> dict[str, Any]:  # JSON
    """Returns the next items of this person's queue. Raises PageProblem, ViewFailed."""
    view = source.feedback
    try:
        kept = view.queues.get(query)
    except ValueError as error:
        raise PageProblem(422, str(error)) from error
    voices = view.voices()
    items, judged = with_feedback(kept.queue, voices)
    own = partial(is_for, who=who, people=query.people, overlap=query.overlap)
    waiting = (item for item in items if is_open(item, who, query.overlap) and own(item))
    total = sum(map(own, kept.queue.items)) if query.people else len(kept.queue.items)
    judged = list(filter(own, judged))
    return {
        "who": who,
        "reading": not source.caught_up,
        "items": [_item(item, who) for item in islice(waiting, query.limit)],
        "open": total - sum(not is_open(item, who, query.overlap) for item in judged),
        "total": total,
        "progress": progress(judged),
        "again_s": view.queues.newer_in_s(kept),
    }


def _item(item: QueueItem, who: str) -> dict[str, Any]:  # JSON
    """Without others' judgements and the doubt, which would tell."""
    left, right = item.trajectory_id, item.other_id
    if right is not None:
        left, right = sides((item.group_id, left, right), who)
    return {"group_id": item.group_id, "trajectory_id": left, "other_id": right}


def subject_answer(
    source: DashboardSource, group_id: str, trajectory_id: str, other_id: str | None, who: str
) -> dict[str, Any]:  # JSON
    """One trajectory, or two side by side. Raises PageProblem, ViewFailed, LogError."""
    ids = [trajectory_id] if other_id is None else list(sides((group_id, trajectory_id, other_id), who))
    rows = [trajectory_of(source, group_id, each) for each in ids]
    view = source.feedback
    try:
        conversations = [source.conversation(row) for row in rows]
    except HistoryCut as error:
        raise PageProblem(410, f"its calls are not in the log any more: {error}") from error
    turns = beside(conversations[0].turns, conversations[1].turns) if other_id else (plain(conversations[0].turns),)
    standing = view.ask(lambda feedback: feedback.standing(group_id))
    voices = view.voices()
    votes = voices.pair_judges.get((group_id, frozenset(ids)), {}) if other_id else {}
    pair = [word_answer(word) for word in standing if word.other and {word.subject[1], word.other[1]} == {*ids}]
    columns = []
    for row, side, read in zip(rows, turns, conversations, strict=True):
        sees = who in (votes if other_id else voices.judges.get((group_id, row.trajectory_id), ()))
        own = [word for word in standing if word.other is None and word.subject.trajectory_id == row.trajectory_id]
        columns.append(_side(row, side, own, who, sees=sees) | {"call_id": read.last_call_id, "reply": read.last_reply})
    return {
        "group_id": group_id,
        "sides": columns,
        "mine": [word for word in pair if word["who"] == who],
        "others": [word for word in pair if word["who"] != who] if who in votes else None,
    }


def _side(
    row: TrajectoryRecord, turns: list[ShownTurn], words: list[PersonalWord], who: str, *, sees: bool
) -> dict[str, Any]:  # JSON
    """sees: this person has judged already, and so may see the rewards of others and scorers."""
    scorers = [
        {"slot": f"{slot.source}/{slot.name}", "value": slot.value, "failed": slot.failed}
        for slot in row.rewards
        if not slot.source.startswith(HUMAN)
    ]
    return {
        "trajectory_id": row.trajectory_id,
        "status": row.status,
        "task": row.task,
        "tags": row.tags,
        "calls": len(row.calls) + row.calls_left_out,
        "left_out": row.calls_left_out,
        "turns": turns,
        "mine": [word_answer(word) for word in words if word.who == who],
        "others": [word_answer(word) for word in words if word.who != who] if sees else None,
        "scorers": scorers if sees else None,
    }


def word_answer(word: PersonalWord) -> dict[str, Any]:  # JSON
    """One word of one person."""
    return {
        "who": word.who,
        "kind": word.kind,
        "name": word.name,
        "value": word.value,
        "comment": word.comment,
        "edit": (word.message or {}).get("content"),
        "says": "a comment" if word.kind == "comment" else saying(word.fact),  # whose text stands beside
        "group_id": word.subject.group_id,
        "trajectory_id": word.subject.trajectory_id,
        "other_id": word.other.trajectory_id if word.other else None,
    }
