"""Objects of the code as the tests hold them: requests to one go to the code, in its own process.

Invariant: no answer of the code decides a comparison with a value of the tests. An object's content can be
requested (a text, a number, its items, its fields) and is compared here; its comparison with a value of the
tests cannot: code that is equal to everything, or whose difference from everything is 0, would pass all tests.
"""

import operator
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

NAMES = frozenset({"__name__", "__qualname__", "__annotations__"})
"""The names with two underscores that are asked for."""
DIFFERENCES = frozenset({"sub", "truediv", "floordiv", "mod", "divmod", "xor", "and_", "or_"})
"""Operators with which a test may compare actual and expected values: `abs(f(x) - 2.5) < 1e-6`."""
BINARY = (*DIFFERENCES, "add", "mul", "matmul", "pow", "lshift", "rshift")
OFFSETS = (int, float, complex, str)
"""The types on the other side of `DIFFERENCES`: a scale, an offset, the part of a path."""
PLAIN = ["abs", "round", "int", "float", "complex", "index", "floor", "ceil", "trunc", "len", "bytes", "hash"]
"""The operations that make a plain value of an object."""
ANY = [
    "iter",
    "reversed",
    "getitem",
    "setitem",
    "delitem",
    "repr",
    "str",
    "format",
    "copy",
    "enter",
    "aiter",
    "delattr",
]
UNKNOWN = "what an operator made of an object of the code and a value of the tests is no number, and has no truth and no order"


