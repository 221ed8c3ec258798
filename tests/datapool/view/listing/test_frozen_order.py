"""An order stands still while rows come, change and go."""

import pytest

from claw_r1.datapool.view.listing.frozen_order import FrozenOrder
from claw_r1.datapool.view.listing.pool_filter import EVERYTHING, PoolFilter
from claw_r1.datapool.view.rows import PoolRows
from tests.datapool.view.listing.test_pages import group, listed


def order_of(rows: PoolRows, pool_filter: PoolFilter = EVERYTHING, *, sort: str = "return") -> FrozenOrder:
    return FrozenOrder(rows, "trajectories", pool_filter, sort=sort, descending=True)


def names(order: FrozenOrder, rows: PoolRows) -> list[str]:
    return ["/".join(row.ids) for row in order.rows(rows, 0, 100, ["return"])]


def test_what_stands_does_not_move():
    """A row that comes, and one that would now come first, change nothing of an order; its rows tell what is now; new ones are counted."""
    rows = listed(*group("a", [0.2, 0.9]), *group("b", [0.5]))
    order = order_of(rows)
    assert names(order, rows) == ["a/t1", "b/t0", "a/t0"]
    listed(*group("a", [1.5, 0.9]), *group("c", [2.0, 0.0]), rows=rows)
    assert names(order, rows) == ["a/t1", "b/t0", "a/t0"]
    assert [row.columns for row in order.rows(rows, 2, 1, ["return"])] == [{"return": 1.5}]
    assert order.new(rows) == 2
    assert (len(order), order.index_of(rows, ("b", "t0")), order.index_of(rows, ("c", "t0"))) == (3, 1, None)
    assert names(order_of(rows), rows) == ["c/t0", "a/t0", "a/t1", "b/t0", "c/t1"]


def test_a_row_that_is_gone_keeps_its_place():
    rows = listed(*group("a", [0.2]), *group("b", [0.5]))
    order = order_of(rows)
    rows.forget("b")
    assert [(row.ids, row.columns is None) for row in order.rows(rows, 0, 9, ["return"])] == [
        (("b", "t0"), True),
        (("a", "t0"), False),
    ]
    assert order.new(rows) == 0


def test_only_what_meets_the_filter_is_new():
    rows = listed(*group("a", [0.2]))
    order = order_of(rows, PoolFilter(reward_min=0.5))
    assert names(order, rows) == []
    listed(*group("b", [0.4]), rows=rows)
    assert order.new(rows) == 0
    listed(*group("a", [0.7]), rows=rows)
    assert order.new(rows) == 1


def test_an_order_by_no_column_is_refused():
    with pytest.raises(ValueError, match="no column 'x'"):
        order_of(listed(), sort="x")
