"""One group: its members as they fill up, and two of them side by side from where they part."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Annotated

from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.feedback.differences import ShownTurn, beside, plain
from claw_r1.consumers.dashboard.routes.parameters import GroupId, Source, trajectory_of
from claw_r1.consumers.dashboard.routes.tokens import finite_logprob
from claw_r1.consumers.dashboard.source import RunsState
from claw_r1.consumers.dashboard.tokens.facts import TokenLines
from claw_r1.consumers.pool.perspective import explained, perspective_of
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Looking
from claw_r1.datapool.view.conversations import ConversationTurn
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.token_lines import TokenLine
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.events import GroupMember, GroupRecord, TrajectoryRecord
from claw_r1.schemas.json_values import JsonDict

routes = APIRouter(prefix="/api/v1", tags=["groups"])
Member = Annotated[str, Query(min_length=1, description="trajectory_id of a member")]
MEMBERS_MAX = 500
TURNS_MAX = 40
"""The most turns of each side, from where they part."""
SHARED_SHOWN = 2
"""Turns before that, the last ones."""
CHARACTERS_MAX = 20_000
"""The longest text of one turn."""
CALLS_MAX = 64
"""Calls of each side that are looked through for the first different token."""
CONTEXT = 16
TOKENS_MAX = 240
"""Tokens before and behind the place where two sides part."""


@routes.get("/group", summary="A group, and its members from the highest return down.")
def group(source: Source, _: Looking, g: GroupId) -> Response:
    """At most 500 members; `left_out` counts the others."""
    record = source.pool.ask(lambda rows: rows.group_row(g))
    if record is None:
        raise PageProblem(404, f"the pool has no group {g}{'' if source.caught_up else '; it is still read'}")
    runs, why = source.ask_runs(lambda state: (_trained(state, g), source.pool.ask(lambda rows: _why(rows, state, g))))
    ranked = sorted(record.members, key=_rank)
    members = source.pool.ask(lambda rows: [_member(rows, g, member) for member in ranked[:MEMBERS_MAX]])
    for member in members:
        member["trained"] = [batch for batch, names in runs if member["trajectory_id"] in names]
    return SafeJson(_group(record) | why | {"members": members, "batches": [batch for batch, _ in runs]})


def _rank(member: GroupMember) -> tuple[bool, float, str]:
    """The highest return first, those without one last."""
    value = member.return_total
    return value is None, -(value or 0.0), member.trajectory_id


def _group(record: GroupRecord) -> JsonDict:
    names = (
        "group_id", "declared", "expected_size", "channel", "task", "deadline_us", "agent", "ordinal", "tags", "run_id",
        "closed", "closed_us", "ready", "reasons", "reward_mean", "reward_std", "zero_variance", "min_version",
        "max_version", "declared_us", "last_progress_us",
    )  # fmt: skip
    count = len(record.members) + record.members_left_out
    listed = min(len(record.members), MEMBERS_MAX)
    return {name: getattr(record, name) for name in names} | {"count": count, "left_out": count - listed}


def _member(rows: PoolRows, group_id: str, member: GroupMember) -> JsonDict:
    row = rows.trajectory(group_id, member.trajectory_id)
    return {
        "trajectory_id": member.trajectory_id,
        "status": member.status,
        "ready": member.ready,
        "return": member.return_total,
        "versions": [member.min_version, member.max_version],
        "reasons": row.reasons if row else ("its row has not come yet",),
        "calls": len(row.calls) + row.calls_left_out if row else 0,
        "calls_expected": row.calls_expected if row else None,
        "failed_calls": len(row.failed_calls) if row else 0,
        "branches": row.branches if row else 0,
        "changed_us": row.last_progress_us if row else 0,
        "tags": row.tags if row else (),
    }


def _trained(state: RunsState, group_id: str) -> list[tuple[JsonDict, frozenset[str]]]:
    """Batches that hold the group, and which members each trains."""
    index = state.index
    return [
        (
            {"run": batch.run_id, "batch": batch.sequence, "version": index.version_made(batch)},
            frozenset(name for name, calls in batch.trained.items() if calls),
        )
        for batch in index.planned(group_id)
    ]


def _why(rows: PoolRows, state: RunsState, group_id: str) -> JsonDict:
    """Explains the group like `claw pool why`, for the run that wrote last."""
    answers, warnings = explained(rows, state.index, perspective_of(rows, state.index, None), group_id)
    own = [each for each in answers if each.kind != "step" and each.ids[0] == group_id]
    return {
        "why": {
            "state": own[0].state if own else "not_ready",
            "lines": own[0].lines if own else (),
            "warnings": warnings,
        }
    }


@routes.get("/group/pair", summary="Two members side by side: what they said, from where they part.")
def pair(
    source: Source,
    _: Looking,
    g: GroupId,
    a: Member,
    b: Member,
) -> Response:
    """Turns that both have are counted, of the others at most 40 of each side come, with the words that differ marked."""
    rows = [trajectory_of(source, g, each) for each in (a, b)]
    try:
        left, right = (source.conversation(row).turns for row in rows)
    except HistoryCut as error:
        raise PageProblem(410, f"their calls are not in the log any more: {error}") from error
    same = _common(left, right)
    sides = beside(left[same : same + TURNS_MAX], right[same : same + TURNS_MAX])
    return SafeJson({
        "shared": same,
        "before": [_cut(turn) for turn in plain(left[max(0, same - SHARED_SHOWN) : same])],
        "sides": [
            _side(row) | {"turns": [_cut(turn) for turn in turns], "left_out": len(all_turns) - same - len(turns)}
            for row, turns, all_turns in zip(rows, sides, (left, right), strict=True)
        ],
    })  # fmt: skip


def _common(left: list[ConversationTurn], right: list[ConversationTurn]) -> int:
    return next((at for at, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right)))


def _side(row: TrajectoryRecord) -> JsonDict:
    return {"trajectory_id": row.trajectory_id, "status": row.status, "return": row.return_total}


def _cut(turn: ShownTurn) -> JsonDict:
    """`cut`: characters that are left out of the content."""
    parts, left = [], CHARACTERS_MAX
    for text, differs in turn["parts"] or [(turn["content"], False)]:
        if left > 0:
            parts.append((text[:left], differs))
            left -= len(text)
    reasoning = turn["reasoning"]
    return {
        "role": turn["role"],
        "branch": turn["branch"],
        "parts": parts,
        "cut": max(0, len(turn["content"]) - CHARACTERS_MAX),
        "reasoning": reasoning[:CHARACTERS_MAX] if reasoning else None,
    }


@routes.get("/group/tokens", summary="Two members' tokens around the place where they part.")
def tokens(
    source: Source,
    _: Looking,
    g: GroupId,
    a: Member,
    b: Member,
    k: Annotated[int | None, Query(ge=0, description="which call of each; default: the first that differs")] = None,
) -> Response:
    """Returns the tokens of one call of each side, as [id, log-probability (null: of the prompt), whether the other
    side has it not]."""
    rows = [trajectory_of(source, g, each) for each in (a, b)]
    most = max(1, min(CALLS_MAX, *(len(row.calls) for row in rows)))
    both = [TokenLines(source, row) for row in rows]
    for number in range(most) if k is None else (k,):
        sides = [_line(lines, row, number) for lines, row in zip(both, rows, strict=True)]
        one, other = (side and side.ids for side in sides)
        if one is None or one != other:
            break
    return SafeJson({"k": number, "calls": [len(row.calls) for row in rows], **_apart(sides)})


def _line(lines: TokenLines, row: TrajectoryRecord, number: int) -> TokenLine | None:
    """None where there is no such call, or its tokens or what its prompt is written against are missing."""
    line = lines.of(row.calls[number]) if number < len(row.calls) else None
    return line if line and line.stretches and not line.broken else None


def _apart(sides: Sequence[TokenLine | None]) -> JsonDict:
    """Both around the first token that differs; `parts_at` counts from the beginning of the prompt."""
    both = [unpack_ids(side.ids) if side else [] for side in sides]
    pairs = zip(*both, strict=False)
    parts_at = next((at for at, (x, y) in enumerate(pairs) if x != y), min(map(len, both)))
    first = max(0, parts_at - CONTEXT)
    windows = [ids[first : parts_at + TOKENS_MAX] for ids in both]
    differs = [[False] * len(ids) for ids in windows]
    matcher = SequenceMatcher(None, windows[0], windows[1], autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind != "equal":
            differs[0][i:j], differs[1][k:m] = [True] * (j - i), [True] * (m - k)
    each_side = zip(sides, both, windows, differs, strict=True)
    return {"parts_at": parts_at, "from": first, "sides": [_window(*each, first) for each in each_side]}


def _window(
    side: TokenLine | None, ids: list[int], window: list[int], differs: list[bool], first: int
) -> JsonDict | None:
    if side is None:
        return None
    prompt, own = side.prompt_length, side.stretches[-1]
    packed = own.call.response_logprobs
    chances = unpack_floats(packed) if len(packed) == len(own.call.response_ids) else []  # else which is whose?
    at = [place - prompt for place in range(first, first + len(window))]
    values = [finite_logprob(chances[each]) if 0 <= each < len(chances) else None for each in at]
    return {
        "call_id": own.step.call_id,
        "prompt": prompt,
        "length": len(ids),
        "tokens": list(zip(window, values, differs, strict=True)),
    }
