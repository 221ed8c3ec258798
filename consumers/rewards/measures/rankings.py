"""The order of a group's trajectories by one side and by another: what a policy gradient sees
of two scorers. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from msgspec import Struct

from claw_r1.consumers.rewards.measures.ratings import Rating

MembersByGroup = Mapping[str, Mapping[str, float]]
"""Group -> trajectory -> the mean of the ratings of it, its calls and its steps."""


class GroupOrders(Struct, frozen=True, kw_only=True):
    """Groups with at least two trajectories that both sides rated."""

    groups: int = 0
    pairs: int = 0
    """Pairs of one group's trajectories that neither side rates equal."""
    pairs_reversed: int = 0
    """The pairs of which the sides prefer different members."""
    best_changed: tuple[str, ...] = ()
    """Groups none of whose best trajectories by the left is best by the right."""


def orders(observations: Sequence[tuple[Rating, Rating]]) -> GroupOrders:
    """observations: a rating of the left, and the right's of the same subject."""
    groups = pairs = turned = 0
    changed: list[str] = []
    right_means = _means(right for _, right in observations)
    for group, members in _means(left for left, _ in observations).items():
        if len(members) < 2:
            continue
        groups += 1
        others = right_means[group]
        for one, other in combinations(members, 2):
            product = (members[one] - members[other]) * (others[one] - others[other])
            pairs += product != 0
            turned += product < 0
        if not _best(members) & _best(others):
            changed.append(group)
    return GroupOrders(groups=groups, pairs=pairs, pairs_reversed=turned, best_changed=tuple(changed))


def _means(side: Iterable[Rating]) -> MembersByGroup:
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rating in dict.fromkeys(side):  # once, however many raters of the other side it was held against
        group, trajectory, *_ = rating.subject
        values[group][trajectory].append(rating.value)
    return {group: {name: fmean(each) for name, each in members.items()} for group, members in values.items()}


def _best(members: Mapping[str, float]) -> set[str]:
    top = max(members.values())
    return {name for name, value in members.items() if value == top}
