"""Runs in the tests' sandbox: stands in for the code, which runs elsewhere, and reports what came of each test.

Trusted: no code of a model is in this process. What the code answers is read as plain values or as references, never executed, and
`==` between an answer and a value of the tests is decided here.
"""

import ast
import builtins
import importlib
import json
import os
import socket
import symtable
import sys
import traceback
from types import ModuleType
from typing import Any

from consumers.sandbox.joined import wire

JOINT, REPORT = 3, 4
SHAPES: dict[str, tuple[type, ...]] = {
    "ready": (list,),
    "broken": (str, str),
    "value": (object, list),
    "error": (str, str),
}
"""What the code's process may say, by its first word. Whatever else comes is nonsense."""
WORDS_MAX = 300
"""Of the code's own words in a report."""


class SolutionError(Exception):
    """The code raised what is no built-in exception, or it ended, or it spoke nonsense."""


class Solution:
    """The connection to the code's process."""

    def __init__(self) -> None:
        """Waits until it is loaded. Raises SolutionError where it does not load."""
        self._peer = socket.socket(fileno=JOINT)
        self._noted = False
        kind, *rest = self._receive("ready", "broken")
        if kind == "broken":
            raise SolutionError(": ".join(rest))
        self.module = self._read(rest[0])
        if type(self.module) is not Remote:
            raise self._lost("spoke nonsense")

    def ask(self, *request: Any) -> tuple[Any, list[Any]]:
        """The value, and what became of the arguments. Raises what the code raised."""
        try:
            wire.send(self._peer, list(request))
        except OSError as error:
            raise self._lost("has ended") from error
        kind, *rest = self._receive("value", "error")
        if kind == "error":
            self._note(f"{rest[0]}: {rest[1]}")
            error_type = getattr(builtins, rest[0], None)
            if isinstance(error_type, type) and issubclass(error_type, Exception):
                raise error_type(rest[1])
            raise SolutionError(f"{rest[0]}: {rest[1]}")
        return rest[0], rest[1]

    def names(self) -> list[str]:
        """What the module says that it has."""
        names, _ = self.ask("names", 0)
        if not isinstance(names, list):
            raise self._lost("spoke nonsense")
        return [name for name in names if isinstance(name, str)]

    def value(self, *request: Any) -> Any:
        """Of what needs no arguments back."""
        return self._read(self.ask(*request)[0])

    def call(self, number: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A call; lists, dicts and sets that it changed are changed here too."""
        sent = [self.written(argument) for argument in arguments]
        value, after = self.ask("call", number, sent, {name: self.written(one) for name, one in named.items()})
        for before, data in zip(arguments, after, strict=False):
            if data is not None:
                _take(before, self._read(data))
        return self._read(value)

    def written(self, value: Any) -> Any:
        """For the other process. Raises TypeError for what cannot go there, such as a function of the tests."""
        if type(value) is Remote:
            return ["object", value._number]
        return wire.written(value, self._refuse)

    def _lost(self, what: str) -> SolutionError:
        self._note(f"the code's process {what}")
        return SolutionError(f"the code's process {what}")

    def _note(self, words: str) -> None:
        """The first thing that the code did not do: where the tests stop because of it, it is to blame."""
        if not self._noted:
            self._noted = True
            report("fault", words[:WORDS_MAX])

    def _refuse(self, value: Any) -> Any:
        if type(value) is Remote:
            return ["object", value._number]
        raise TypeError(f"a {type(value).__name__} cannot be handed to code in another process")

    def _receive(self, *kinds: str) -> list[Any]:
        try:
            message = wire.receive(self._peer)
        except (OSError, EOFError) as error:
            raise self._lost("has ended") from error
        except (ValueError, RecursionError) as error:
            raise self._lost("spoke nonsense") from error
        if not isinstance(message, list) or not message or message[0] not in kinds:
            raise self._lost("spoke nonsense")
        shape = SHAPES[message[0]]
        if len(message) != 1 + len(shape) or not all(map(isinstance, message[1:], shape)):
            raise self._lost("spoke nonsense")
        return message

    def _read(self, data: Any) -> Any:
        try:
            return wire.read(data, lambda parts: Remote(self, int(parts[1]), str(parts[2])))
        except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
            raise self._lost("spoke nonsense") from error


class Remote:
    """An object of the code. Equal to itself alone: what the code says of equality is not asked."""

    def __init__(self, solution: Solution, number: int, kind: str) -> None:
        self.__dict__.update(_solution=solution, _number=number, _kind=kind)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._solution.value("get", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._solution.value("set", self._number, name, self._solution.written(value))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._solution.call(self._number, arguments, named)

    def __eq__(self, other: object) -> bool:
        return type(other) is Remote and other._number == self._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return f"<{self._kind} of the code>"

    def __iter__(self) -> Any:
        return self._special("__iter__")

    def __next__(self) -> Any:
        return self._special("__next__")

    def __len__(self) -> int:
        return int(self._special("__len__"))

    def __bool__(self) -> bool:
        try:
            return self._special("__bool__") is True
        except TypeError:
            pass
        try:
            return len(self) > 0
        except TypeError:
            return True

    def __getitem__(self, key: Any) -> Any:
        return self._special("__getitem__", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._special("__setitem__", key, value)

    def __contains__(self, item: Any) -> bool:
        return self._special("__contains__", item) is True

    def _special(self, name: str, *arguments: Any) -> Any:
        try:
            method = self._solution.value("get", self._number, name)
        except AttributeError as error:
            raise TypeError(str(error)) from error
        return method(*arguments)


def _take(before: Any, after: Any) -> None:
    """Makes a mutable argument what it became."""
    if type(before) is not type(after) or before == after:
        return
    if isinstance(before, (list, bytearray)):
        before[:] = after
    elif isinstance(before, (dict, set)):
        before.clear()
        before.update(after)


class SolutionModule(ModuleType):
    """What `import` finds in the tests."""

    def __init__(self, name: str, solution: Solution, hidden: frozenset[str]) -> None:
        """hidden: names that `import *` must not replace. Raises SolutionError, or what the code raises."""
        super().__init__(name)
        self.__dict__["_code"] = solution.module
        # What the tests judge by stays theirs: a code's own `all` or `math` would decide instead of Python's. pytest takes
        # orders from names such as `pytestmark`.
        public = [one for one in solution.names() if one.isidentifier() and not one.startswith(("_", "pytest"))]
        self.__dict__["__all__"] = [one for one in public if one not in hidden and not hasattr(builtins, one)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_code"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_code"], name, value)


def modules_of(source: str) -> frozenset[str]:
    """Names of Python's modules of which the source takes something: `math` in `math.isclose`. Raises SyntaxError."""
    nodes = ast.walk(ast.parse(source))
    bases = {node.value.id for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    return frozenset(bases & sys.stdlib_module_names)


def bound_by(source: str, module: str) -> frozenset[str]:
    """Global names that the source binds itself, whatever stands first: imports, assignments, functions, classes.

    What another module's `import *` brings is among them, but nothing of `module`: that is the code. Raises SyntaxError.
    """
    bound, tables = set[str](), [symtable.symtable(source, "tests", "exec")]
    for table in tables:  # which grows: names of a function are its own, unless it says `global`
        tables += table.get_children()
        bound |= {
            each.get_name()
            for each in table.get_symbols()
            if (each.is_assigned() or each.is_imported())
            and (table.get_type() == "module" or each.is_declared_global())
        }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module != module and node.module:
            try:
                other = importlib.import_module(node.module)
            except Exception:  # noqa: BLE001, S112 - the tests will meet it themselves
                continue
            bound |= set(getattr(other, "__all__", None) or (one for one in dir(other) if one[0] != "_"))
    return frozenset(bound)


def report(word: str, value: Any) -> None:
    """One line for the keeper."""
    os.write(REPORT, json.dumps([word, value]).encode() + b"\n")


class ReportPlugin:
    """pytest's plugin: how many tests there are, and what came of each."""

    def pytest_collection_finish(self, session: Any) -> None:
        """How many there are."""
        report("tests", len(session.items))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test is over when it was torn down: passed is who failed and skipped nowhere."""
        if report.when == "call" or not report.passed:
            globals()["report"](report.outcome, report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """The end was reached."""
        report("finished", int(exitstatus))


def main(kind: str, module: str, tests: str) -> int:
    """Runs the tests with the code's stand-in; returns the exit code."""
    with open(tests) as file:
        source = file.read()
    try:
        used, bound = modules_of(source), bound_by(source, module)
    except SyntaxError:
        print(traceback.format_exc(limit=0))  # nothing is reported: the tests are at fault
        return 2
    try:
        sys.modules[module] = stand_in = SolutionModule(module, Solution(), used | bound)
    except Exception as error:  # noqa: BLE001 - no test has begun: whatever it is, the code brought it about
        name = "" if isinstance(error, SolutionError) else f"{type(error).__name__}: "
        report("broken", f"{name}{error}"[:WORDS_MAX])
        return 1
    if kind == "pytest":
        import pytest

        options = [
            "-q",
            "-c",
            "/dev/null",
            "--rootdir",
            ".",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-p",
            "no:randomly",
        ]
        return int(pytest.main([*options, tests], plugins=[ReportPlugin()]))
    return run_script(stand_in, source, used)


def run_script(stand_in: SolutionModule, source: str, used: frozenset[str]) -> int:
    """A script with the code's names: it passed when it came to its end. Raises what it raises."""
    report("tests", 1)
    names: dict[str, Any] = {"__name__": "__main__"}
    names |= {
        name: importlib.import_module(name) for name in used
    }  # Python's, though the code may have imported them for it
    try:
        names |= {name: getattr(stand_in, name) for name in stand_in.__dict__["__all__"]}
        exec(compile(source, "tests", "exec"), names)  # noqa: S102 - the task's author wrote them
    except BaseException:
        report("finished", 1)
        raise
    report("passed", "tests")
    report("finished", 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
