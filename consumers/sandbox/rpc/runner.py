"""Runs in the tests' sandbox: stands in for the code, which runs elsewhere, and reports each test's result.

Trusted: no code of a model is in this process. Its answers are read as plain values or as
references, never executed, and `==` between an answer and a value of the tests is decided here.
"""

import ast
import builtins
import importlib
import json
import os
import symtable
import sys
import traceback
from types import ModuleType
from typing import Any

from claw_r1.consumers.sandbox.rpc.client import NotHandableError, Solution, SolutionError
from claw_r1.consumers.sandbox.rpc.mock import AnythingModule, Uses
from claw_r1.consumers.sandbox.rpc.proxies import link_of

REPORT = 4
REPORT_ALONE = 3
"""The report's descriptor where there is no code, and so no descriptor for it."""
WORDS_MAX = 300
"""The most characters of a text in a report."""


class SolutionModule(ModuleType):
    """The module that `import` finds in the tests."""

    def __init__(self, name: str, solution: Solution, hidden: frozenset[str]) -> None:
        """hidden: names that `import *` must not replace. Raises SolutionError, or what the code raises."""
        super().__init__(name)
        self.__dict__["_claw_code"] = solution.module
        # What the tests judge by stays theirs: a code's own `all` or `math` would decide instead of Python's. pytest takes
        # orders from names such as `pytestmark`.
        names = [one for one in solution.names() if one.isidentifier() and not one.startswith(("__", "pytest"))]
        names = [one for one in names if one not in hidden and not hasattr(builtins, one)]
        self.__dict__.update(_claw_names=names, __all__=[one for one in names if not one.startswith("_")])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_claw_code"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_claw_code"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_claw_code"], name)


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


class ReportPipe:
    """Reports the tests' results to the keeper, a line each."""

    def __init__(self, tests: str, uses: Uses | None) -> None:
        """uses: of the stand-in, where there is no code."""
        self._tests, self._uses = tests, uses

    def say(self, word: str, value: Any) -> None:
        """One line."""
        os.write(REPORT if self._uses is None else REPORT_ALONE, json.dumps([word, value]).encode() + b"\n")

    def say_stopped(self, error: BaseException) -> None:
        """Reports where the file stopped: line, kind, text; without code, whether an answer of the stand-in was the cause."""
        line = line_of(error, self._tests)
        self.say("stopped", [line, type(error).__name__, str(error)[:WORDS_MAX]])
        if self._uses is not None and self._uses.explain(error, line):
            self.say("by_answers", True)

    def say_not_handable(self, error: BaseException) -> None:
        """Reports a value of the tests that cannot go to the code, which stops there with any code."""
        if isinstance(error, NotHandableError):
            self.say("not_handable", str(error)[:WORDS_MAX])


class ReportPlugin:
    """pytest's plugin: the number of tests, the result of each, and where it stopped, if it did."""

    def __init__(self, pipe: ReportPipe, solution: Solution | None) -> None:
        """solution: None where the tests are only collected, without any code."""
        self._pipe, self._solution = pipe, solution

    def pytest_collection_finish(self, session: Any) -> None:
        """Reports the number of tests."""
        self._pipe.say("tests", len(session.items))

    def pytest_exception_interact(self, call: Any, report: Any) -> None:
        """The first error of the collection, and each that was not the code's."""
        error = call.excinfo.value
        error = error.__cause__ or error if report.when == "collect" else error
        self._pipe.say_not_handable(error)
        if report.when == "collect":
            self._pipe.say_stopped(error)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test is over when it was torn down: passed is who failed and skipped nowhere."""
        if report.when == "call" or not report.passed:
            self._pipe.say(report.outcome, report.nodeid)
        if type(report.longrepr).__name__ == "FixtureLookupErrorRepr":  # by a name of the tests, whatever the code is
            self._pipe.say("no_fixture", " ".join(str(report.longrepr.errorstring).split())[:WORDS_MAX])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """The end was reached."""
        self._pipe.say("asked", self._solution is not None and self._solution.asked)
        self._pipe.say("finished", int(exitstatus))


def line_of(error: BaseException, tests: str) -> int:
    """Returns the line of the tests' file on which it stopped; 0: on none."""
    frames = (frame for frame in traceback.extract_tb(error.__traceback__) if os.path.basename(frame.filename) == tests)
    return next((frame.lineno or 0 for frame in frames), 0)


def main(kind: str, module: str, tests: str, alone: str = "") -> int:
    """Runs the tests with the code's stand-in; returns the exit code. kind: `pytest` or `python`; alone: without code, if anything."""
    with open(tests) as file:
        source = file.read()
    pipe = ReportPipe(tests, None)
    try:
        used, bound = modules_of(source), bound_by(source, module)
    except SyntaxError:
        print(traceback.format_exc(limit=0))
        pipe.say("unreadable", True)
        return 2
    solution: Solution | None = None
    stand_in: ModuleType
    if alone:
        stand_in = anything = AnythingModule(module, tests, source, used | bound)
        pipe = ReportPipe(tests, anything.__dict__["_claw_uses"])
    else:
        try:
            solution = Solution()
            stand_in = SolutionModule(module, solution, used | bound)
        except Exception as error:  # noqa: BLE001 - no test has begun: whatever it is, the code brought it about
            name = "" if isinstance(error, SolutionError) else f"{type(error).__name__}: "
            pipe.say("broken", f"{name}{error}"[:WORDS_MAX])
            return 1
    sys.modules[module] = stand_in
    if kind == "pytest":
        return run_pytest(tests, pipe, solution)
    return run_script(tests, source, used, pipe, stand_in)


def run_pytest(tests: str, pipe: ReportPipe, solution: Solution | None) -> int:
    """All tests; without code they are collected alone."""
    try:
        import pytest
    except ImportError as error:  # whatever the code is: no verdict about it
        print(f"pytest cannot be imported by {sys.executable}: {error}")
        pipe.say("unreadable", True)
        return 2
    without = [word for plugin in ("cacheprovider", "xdist", "randomly") for word in ("-p", f"no:{plugin}")]
    options = ["-q", "-c", "/dev/null", "--rootdir", ".", *without, *(["--collect-only"] if solution is None else [])]
    return int(pytest.main([*options, tests], plugins=[ReportPlugin(pipe, solution)]))


def run_script(tests: str, source: str, used: frozenset[str], pipe: ReportPipe, stand_in: ModuleType) -> int:
    """A script with the code's names: it passes if it reaches its end. Raises its errors."""
    pipe.say("tests", 1)
    names: dict[str, Any] = {"__name__": "__main__"}
    names |= {
        name: importlib.import_module(name) for name in used
    }  # Python's, though the code may have imported them for it
    try:
        names |= {name: getattr(stand_in, name) for name in stand_in.__dict__["_claw_names"]}
        exec(compile(source, tests, "exec"), names)  # noqa: S102 - the task's author wrote them
    except BaseException as error:
        pipe.say_not_handable(error)
        # A failed assertion, the usual end of wrong code, is its failure without a second look.
        if (
            isinstance(error, Exception)
            and not isinstance(error, AssertionError | SolutionError)
            and not link_of(error)
        ):
            pipe.say_stopped(error)
        pipe.say("finished", 1)
        raise
    pipe.say("passed", "tests")
    pipe.say("finished", 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
