"""The rows of a batch as a page draws them: where each is context, trained, or said before. Pure."""

from array import array
from collections.abc import Sequence
from itertools import groupby

from claw_r1.datapool.batch.candidates import PooledTrajectory
from claw_r1.datapool.batch.sequences import TrainingRow
from claw_r1.datapool.view.preview import Preview
from claw_r1.schemas.json_values import JsonDict

ROWS_MAX = 120
SPANS_MAX = 200
"""The most spans of one row; where it changes more often, the rest is not drawn."""


def drawn(preview: Preview) -> list[JsonDict]:
    """The first training rows of a batch, as trainers see them.

    Of each: length in tokens, `trained` as [start, end), `shared`: tokens that it begins with like an earlier row of its
    trajectory (`with_own`), or of its group. Both together are the forest: a row that shares is a branch.
    """
    members = preview.members
    pictures: list[JsonDict] = []
    for _, of_group in groupby(preview.rows[:ROWS_MAX], key=lambda row: members[row.trajectory].record.group_id):
        earlier: list[TrainingRow] = []
        for row in of_group:
            pictures.append(_drawn(row, members[row.trajectory], earlier))
            earlier.append(row)
    return pictures


def _drawn(row: TrainingRow, member: PooledTrajectory, earlier: Sequence[TrainingRow]) -> JsonDict:
    return {
        "group_id": member.record.group_id,
        "trajectory_id": member.record.trajectory_id,
        "return": None if member.earned is None else member.earned.total,
        "calls": list(row.call_ids[:SPANS_MAX]),
        "tokens": len(row),
        "tokens_trained": row.trained_tokens,
        "trained": trained_spans(row)[:SPANS_MAX],
        "shared_with_own": _shared(row, [each for each in earlier if each.trajectory == row.trajectory]),
        "shared": _shared(row, earlier),
    }


def trained_spans(row: TrainingRow) -> list[tuple[int, int]]:
    """[start, end) of each run of trained tokens."""
    spans: list[tuple[int, int]] = []
    place = 0
    for trained, run in groupby(row.mask):
        end = place + len(list(run))
        if trained:
            spans.append((place, end))
        place = end
    return spans


def _shared(row: TrainingRow, others: Sequence[TrainingRow]) -> int:
    return max((common_prefix(row.ids, other.ids) for other in others), default=0)


def common_prefix(left: "array[int]", right: "array[int]") -> int:
    """Returns how many tokens both begin with."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:  # the first `low` are equal, the first `high` are not
        middle = (low + high) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle)
    return low
