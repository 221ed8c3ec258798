"""The `__init__` of events."""

import dataclasses
import inspect

import pytest

from schemas import events
from schemas.quick import quick
from tests.schemas.examples import EXAMPLES

RECORDS = [kind for kind in vars(events).values() if dataclasses.is_dataclass(kind)]


MADE = dataclasses.field(default_factory=dict)
FIELDS = [("needed", int), ("defaulted", str, dataclasses.field(default="d")), ("made", dict, MADE)]


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_it_takes_what_dataclass_would_take(kind):
    """The same names, all by keyword, and required where there is no default."""
    taken = list(inspect.signature(kind.__init__).parameters.values())[1:]
    assert [one.name for one in taken] == [field.name for field in dataclasses.fields(kind)]
    assert {one.kind for one in taken} == {inspect.Parameter.KEYWORD_ONLY}
    required = [field.name for field in dataclasses.fields(kind) if field.default is field.default_factory]
    assert [one.name for one in taken if one.default is one.empty] == required


def test_it_makes_what_dataclass_would_make():
    """Equal fields; a default that is made is made for each; the class stays frozen."""
    plain, kind = (dataclasses.make_dataclass("Kind", FIELDS, frozen=True, slots=True, kw_only=True) for _ in "ab")
    kind = quick(kind)
    for given in ({"needed": 1}, {"needed": 2, "defaulted": "e", "made": {"a": 1}}):
        assert dataclasses.asdict(kind(**given)) == dataclasses.asdict(plain(**given))
    assert kind(needed=1).made is not kind(needed=1).made
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind(needed=1).needed = 3
    with pytest.raises(TypeError, match="needed"):
        kind()


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_a_copy_of_an_event_is_equal(event):
    """`dataclasses.replace` goes through it."""
    assert dataclasses.replace(event) == event
