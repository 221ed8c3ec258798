"""Runs in the code's sandbox: imports the code and does what the tests ask of it, over descriptor 3.

Nothing here is trusted: the code shares this interpreter and may do all of it differently. It can give other answers, no more.
"""

import builtins
import collections
import copy
import importlib
import math
import operator
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from functools import cache
from io import BytesIO, StringIO
from types import CoroutineType
from typing import Any, NamedTuple

from claw_r1.consumers.sandbox.rpc import wire
from claw_r1.consumers.sandbox.rpc.serialization import EXACT, FORMS, TAGS, Form

LENT = frozenset({"array", *(form.tag for form in FORMS if form.fill)})
"""Tags of what a call can change for the tests."""
MUTABLE = (list, dict, set, bytearray, collections.deque, StringIO, BytesIO)
IMMUTABLE = (str, int, float, complex, bytes, tuple, frozenset)
TYPES = (bool, *IMMUTABLE, list, dict, set, bytearray, object)
"""Types of Python that the tests get as they are."""
DECORATION = frozenset(
    [
        "__new__",
        "__init__",
        "__init_subclass__",
        "__class_getitem__",
        "__subclasshook__",
        "__doc__",
        "__repr__",
        "__str__",
        "__format__",
        "__hash__",
        "__dir__",
        "__getattribute__",
        "__setattr__",
        "__delattr__",
        "__getnewargs__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__sizeof__",
    ]
)
"""The attributes that a class may define while its objects still are the value that they are built on."""
WORDS_MAX = 2000


class Given:
    """An object of a class of the tests: its fields alone are here."""

    __slots__ = ("__dict__", "claw_number")
    claw_number: int


class Content(NamedTuple):
    """A value that goes to the tests as one of the standard type that its class is built on."""

    value: Any


class Host:
    """The objects that the tests hold a reference to."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._given: dict[int, Given] = {}
        """By the number that the tests have for it."""
        self._enums: dict[type, int] = {}
        self._read: dict[int, Any] = {}
        self._lent: dict[int, int] = {}
        """By id: the numbers in a call's request of what the tests have themselves."""
        self._forms = TAGS | {"given": Form("given", Given, list, self._give, None, _fill)}
        self._loop: Any = None

    def number(self, value: Any) -> int:
        """Returns the number of an object, which stays alive from then on."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def parts(self, value: Any) -> Any:
        """A value for the tests, as `wire.packed` takes it."""
        kind: type = type(value)
        if kind in EXACT or id(value) in self._lent:
            return self._standard(value)
        if kind is Content:
            return wire.parts_of(value.value, exactly=False)
        if isinstance(value, Given):
            return "given", [value.claw_number]
        if kind in self._enums:
            return "member", [self._enums[kind], value.value]
        if isinstance(value, type):
            return self._type(value)
        if isinstance(value, BaseException):
            words = [kind, arguments_of(value), text_of(value), value.__cause__]
            return "error", [self.number(value), *words]
        if isinstance(value, CoroutineType):
            return "awaitable", [self.number(value)]
        base = next((base for base in IMMUTABLE if isinstance(value, base)), None)
        own = kind.__module__ == self._module
        if base is not None and (own or not hasattr(value, "dtype")) and not changes(kind, base):
            return "value", [self.number(value), kind.__name__, wire.content(value, base)]
        if not own and (parts := wire.parts_of(value, exactly=False)) is not wire.NEVER:
            return parts
        return "object", [self.number(value), kind.__name__, isinstance(value, (*MUTABLE, *IMMUTABLE))]

    def _standard(self, value: Any) -> wire.Parts:
        """Returns the parts of a value, in the form lent by the tests if it is theirs."""
        parts: wire.Parts = wire.parts_of(value)
        lent = self._lent.get(id(value))
        return parts if lent is None else ("own", [lent, parts[0], *parts[1]])

    def _type(self, value: type) -> wire.Parts:
        if value in TYPES or (issubclass(value, BaseException) and value.__module__ == "builtins"):
            return "type", [value.__name__]
        if issubclass(value, BaseException):
            return "class", [self.number(value), value.__module__, value.__name__, *value.__bases__]
        return "object", [self.number(value), type(value).__name__, False]

    def answer(self, verb: str, number: int, *rest: Any) -> Any:
        """Returns the result of a request of the tests; only a call changes its arguments for them."""
        target = self._objects[number]
        if verb == "get":
            return getattr(target, rest[0])
        if verb == "set":
            return setattr(target, *rest)
        if verb == "names":
            return [name for name in dir(target) if not name.startswith("__")]
        if verb == "content":
            return Content(target)
        if verb == "call":
            return target(*rest[0], **rest[1])
        if verb == "await":
            return self._wait(target)
        return operate(rest[0], list(rest[1:]), self._wait)

    def answered(self, data: Any) -> list[Any]:
        """An answer, what became of all that a call could change, and of the fields of the tests' objects in it."""
        self._read, self._lent = {}, {}
        verb, *rest = wire.unpacked(data, self._made, self._forms, self._read)
        if verb == "call":
            self._lent = {id(self._read[number]): number for number, tag, *_ in data[1] if tag in LENT}
        changed = [self._read[number] for number in self._lent.values()]
        value = self.answer(verb, *rest)
        numbers = [items[0] for _, tag, *items in data[1] if tag == "given"]
        return [value, changed, [[number, vars(self._given[number])] for number in numbers]]

    def _made(self, tag: str, parts: list[Any]) -> Any:
        """Makes a value that the tests have and the code has not."""
        if tag == "object":
            return self._objects[parts[0]]
        if tag == "named":
            return operator.attrgetter(parts[1])(importlib.import_module(parts[0]))
        if tag == "iterator":
            return iterator(*parts)
        if tag == "namedtuple":
            return collections.namedtuple(parts[0], parts[1])(*parts[2:])
        if tag == "enum":
            return self._enum(*parts)
        if tag == "member":
            return parts[0](parts[1])
        if tag == "error":
            return parts[0](*parts[1:])
        if tag == "array":
            importlib.import_module("numpy")
            return wire.array(*parts)
        raise ValueError(tag)

    def _give(self, number: int, name: str) -> Given:
        if number not in self._given:
            self._given[number] = type(name, (Given,), {"__slots__": ()})()
            self._given[number].claw_number = number
        return self._given[number]

    def _enum(self, number: int, name: str, base: Any, mixin: type, *members: Any) -> type[Enum]:
        """With its members' names and values; the tests keep its other abilities."""
        kind = next((one for one in self._enums if self._enums[one] == number), None)
        if kind is None:
            pairs = zip(members[::2], members[1::2], strict=True)
            kind = base(name, list(pairs), type=None if issubclass(base, mixin) else mixin)
            self._enums[kind] = number
        return kind

    def _wait(self, awaitable: Any) -> Any:
        """In one loop for all of the code: its pending tasks continue when the tests wait again."""
        if self._loop is None:
            self._loop = importlib.import_module("asyncio").new_event_loop()
        return self._loop.run_until_complete(awaitable)


