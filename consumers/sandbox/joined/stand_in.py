"""Runs in the tests' sandbox: stands in for the code, which runs elsewhere, and reports what came of each test.

Trusted: no code of a model is in this process. What the code answers is read as plain values or as references, never executed, and
`==` between an answer and a value of the tests is decided here.
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

from consumers.sandbox.joined.anything import AnythingModule
from consumers.sandbox.joined.solution import Solution, SolutionError

REPORT = 4
REPORT_ALONE = 3
"""Where there is no code, and so no descriptor for it."""
WORDS_MAX = 300
"""Of words in a report."""


class SolutionModule(ModuleType):
    """What `import` finds in the tests."""

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


def report(word: str, value: Any, descriptor: int = REPORT) -> None:
    """One line for the keeper."""
    os.write(descriptor, json.dumps([word, value]).encode() + b"\n")


class ReportPlugin:
    """pytest's plugin: how many tests there are, what came of each, and where it stopped if it did."""

    def __init__(self, tests: str, solution: Solution | None) -> None:
        """solution: None where the tests are only collected, without any code."""
        self._tests, self._solution = tests, solution
        self._descriptor = REPORT_ALONE if solution is None else REPORT

    def pytest_collection_finish(self, session: Any) -> None:
        """How many there are."""
        report("tests", len(session.items), self._descriptor)

    def pytest_exception_interact(self, call: Any, report: Any) -> None:
        """The first error of the collection: the line of the file, the kind, the words."""
        if report.when == "collect":
            error = call.excinfo.value.__cause__ or call.excinfo.value
            self._say("stopped", [line_of(error, self._tests), type(error).__name__, str(error)[:WORDS_MAX]])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test is over when it was torn down: passed is who failed and skipped nowhere."""
        if report.when == "call" or not report.passed:
            self._say(report.outcome, report.nodeid)
        if type(report.longrepr).__name__ == "FixtureLookupErrorRepr":  # by a name of the tests, whatever the code is
            self._say("no_fixture", " ".join(str(report.longrepr.errorstring).split())[:WORDS_MAX])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """The end was reached."""
        self._say("asked", self._solution is not None and self._solution.asked)
        self._say("finished", int(exitstatus))

    def _say(self, word: str, value: Any) -> None:
        report(word, value, self._descriptor)


def line_of(error: BaseException, tests: str) -> int:
    """Of the tests' file, on which it stopped; 0: on none."""
    frames = (frame for frame in traceback.extract_tb(error.__traceback__) if os.path.basename(frame.filename) == tests)
    return next((frame.lineno or 0 for frame in frames), 0)


def main(kind: str, module: str, tests: str) -> int:
    """Runs the tests with the code's stand-in; returns the exit code. kind: `pytest`, `python`, or `alone` for pytest without code."""
    with open(tests) as file:
        source = file.read()
    try:
        used, bound = modules_of(source), bound_by(source, module)
    except SyntaxError:
        print(traceback.format_exc(limit=0))
        report("unreadable", True)
        return 2
    if kind == "alone":
        sys.modules[module] = AnythingModule(module, source, used | bound)
        return run_pytest(tests, None)
    try:
        solution = Solution()
        sys.modules[module] = stand_in = SolutionModule(module, solution, used | bound)
    except Exception as error:  # noqa: BLE001 - no test has begun: whatever it is, the code brought it about
        name = "" if isinstance(error, SolutionError) else f"{type(error).__name__}: "
        report("broken", f"{name}{error}"[:WORDS_MAX])
        return 1
    return run_pytest(tests, solution) if kind == "pytest" else run_script(stand_in, source, used)


def run_pytest(tests: str, solution: Solution | None) -> int:
    """All tests; without code they are collected alone."""
    import pytest

    without = [word for plugin in ("cacheprovider", "xdist", "randomly") for word in ("-p", f"no:{plugin}")]
    options = ["-q", "-c", "/dev/null", "--rootdir", ".", *without, *(["--collect-only"] if solution is None else [])]
    return int(pytest.main([*options, tests], plugins=[ReportPlugin(tests, solution)]))


def run_script(stand_in: SolutionModule, source: str, used: frozenset[str]) -> int:
    """A script with the code's names: it passed when it came to its end. Raises what it raises."""
    report("tests", 1)
    names: dict[str, Any] = {"__name__": "__main__"}
    names |= {
        name: importlib.import_module(name) for name in used
    }  # Python's, though the code may have imported them for it
    try:
        names |= {name: getattr(stand_in, name) for name in stand_in.__dict__["_claw_names"]}
        exec(compile(source, "tests", "exec"), names)  # noqa: S102 - the task's author wrote them
    except BaseException:
        report("finished", 1)
        raise
    report("passed", "tests")
    report("finished", 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
