"""The order in which a person gets items to judge. Pure: a function of the pool's rows, people's feedback,
and the address.

Doubt of a trajectory, 0 to 2: how far people are apart (the largest distance of two people's values of one
name, at most 1) + how far scorers are apart (the pool's column `scorers_apart`: ranks, so that scales need not
agree).

Doubt of a pair, 0 to 2: 1 - |votes for one - votes for the other| / votes (0 before the first vote) + 1 - the
distance of the two returns / the distance of the highest and the lowest in the group (0.5 where one has no
return).
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Literal, NamedTuple

from claw_r1.consumers.dashboard.feedback.voices import JudgedKey, PairKey, Voices
from claw_r1.datapool.batch.candidates import OVER
from claw_r1.schemas.events import TrajectoryRecord

QueueOrder = Literal["doubt", "newest", "draw"]


class QueueItem(NamedTuple):
    """A trajectory, or two of one group side by side."""

    group_id: str
    trajectory_id: str
    other_id: str | None
    doubt: float
    at_us: int
    """The end of the later trajectory."""
    judges: frozenset[str] = frozenset()

    @property
    def place(self) -> JudgedKey | PairKey:
        """The key under which feedback of people names the item."""
        two = self.other_id is not None
        return (self.group_id, frozenset({self.trajectory_id, self.other_id or ""}) if two else self.trajectory_id)  # type: ignore[return-value]  # two shapes of one key


class Silent(NamedTuple):
    """A queue without feedback, in its order: the costly part, which does not change with each judgement."""

    items: list[QueueItem]
    at: Mapping[JudgedKey | PairKey, QueueItem]
    order: QueueOrder
    seed: int


def silent(items: Sequence[QueueItem], order: QueueOrder, seed: int) -> Silent:
    """Equal for all equal requests."""
    ordered = sorted(items, key=partial(_sort_key, order, seed))
    return Silent(ordered, {item.place: item for item in items}, order, seed)


def with_feedback(queue: Silent, voices: Voices) -> tuple[Iterator[QueueItem], list[QueueItem]]:
    """All items with people's feedback, in order, as far as they are examined; and those with feedback."""
    judged: dict[JudgedKey | PairKey, QueueItem] = {}
    for place, judges in voices.judges.items():
        if (item := queue.at.get(place)) is not None:
            doubt = item.doubt + voices.spread.get(place, 0.0)
            judged[place] = item._replace(judges=frozenset(judges), doubt=doubt)
    for pair, votes in voices.pair_judges.items():
        if (item := queue.at.get(pair)) is not None:
            ahead = sum((each == item.trajectory_id) - (each == item.other_id) for each in votes.values())
            doubt = item.doubt + 1 - abs(ahead) / len(votes)
            judged[pair] = item._replace(judges=frozenset(votes), doubt=doubt)
    key = partial(_sort_key, queue.order, queue.seed)
    rest = (item for item in queue.items if item.place not in judged)
    return heapq.merge(rest, sorted(judged.values(), key=key), key=key), list(judged.values())


def single_items(rows: Iterable[tuple[TrajectoryRecord, float]]) -> list[QueueItem]:
    """Trajectories that are over and hold a call, each given with how far scorers are apart on it."""
    judged = ((row, apart) for row, apart in rows if _can_be_judged(row))
    return [QueueItem(row.group_id, row.trajectory_id, None, apart, row.status_us) for row, apart in judged]


def pair_items(rows: Iterable[TrajectoryRecord]) -> list[QueueItem]:
    """Makes as many pairs of each group as it has members, each member in two of them; a group of two has one."""
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
        items += [_pair(one, other, width) for one, other in pairs]
    return items


def _pair(one: TrajectoryRecord, other: TrajectoryRecord, width: float) -> QueueItem:
    near = 0.5
    if one.return_total is not None and other.return_total is not None:
        near = 1 - abs(one.return_total - other.return_total) / width if width else 1.0
    at_us = max(one.status_us, other.status_us)
    return QueueItem(one.group_id, one.trajectory_id, other.trajectory_id, near, at_us)


def _sort_key(order: QueueOrder, seed: int, item: QueueItem) -> tuple[float, bytes]:
    first = {"doubt": -item.doubt, "newest": -item.at_us, "draw": 0}[order]
    return first, _draw(seed, item.group_id, item.trajectory_id, item.other_id or "")


def is_open(item: QueueItem, who: str, overlap: int) -> bool:
    """Returns whether this person is to judge the item: not yet, and fewer than `overlap` people were."""
    return who not in item.judges and len(item.judges) < overlap


def is_for(item: QueueItem, who: str, people: Sequence[str], overlap: int) -> bool:
    """Returns whether the item is one of this person's, by lot: as many for each, whoever looks, in whatever order."""
    drawn = sorted(people, key=lambda name: _draw(0, item.group_id, item.trajectory_id, item.other_id or "", name))
    return not people or who in drawn[:overlap]


def progress(items: Iterable[QueueItem]) -> dict[str, int]:
    """Counts the items that each person judged."""
    counts: dict[str, int] = defaultdict(int)
    for item in items:
        for who in item.judges:
            counts[who] += 1
    return dict(sorted(counts.items()))


def sides(item: tuple[str, str, str], who: str) -> tuple[str, str]:
    """Orders a pair for one person, the left side first: by lot, the same for one person at every look, so that no
    place wins by habit."""
    first, second = sorted(item[1:])
    return (first, second) if _draw(0, item[0], first, second, who)[0] % 2 else (second, first)


def _can_be_judged(row: TrajectoryRecord) -> bool:
    return row.status in OVER and bool(row.calls)


def _draw(seed: int, *ids: str) -> bytes:
    return sha256("\0".join([str(seed), *ids]).encode("utf-8", "surrogatepass")).digest()
