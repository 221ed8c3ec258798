"""The tests' end of the connection to the code: requests to it, and the answers as values here.

Trusted: an answer becomes a plain value, a reference, or an error of a class that is made here; nothing in it is executed.
"""

import builtins
import io
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator
from enum import Enum, EnumType
from itertools import islice
from operator import attrgetter
from types import GeneratorType, MemberDescriptorType, ModuleType
from typing import Any

from claw_r1.consumers.sandbox.rpc import wire
from claw_r1.consumers.sandbox.rpc.proxies import Attached, Link, Remote, awaited, link_of
from claw_r1.consumers.sandbox.rpc.serialization import EXACT, TAGS, Form

JOINT = 3
SHAPES: dict[str, tuple[type, ...]] = {
    "ready": (Remote,),
    "broken": (str, str),
    "value": (object, list, list),
    "error": (BaseException,),
}
"""The messages that the code's process may send, by their first field. Whatever else comes is nonsense."""
IMMUTABLE = (str, int, float, complex, bytes, tuple, frozenset)
TYPES: dict[str, type] = {one.__name__: one for one in (*IMMUTABLE, bool, list, dict, set, bytearray, object)}
STANDARD_ERRORS = frozenset(
    [
        "argparse",
        "asyncio.exceptions",
        "asyncio.queues",
        "binascii",
        "concurrent.futures._base",
        "configparser",
        "copy",
        "_csv",
        "dataclasses",
        "decimal",
        "email.errors",
        "getopt",
        "graphlib",
        "http.client",
        "io",
        "ipaddress",
        "json.decoder",
        "pickle",
        "_pickle",
        "queue",
        "_queue",
        "re",
        "shutil",
        "socket",
        "sqlite3",
        "statistics",
        "struct",
        "subprocess",
        "tomllib",
        "urllib.error",
        "xml.etree.ElementTree",
        "xml.parsers.expat",
        "zipfile",
        "zlib",
    ]
)
"""Python modules whose errors are the tests' own; not those whose errors end or skip a test, as unittest's."""
ITERATOR_ITEMS_MAX = 100_000


class NotHandableError(TypeError):
    """The tests made what cannot go to another process, and gave it to the code."""


class SolutionError(Exception):
    """The code raised an exception that tests must not see, ended, or sent invalid data."""