class Asker(Protocol):
    """The way to the code's process."""

    def value(self, *request: Any) -> Any:
        """Its answer. Raises what the code raised."""

    def call(self, number: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Calls, and returns the result."""

    def nonsense(self, what: str) -> Exception:
        """The error to raise where it said that."""


class Link(NamedTuple):
    """The link behind an object."""

    asker: Asker
    number: int
    builtin: bool = False
    """Its class is built on a type of Python's, so that its content can be had and compared here."""
    derived: bool = False
    """The object results from one of `DIFFERENCES` with the tests' value. It has fields, items and texts, but is no
    number, has no truth, length or order, and is equal to no value of the tests."""


class Remote:
    """An object of the code."""

    __slots__ = ("_claw_link",)
    _claw_link: Link

    def __init__(self, link: Link) -> None:
        object.__setattr__(self, "_claw_link", link)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in NAMES:
            raise AttributeError(name)
        return self._claw_link.asker.value("get", self._claw_link.number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._claw_link.asker.value("set", self._claw_link.number, name, value)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # `vars` of it
        return self._claw_link.asker.value("get", self._claw_link.number, "__dict__")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._claw_link.asker.call(self._claw_link.number, arguments, named)

    def __eq__(self, other: object) -> bool:
        if is_of_the_code(other):  # it could as well have made both the same plain value
            return operated(self, "eq", self, other) is True
        return self._claw_link.builtin and not self._claw_link.derived and bool(_content(self) == other)

    def __lt__(self, other: Any) -> Any:
        return _ordered(self, "lt", other)

    def __gt__(self, other: Any) -> Any:
        return _ordered(self, "gt", other)

    def __le__(self, other: Any) -> Any:
        return _ordered(self, "le", other)

    def __ge__(self, other: Any) -> Any:
        return _ordered(self, "ge", other)

    def __bool__(self) -> bool:
        return operated(_known(self), "bool", self) is True

    def __contains__(self, item: Any) -> bool:
        return operated(self, "contains", self, item) is True

    def __next__(self) -> Any:
        return operated(self, "next", self)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        operated(self, "exit", self, error)  # whatever it answers: nobody swallows an error of the tests

    def __deepcopy__(self, memo: object) -> Any:
        return operated(self, "deepcopy", self)

    def __instancecheck__(self, one: Any) -> bool:
        return is_of_the_code(one) and operated(self, "isinstance", one, self) is True

    def __subclasscheck__(self, one: Any) -> bool:
        return is_of_the_code(one) and operated(self, "issubclass", one, self) is True

    def __await__(self) -> Any:
        return awaited(self._claw_link).__await__()

    async def __anext__(self) -> Any:
        return operated(self, "anext", self)

    async def __aenter__(self) -> Any:
        return operated(self, "aenter", self)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        operated(self, "aexit", self, error)


class Attached:
    """A value of a class of the code's that is built on an immutable type: compared here by that value, asked
    for its fields there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        link: Link = vars(self)["_claw_link"]
        return link.asker.value("get", link.number, name)

    def __repr__(self) -> str:
        return str(operated(self, "repr", self))

    def __str__(self) -> str:
        return str(operated(self, "str", self))

    def __format__(self, form: str) -> str:
        return str(operated(self, "format", self, form))

    def __copy__(self) -> "Attached":
        return self

    def __deepcopy__(self, memo: object) -> "Attached":
        return self


def link_of(value: Any) -> Link | None:
    """None: it is no value that the code has as well."""
    link = (
        value._claw_link if isinstance(value, Remote) else vars(value).get("_claw_link") if _has_link(value) else None
    )
    return link if isinstance(link, Link) else None


def _has_link(value: Any) -> bool:
    return isinstance(value, Attached | BaseException | type) and hasattr(value, "__dict__")


def is_of_the_code(value: Any) -> bool:
    """Returns whether a value is an object or an attached value: the tests did not make it."""
    return isinstance(value, Remote | Attached)


async def awaited(link: Link) -> Any:
    """Returns the result of the code's awaitable."""
    return link.asker.value("await", link.number)


def operated(one: Any, name: str, *operands: Any) -> Any:
    """Returns the result of an operator or a built-in function, from the code's process."""
    link = link_of(one)
    assert link is not None
    return link.asker.value("operate", 0, name, *operands)


def _content(one: Remote) -> Any:
    return one._claw_link.asker.value("content", one._claw_link.number)


def _known(one: Remote) -> Remote:
    if one._claw_link.derived:
        raise TypeError(UNKNOWN)
    return one


def _derived(answer: Any) -> Any:
    """The same object, known to be derived. A plain value would be known to nobody: it could be the difference of nothing."""
    if not isinstance(answer, Remote):
        raise TypeError(UNKNOWN)
    return type(answer)(answer._claw_link._replace(derived=True))


def _combined(one: Remote, name: str, other: Any, operands: tuple[Any, Any], operation: str) -> Any:
    measures = name in DIFFERENCES and not is_of_the_code(other)
    if measures and not isinstance(other, OFFSETS):
        return NotImplemented
    answer = operated(one, operation, *operands)
    derives = measures or one._claw_link.derived or (isinstance(other, Remote) and other._claw_link.derived)
    return _derived(answer) if derives else answer


def _ordered(one: Remote, name: str, other: Any) -> Any:
    if not is_of_the_code(other):
        plain = one._claw_link.builtin and not one._claw_link.derived
        return getattr(operator, name)(_content(one), other) if plain else NotImplemented
    for each in (one, other):
        if isinstance(each, Remote):
            _known(each)
    if name in ("le", "ge"):
        return operated(one, name, one, other) is True
    return _less(one, other) if name == "lt" else _less(other, one)


def _less(one: Any, other: Any) -> bool:
    """Asks both ways, so that the expected answer is not revealed: code that always says yes contradicts itself."""
    ways = [(one, other), (other, one)]
    ways = ways[::-1] if os.urandom(1)[0] & 1 else ways
    answers = {}
    for left, right in ways:
        try:
            answers[left is one] = operated(one, "lt", left, right) is True
        except TypeError:
            if left is one:
                raise
            answers[False] = False
    if all(answers.values()) and one is not other:
        link = link_of(one)
        assert link is not None
        raise link.asker.nonsense("says of two objects that each is less than the other")
    return answers[True]


def _plainly(name: str, see: Callable[[Remote], Any]) -> Any:
    return lambda self, *operands: operated(see(self), name, self, *operands)


def _transformed(name: str) -> Any:
    def result(self: Remote) -> Any:
        answer = operated(self, name, self)
        return _derived(answer) if self._claw_link.derived else answer

    return result


def _combining(name: str, form: str) -> Any:
    operation = f"i{name.rstrip('_')}" if form == "i" else name
    if form == "r":
        return lambda self, other: _combined(self, name, other, (other, self), operation)
    return lambda self, other: _combined(self, name, other, (self, other), operation)


def _install() -> None:
    """The operators of `Remote` that differ in their names alone."""
    methods = {f"{form}{name.rstrip('_')}": _combining(name, form) for name in BINARY for form in ("", "r", "i")}
    methods |= {name: _transformed(name) for name in ("neg", "pos", "invert")}
    methods |= {name: _plainly(name, _known) for name in PLAIN}
    methods |= {name: _plainly(name, lambda one: one) for name in ANY}
    for name, method in methods.items():
        setattr(Remote, f"__{name}__", method)


_install()
