"""No room grows without a word: `ceilings.toml` holds the lines that each may have."""

from tests.architecture.ceilings import ceilings, lines, shape, shape_ceilings

SLACK = 1.02
"""A ceiling so far above what stands is no ceiling: who made a room smaller lowers it."""


def test_no_room_passes_its_ceiling() -> None:
    """Raise it in the commit that needs it, with one line of why, or find what the lines replace."""
    counted, most = lines(), ceilings()
    assert {room: number for room, number in counted.items() if number > most.get(room, 0)} == {}
    assert sorted(most) == sorted(counted)


def test_a_ceiling_stands_on_what_it_covers() -> None:
    """A room that lost lines keeps the loss."""
    counted = lines()
    assert {room: most for room, most in ceilings().items() if most > counted[room] * SLACK + 10} == {}


def test_lines_and_functions_do_not_grow_instead() -> None:
    """Fewer lines that are wider, and fewer functions that are longer, are no smaller house."""
    most = shape_ceilings()
    assert {name: value for name, value in shape().items() if value > most[name]} == {}