class Solution:
    """The connection to the code's process."""

    def __init__(self) -> None:
        """Waits until it is loaded. Raises SolutionError where it does not load."""
        self._peer = socket.socket(fileno=JOINT)
        self._lock = threading.RLock()
        self.asked = False
        """The code has done more than to be there: what stops then may be its doing."""
        self._known: dict[int, Any] = {}
        """By the code's number: one object there is one object here."""
        self._kinds: dict[tuple[str, tuple[type, ...]], type] = {}
        self._given: dict[int, tuple[int, Any]] = {}
        """Objects of the tests' own classes that the code has, and their numbers, by id."""
        self._enums: dict[int, tuple[int, EnumType]] = {}
        """Classes of the tests whose members the code has, in the same way."""
        self._lent: dict[int, Any] = {}
        """The objects that the tests lent to the code in the current call, by their number there."""
        self._changes: list[tuple[Any, Any]] = []
        self._forms = TAGS | {
            "own": Form("own", object, iter, lambda number, _: self._lent[number], None, self._change)
        }
        kind, *rest = self._receive("ready", "broken")
        if kind == "broken":
            raise SolutionError(": ".join(rest))
        self.module: Remote = rest[0]

    def ask(self, *request: Any) -> list[Any]:
        """The value, changeable objects, and fields of the tests' own objects. Raises the code's errors.

        Lists, dicts, sets and such that a call changed are changed here too.
        """
        self.asked = self.asked or request[0] not in ("names", "get")
        with self._lock:
            written: dict[int, Any] = {}
            try:
                wire.send(self._peer, list(request), self._parts, written)
            except OSError as error:
                raise self.nonsense("has ended") from error
            outer, changes = (self._lent, self._changes), list[tuple[Any, Any]]()
            self._lent, self._changes = written if request[0] == "call" else {}, changes
            try:
                kind, *rest = self._receive("value", "error")
            finally:  # reading a set asks the code for the hash of what is in it
                self._lent, self._changes = outer
        for before, after in changes:
            _take(before, after)
        if kind == "error":
            raise self._raised(rest[0], request)
        return rest

    def names(self) -> list[str]:
        """Returns the names that the module claims to have."""
        names = self.value("names", link_of(self.module).number)  # type: ignore[union-attr]  # it is a Remote
        if not isinstance(names, list):
            raise self.nonsense("spoke nonsense")
        return [name for name in names if isinstance(name, str)]

    def value(self, *request: Any) -> Any:
        """The value of an answer."""
        value, _, fields = self.ask(*request)
        self._take_fields(fields)
        return value

    def call(self, number: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A call."""
        return self.value("call", number, list(arguments), named)

    def nonsense(self, what: str) -> SolutionError:
        """The error of an answer that is none."""
        return SolutionError(f"the code's process {what}")

    def _raised(self, error: BaseException, request: tuple[Any, ...]) -> BaseException:
        """Returns the error to raise here: the end of an iteration only where the tests asked for the next item."""
        ends = request[0] == "operate" and request[2] in ("next", "anext")
        if isinstance(error, StopIteration | StopAsyncIteration) and not ends:
            return RuntimeError(f"the code raised {type(error).__name__}")
        if not isinstance(error, Exception) and request[0] != "call":
            return SolutionError(f"{type(error).__name__}: {error}")
        return error

    def _take_fields(self, fields: list[Any]) -> None:
        """Takes over the fields that the code changed in objects of the tests' own classes."""
        objects = dict(self._given.values())
        for number, changed in fields:
            one, own = objects[number], fields_of(objects[number])
            for name in own.keys() & changed.keys():
                if name in getattr(one, "__dict__", ()):
                    vars(one)[name] = changed[name]
                else:
                    object.__setattr__(one, name, changed[name])

    def _receive(self, *kinds: str) -> list[Any]:
        try:
            message = wire.unpacked(wire.receive(self._peer), self._made, self._forms)
        except (OSError, EOFError) as error:
            raise self.nonsense("has ended") from error
        except Exception as error:
            raise self.nonsense("spoke nonsense") from error
        if not isinstance(message, list) or not message or message[0] not in kinds:
            raise self.nonsense("spoke nonsense")
        shape = SHAPES[message[0]]
        if len(message) != 1 + len(shape) or not all(map(isinstance, message[1:], shape)):
            raise self.nonsense("spoke nonsense")
        return message

    def _parts(self, value: Any) -> Any:
        """For the other process. Raises TypeError for what cannot go there, such as a function of the tests."""
        if link := link_of(value):
            return "object", [link.number]
        if type(value) in EXACT:
            return wire.parts_of(value)
        if isinstance(value, BaseException):
            kind = next(one for one in type(value).__mro__ if link_of(one) or name_of(one))
            return "error", [kind, *value.args]
        if name := name_of(value):
            return "named", name
        if isinstance(value, Enum | EnumType):
            return self._enum_parts(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return "namedtuple", [type(value).__name__, tuple(value._fields), *value]
        if (parts := wire.parts_of(value, exactly=False)) is not wire.NEVER:
            return parts
        if isinstance(value, Iterator) and not callable(value):  # as a mock is
            items = list(islice(value, ITERATOR_ITEMS_MAX))
            return "iterator", [len(items) < ITERATOR_ITEMS_MAX, *items]
        if (
            (hasattr(value, "__dict__") or slots_of(value))
            and not callable(value)
            and not isinstance(value, ModuleType)
        ):
            number, _ = self._given.setdefault(id(value), (len(self._given), value))
            fields = (part for pair in fields_of(value).items() for part in pair)
            return "given", [number, type(value).__name__, *fields]
        # What the code made has a link, or a class of these files: of all else the tests alone are the cause.
        module = getattr(value, "__module__", None)
        theirs = isinstance(module, str) and not module.startswith(f"{__package__}.")
        error = NotHandableError if theirs else TypeError
        raise error(f"a {type(value).__name__} cannot be handed to code in another process")

    def _enum_parts(self, value: Any) -> wire.Parts:
        """A member by its value, its class by the members."""
        if isinstance(value, Enum):
            return "member", [type(value), value.value]
        number, _ = self._enums.setdefault(id(value), (len(self._enums), value))
        base = next(one for one in value.__mro__ if one.__module__ == "enum")
        members = (part for name, one in value.__members__.items() for part in (name, one.value))
        return "enum", [number, value.__name__, base, value._member_type_, *members]

    def _made(self, tag: str, parts: list[Any]) -> Any:
        """Makes a value that only the code has. Raises ValueError, TypeError … for nonsense."""
        if tag == "given":
            return dict(self._given.values())[parts[0]]
        if tag == "member":
            return dict(self._enums.values())[parts[0]](parts[1])
        if tag == "type":
            return TYPES.get(parts[0]) or builtin_error(parts[0])
        if tag == "array":
            return wire.array(*parts)
        link = Link(self, int(parts[0]))
        if tag == "awaitable":
            return awaited(link)
        if tag == "error":
            return self._error(link, *parts[1:])
        if link.number not in self._known:
            makers: dict[str, Any] = {"object": self._object, "value": self._attached, "class": self._error_class}
            self._known[link.number] = makers[tag](link, *parts[1:])
        return self._known[link.number]

    def _change(self, own: Any, parts: list[Any]) -> None:
        """Updates the tests' objects. Values now in them are theirs, too, if they came from the tests."""
        _, tag, *rest = parts
        form = TAGS.get(tag)
        if form is None:
            after = wire.array(*rest)
        elif form.fill is None:
            raise ValueError(tag)
        else:
            after = form.make(*wire.checked(rest[:2], form.types))
            form.fill(after, rest)
        self._changes.append((own, after))

    def _kind(self, name: str, bases: tuple[type, ...], **names: Any) -> Any:
        """A class that has the name of the code's: one for all objects."""
        if (name, bases) not in self._kinds:
            self._kinds[name, bases] = type(name, bases, names)
        return self._kinds[name, bases]

    def _object(self, link: Link, name: str, builtin: bool) -> Remote:
        names: dict[str, Any] = {"__slots__": ()}
        if name == "generator":
            names["__class__"] = property(lambda _: GeneratorType)  # for isinstance
        remote: Remote = self._kind(name, (Remote,), **names)(link._replace(builtin=builtin is True))
        return remote

    def _attached(self, link: Link, name: str, content: Any) -> Any:
        base: Any = IMMUTABLE[IMMUTABLE.index(type(content))]
        value = base.__new__(self._kind(name, (Attached, base)), content)
        vars(value)["_claw_link"] = link
        return value

    def _error_class(self, link: Link, module: str, name: str, *bases: type) -> type:
        standard = vars(sys.modules.get(module, builtins)).get(name) if module in STANDARD_ERRORS else None
        if isinstance(standard, type) and issubclass(standard, Exception):
            return standard
        if not bases or not all(issubclass(base, BaseException) for base in bases):
            raise TypeError(name)
        names = {**FIELDS, "_claw_link": link}
        try:
            return ErrorClass(name, bases, names)
        except TypeError:  # of two that cannot be joined
            return ErrorClass(name, bases[:1], names)

    def _error(self, link: Link, kind: type, args: tuple[Any, ...], text: str, cause: Any) -> BaseException:
        if not issubclass(kind, BaseException) or type(args) is not tuple or type(text) is not str:
            raise TypeError("no error")
        try:
            if kind.__module__ == "builtins":
                error: BaseException = kind(*args)
            else:
                like = kind if isinstance(kind, ErrorClass) else self._kind(kind.__name__, (kind,), **FIELDS)
                error = like.__new__(like, *args)
        except Exception:  # noqa: BLE001 - a class that is not made of its arguments
            error = SolutionError(f"{kind.__name__}: {text}")
        vars(error).update(_claw_link=link, _claw_text=text)
        if isinstance(cause, BaseException):
            error.__cause__ = cause
        return error


class ErrorClass(type):
    """The class of classes of errors that are the code's own. Such a class makes its errors there."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        """An error of the code, or of a class of the tests that is built on one."""
        if link := link_of(cls):
            return link.asker.call(link.number, arguments, named)
        return super().__call__(*arguments, **named)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or not (link := link_of(cls)):
            raise AttributeError(name)
        return link.asker.value("get", link.number, name)


def _field(error: Any, name: str) -> Any:
    if name.startswith("__") or not (link := link_of(error)):
        raise AttributeError(name)
    return link.asker.value("get", link.number, name)


FIELDS: dict[str, Any] = {"__str__": lambda error: vars(error).get("_claw_text", ""), "__getattr__": _field}
"""The fields of errors of the code's classes: their text, and the code's other fields."""


def builtin_error(name: str) -> type[BaseException]:
    """By its name. Raises ValueError, AttributeError, TypeError. What ends a process or its tests is not for the code to raise."""
    kind = getattr(builtins, name)
    if not issubclass(kind, BaseException):
        raise TypeError(name)
    raisable: type[BaseException] = kind if issubclass(kind, Exception | SystemExit) else SolutionError
    return raisable


def name_of(value: Any) -> list[str] | None:
    """Module and name of a function or class of Python's own, so that the code takes its own."""
    owner = getattr(value, "__objclass__", value)
    module, name = getattr(owner, "__module__", None), getattr(value, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or module.partition(".")[0] not in sys.stdlib_module_names
    ):
        return None
    try:
        return [module, name] if attrgetter(name)(sys.modules[module]) is value else None
    except (AttributeError, KeyError):
        return None


def slots_of(value: Any) -> list[str]:
    """Names of the fields that an object has by its class's `__slots__`, if that is not one of Python's."""
    kinds = [one for one in type(value).__mro__ if "__slots__" in vars(one)]
    if not kinds or type(value).__module__.partition(".")[0] in sys.stdlib_module_names:
        return []
    return [name for one in kinds for name, each in vars(one).items() if isinstance(each, MemberDescriptorType)]


def fields_of(value: Any) -> dict[str, Any]:
    """The fields that an object has now."""
    return getattr(value, "__dict__", {}) | {
        name: getattr(value, name) for name in slots_of(value) if hasattr(value, name)
    }


def _take(before: Any, after: Any) -> None:
    """Makes a mutable argument what it became."""
    if link_of(before):
        return
    if isinstance(before, io.StringIO | io.BytesIO):
        before.seek(0)
        before.truncate()
        before.write(after.getvalue())
        before.seek(after.tell())
    elif hasattr(before, "dtype"):  # numpy's array
        before[...] = after
    elif not isinstance(before, type(after)) or before == after:
        return
    elif isinstance(before, list | bytearray):
        before[:] = after
    elif isinstance(before, dict):
        before.clear()
        for key, item in after.items():  # `update` of a Counter adds
            before[key] = item
    elif isinstance(before, set | deque):
        before.clear()
        fill = before.update if isinstance(before, set) else before.extend
        fill(after)
