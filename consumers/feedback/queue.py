"""What a person is asked next. Pure: a function of the pool's rows, of what people said, and of the address.

Doubt of a trajectory, 0 to 2: how far people are apart (the largest distance of two people's values of one name, at most 1) + how
far scorers are apart (the distance between the highest and the lowest rank that they give it; a rank is the share of all
trajectories that the same slot puts below, half of those beside, so that scales need not agree).

Doubt of a pair, 0 to 2: 1 - |votes for one - votes for the other| / votes (0 before the first vote) + 1 - the distance of the two
returns / the distance of the highest and the lowest in the group (0.5 where one has no return).
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from consumers.feedback.voices import Voices
from datapool.batch.candidates import OVER
from datapool.feedback import HUMAN
from schemas.events import TrajectoryRecord

Order = Literal["doubt", "newest", "draw"]


class QueueItem(NamedTuple):
    """A trajectory, or two of one group side by side."""

    group_id: str
    trajectory_id: str
    other_id: str | None
    judges: frozenset[str]
    doubt: float
    at_us: int
    """When the later of them ended."""


def single_items(
    rows: Iterable[TrajectoryRecord], every: Iterable[TrajectoryRecord], said_by: Voices
) -> list[QueueItem]:
    """Trajectories that are over and hold a call. every: all of the pool, for the ranks."""
    apart = scorers_apart(every)
    items = []
    for row in filter(_can_be_judged, rows):
        place = (row.group_id, row.trajectory_id)
        doubt = said_by.spread.get(place, 0.0) + apart.get(place, 0.0)
        items.append(QueueItem(*place, None, frozenset(said_by.judges.get(place, ())), doubt, row.status_us))
    return items


def pair_items(rows: Iterable[TrajectoryRecord], said_by: Voices) -> list[QueueItem]:
    """Of each group as many pairs as members, each member in two of them; a group of two has one."""
    groups: dict[str, list[TrajectoryRecord]] = defaultdict(list)
    for row in filter(_can_be_judged, rows):
        groups[row.group_id].append(row)
    items = []
    for members in groups.values():
        members.sort(key=lambda row: _draw(0, row.group_id, row.trajectory_id))
        returns = [row.return_total for row in members if row.return_total is not None]
        width = max(returns) - min(returns) if returns else 0.0
        ring = zip(members, members[1:] + members[:1], strict=True)
        pairs = list(ring)[: len(members) if len(members) > 2 else len(members) - 1]
        items += [_pair(one, other, width, said_by) for one, other in pairs]
    return items


def _pair(one: TrajectoryRecord, other: TrajectoryRecord, width: float, said_by: Voices) -> QueueItem:
    votes = said_by.pair_judges.get((one.group_id, frozenset({one.trajectory_id, other.trajectory_id})), {})
    ahead = sum((choice == one.trajectory_id) - (choice == other.trajectory_id) for choice in votes.values())
    divided = 1 - abs(ahead) / len(votes) if votes else 0.0
    near = 0.5
    if one.return_total is not None and other.return_total is not None:
        near = 1 - abs(one.return_total - other.return_total) / width if width else 1.0
    at_us = max(one.status_us, other.status_us)
    return QueueItem(one.group_id, one.trajectory_id, other.trajectory_id, frozenset(votes), divided + near, at_us)


def ordered(items: Iterable[QueueItem], order: Order, seed: int) -> list[QueueItem]:
    """The same for everybody who asks for the same."""

    def draw(item: QueueItem) -> bytes:
        return _draw(seed, *item[:2], item.other_id or "")

    if order == "newest":
        return sorted(items, key=lambda item: (-item.at_us, draw(item)))
    return sorted(items, key=lambda item: (-item.doubt if order == "doubt" else 0, draw(item)))


def is_open(item: QueueItem, who: str, overlap: int) -> bool:
    """Whether this person is to be asked: not yet, and fewer than `overlap` people were."""
    return who not in item.judges and len(item.judges) < overlap


def progress(items: Iterable[QueueItem]) -> dict[str, int]:
    """How many of these each person judged."""
    counts: dict[str, int] = defaultdict(int)
    for item in items:
        for who in item.judges:
            counts[who] += 1
    return dict(sorted(counts.items()))


def sides(item: tuple[str, str, str], who: str) -> tuple[str, str]:
    """Which of two is shown on the left: by lot, the same for one person at every look, so that no place wins by habit."""
    first, second = sorted(item[1:])
    return (first, second) if _draw(0, item[0], first, second, who)[0] % 2 else (second, first)


def scorers_apart(rows: Iterable[TrajectoryRecord]) -> Mapping[tuple[str, str], float]:
    """By (group_id, trajectory_id), of those that two scorers have judged."""
    slots: dict[tuple[str, str], list[tuple[float, tuple[str, str]]]] = defaultdict(list)
    for row in rows:
        for slot in row.rewards:
            of_scorer = slot.step_index is None and not slot.source.startswith(HUMAN)
            if of_scorer and slot.value is not None and math.isfinite(slot.value):
                slots[slot.source, slot.name].append((slot.value, (row.group_id, row.trajectory_id)))
    ranks: dict[tuple[str, str], list[float]] = defaultdict(list)
    for values in slots.values():
        numbers = sorted(value for value, _ in values)
        for value, place in values:
            ranks[place].append(_rank(numbers, value))
    return {place: max(each) - min(each) for place, each in ranks.items() if len(each) > 1}


def _rank(numbers: Sequence[float], value: float) -> float:
    return (bisect_left(numbers, value) + bisect_right(numbers, value)) / 2 / len(numbers)


def _can_be_judged(row: TrajectoryRecord) -> bool:
    return row.status in OVER and bool(row.calls)


def _draw(seed: int, *ids: str) -> bytes:
    return sha256("\0".join([str(seed), *ids]).encode("utf-8", "surrogatepass")).digest()
