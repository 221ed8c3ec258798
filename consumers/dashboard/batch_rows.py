"""The rows of a batch as a page draws them: where each is context, trained, or said before. Pure."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from claw_r1.datapool.batch.candidates import with_members
from claw_r1.datapool.batch.sequences import TrainingRow
from claw_r1.datapool.errors import PromptBroken
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.training_rows import assemble_rows
from claw_r1.datapool.view.why import Perspective
from claw_r1.schemas.json_values import JsonDict

ROWS_MAX = 120
SPANS_MAX = 200
"""The most spans of one row; where it changes more often, the rest is not drawn."""


def drawn(rows: PoolRows, perspective: Perspective, group_ids: Iterable[str]) -> list[JsonDict]:
    """The first training rows of these groups, as trainers see them.

    Of each: length in tokens, `trained` as [start, end), `shared`: tokens that it begins with like an earlier row of its
    trajectory (`with_own`), or of its group. Both together are the forest: a row that shares is a branch.
    """
    pictures: list[JsonDict] = []
    for group_id in group_ids:
        if len(pictures) >= ROWS_MAX:
            break
        pictures += _of_group(rows, perspective, group_id)
    return pictures[:ROWS_MAX]


def _of_group(rows: PoolRows, perspective: Perspective, group_id: str) -> Iterator[JsonDict]:
    record = rows.group(group_id)
    group = None if record is None else with_members(rows, record, perspective.spec)
    if group is None:
        return
    try:
        of_group = assemble_rows(rows, group, perspective.spec, perspective.run_id, perspective.version)
    except PromptBroken:  # the preview names it among those left out
        return
    for place, row in enumerate(of_group[:ROWS_MAX]):
        earlier = of_group[:place]
        member = group.members[row.trajectory]
        spans = trained_spans(row)
        yield {
            "group_id": group_id,
            "trajectory_id": member.record.trajectory_id,
            "return": None if member.earned is None else member.earned.total,
            "calls": list(row.call_ids[:SPANS_MAX]),
            "tokens": len(row),
            "tokens_trained": row.trained_tokens,
            "trained": spans[:SPANS_MAX],
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