def _fill(value: Given, parts: list[Any]) -> None:
    vars(value).update(zip(parts[2::2], parts[3::2], strict=True))


def operate(name: str, operands: list[Any], wait: Any) -> Any:
    """Does to an object what Python does without naming a method: an operator, a built-in function, the protocols of
    `with` and `async`."""
    one, *rest = operands
    if name == "enter":
        return type(one).__enter__(one)
    if name == "exit":
        error = rest[0]
        return type(one).__exit__(one, type(error) if error else None, error, None)
    if name in ("anext", "aenter", "aexit"):
        return wait(getattr(type(one), f"__{name}__")(one, *rest))
    for place in (operator, builtins, math, copy):
        if hasattr(place, name):
            return getattr(place, name)(*operands)
    raise ValueError(name)


@cache
def changes(kind: type, base: type) -> bool:
    """Returns whether a class does something in another way than the type that it is built on."""
    classes = kind.__mro__[: kind.__mro__.index(base)]
    return any(name in vars(one) for one in classes for name in dir(base) if name not in DECORATION)


def iterator(whole: bool, *items: Any) -> Iterator[Any]:
    """Returns an iterator of the tests, which sent its first items."""
    yield from items
    if not whole:
        raise RuntimeError(f"only the first {len(items)} items of an iterator of the tests can be had")


def arguments_of(error: BaseException) -> tuple[Any, ...]:
    """Returns the arguments by which the error's built-in base makes it."""
    if isinstance(error, OSError) and error.filename is not None:
        return (*error.args, error.filename)
    return error.args


def text_of(error: BaseException) -> str:
    """Returns the error's text, if it has one."""
    try:
        return str(error)[:WORDS_MAX]
    except Exception:  # noqa: BLE001 - of the code
        return ""


def main(module: str) -> None:
    """Serves the module until the tests are over."""
    peer = socket.socket(fileno=3)
    host = Host(module)
    try:
        wire.send(peer, ["ready", importlib.import_module(module)], host.parts)
    except BaseException as error:  # noqa: BLE001 - of the code
        wire.send(peer, ["broken", type(error).__name__, text_of(error)], host.parts)
        return
    while True:
        data = wire.receive(peer)
        try:
            wire.send(peer, ["value", *host.answered(data)], host.parts)
        except BaseException as error:  # noqa: BLE001 - of the code; the tests raise it again
            wire.send(peer, ["error", error.with_traceback(None)], host.parts)


if __name__ == "__main__":
    with suppress(EOFError, ConnectionError):
        main(sys.argv[1])
