"""The columns of the lists of groups, trajectories and steps, and how a record fills them. Pure.

Numbers are floats of 64 bits: microseconds and versions are exact up to 2**53. Missing values come last in every
order. `doubt` is that of `claw_r1.consumers.dashboard.feedback.queue`: of a call, how far people are apart on
it; of a trajectory, that of itself or of one of its calls, and how far scorers are apart; of a group, its most doubtful member's.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from claw_r1.datapool.feedback import HUMAN
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord

RowKind = Literal["groups", "trajectories", "steps"]
ColumnType = Literal["ids", "time_us", "count", "number", "flag", "word", "words"]
Read = (
    str | Callable[[Any], Any]
)  # a field, or a function of a record of the table's kind; mypy knows no row with all their fields
TASK_CHARACTERS = 200
TIME: Mapping[RowKind, str] = {"groups": "changed", "trajectories": "changed", "steps": "started"}
"""The column that tells when: lists begin with its newest, and filters of time ask it."""


class Column(NamedTuple):
    """`says`: one sentence for people. `read`: its value in a record, where a time of 0 is none; None where
    other rows make it."""

    type: ColumnType
    says: str
    read: Read | None = None


def _task(record: GroupRecord | TrajectoryRecord | StepRecord) -> str | None:
    return None if record.task is None else record.task[:TASK_CHARACTERS]


def _people_apart(record: TrajectoryRecord | StepRecord) -> float:
    """The largest distance of two people's values of one name on one subject, at most 1."""
    if not record.rewards:
        return 0.0
    values: dict[tuple[str | None, int | None, str], list[float]] = defaultdict(list)
    for slot in record.rewards:
        if slot.source.startswith(HUMAN) and slot.value is not None:
            values[slot.call_id, slot.step_index, slot.name].append(slot.value)
    return min(1.0, max((max(several) - min(several) for several in values.values()), default=0.0))


def _quality(step: StepRecord) -> float | None:
    return step.curation.quality if step.curation else None


def _step_tags(step: StepRecord) -> tuple[str, ...]:
    return (*step.tags, *step.curation.tags) if step.curation else step.tags


def _duration(step: StepRecord) -> float | None:
    return (step.timings.done_us - step.first_received_us) / 1e6 if step.timings else None


ID = Column("ids", "Its ids.")
SHARED = {
    "version_min": Column("count", "The earliest policy version that sampled a token of it.", "min_version"),
    "version_max": Column("count", "The latest policy version that sampled a token of it.", "max_version"),
    "channel": Column("word", "Train, val or another.", "channel"),
    "agent": Column("word", "Who played it.", "agent"),
    "task": Column("word", f"Its task, as JSON: the first {TASK_CHARACTERS} characters.", _task),
    "run": Column("word", "The run that it belongs to.", "run_id"),
    "reasons": Column("words", "Why it is not ready, or not trainable.", "reasons"),
}
COLUMNS: Mapping[RowKind, Mapping[str, Column]] = {
    "groups": {
        "id": ID,
        "changed": Column("time_us", "When the last of its facts occurred.", "last_progress_us"),
        "opened": Column("time_us", "When it was declared.", "declared_us"),
        "return": Column("number", "The mean of its members' returns.", "reward_mean"),
        "deviation": Column("number", "The sample standard deviation of its members' returns.", "reward_std"),
        "zero_variance": Column("flag", "Whether all returns are equal.", "zero_variance"),
        "members": Column("count", "Trajectories.", lambda row: len(row.members) + row.members_left_out),
        "members_ready": Column("count", "Members that are ready.", lambda row: sum(one.ready for one in row.members)),
        "expected": Column("count", "Members that it was declared with.", "expected_size"),
        "ready": Column("flag", "Whether it can be trained.", "ready"),
        "closed": Column("flag", "Whether its deadline closed it.", "closed"),
        "calls": Column("count", "Model calls of its members."),
        "tokens": Column("count", "Tokens of its members' calls, prompts and replies."),
        "response_tokens": Column("count", "Tokens of its members' replies."),
        "quality": Column("number", "The mean quality of its members' calls that have one."),
        "doubt": Column("number", "The doubt of its most doubtful member."),
        **SHARED,
        "tags": Column("words", "Its own tags.", "tags"),
    },
    "trajectories": {
        "id": ID,
        "changed": Column("time_us", "When the last of its facts occurred.", "last_progress_us"),
        "started": Column("time_us", "When it was registered, or its first call came in."),
        "registered": Column("time_us", "When it was registered.", "registered_us"),
        "ended": Column("time_us", "When its status was set.", "status_us"),
        "status": Column("word", "Open, completed, failed, abandoned or evicted.", "status"),
        "return": Column("number", "Its outcome and the rewards of its calls.", "return_total"),
        "distance": Column("number", "Its return less the mean of its group's returns."),
        "calls": Column("count", "Model calls.", lambda row: len(row.calls) + row.calls_left_out),
        "branches": Column("count", "Lines of calls.", "branches"),
        "failed_calls": Column("count", "Calls that failed.", lambda row: len(row.failed_calls)),
        "trainable_calls": Column("count", "Calls that can be trained.", "trainable_calls"),
        "tokens": Column("count", "Tokens of its calls, prompts and replies."),
        "response_tokens": Column("count", "Tokens of its replies."),
        "finish": Column("word", "Why the reply of its last call ended."),
        "ready": Column("flag", "Whether it can be trained.", "ready"),
        "quality": Column("number", "The mean quality of its calls that have one."),
        "people_apart": Column("number", "How far people are apart on it as a whole.", _people_apart),
        "scorers_apart": Column("number", "How far the ranks are apart that scorers give it: 0 to 1."),
        "doubt": Column("number", "How far people are apart, and scorers: 0 to 2."),
        **SHARED,
        "policy_run": Column("word", "The run that its model is of, or mixed.", "policy_run_id"),
        "tags": Column("words", "Its own tags.", "tags"),
    },
    "steps": {
        "id": ID,
        "started": Column("time_us", "When it came in first.", "first_received_us"),
        "duration": Column("number", "Seconds from when it came in first to its end.", _duration),
        "status": Column("word", "Completed or aborted.", "status"),
        "finish": Column("word", "Why its reply ended.", "finish_reason"),
        "reward": Column("number", "The sum of its rewards.", "reward_total"),
        "tokens": Column("count", "Tokens, prompt and reply.", lambda row: row.prompt_length + row.response_length),
        "prompt_tokens": Column("count", "Tokens of its prompt.", "prompt_length"),
        "response_tokens": Column("count", "Tokens of its reply.", "response_length"),
        "attempts": Column("count", "How often it was tried.", lambda row: len(row.attempts)),
        "trainable": Column("flag", "Whether it can be trained.", "trainable"),
        "curated": Column("flag", "Whether somebody judged it.", lambda row: row.curation is not None),
        "quality": Column("number", "The quality that it was given.", _quality),
        "doubt": Column("number", "How far people are apart on it.", _people_apart),
        "worker": Column("word", "Who sampled it.", "worker_id"),
        **SHARED,
        "tags": Column("words", "Its own tags, those of people too.", _step_tags),
    },
}


def column(kind: RowKind, name: str) -> Column:
    """Raises ValueError with a sentence that names those there are."""
    if kind not in COLUMNS:
        raise ValueError(f"the pool lists {', '.join(COLUMNS)}, not {kind!r}")
    if name not in COLUMNS[kind]:
        raise ValueError(f"{kind} have no column {name!r}; they have {', '.join(COLUMNS[kind])}")
    return COLUMNS[kind][name]
