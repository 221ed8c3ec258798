"""Tests that do not run: their author is to blame where they do so without any code, and the code where they ran with other code."""

import pytest

from consumers.sandbox.sandbox import Sandbox, SandboxLimits
from consumers.sandbox.tested import BrokenTests, CodeResult, by_tests

pytestmark = pytest.mark.process
LIMITS = SandboxLimits(cpu_s=10, wall_s=60, memory_bytes=256 << 20)
RIGHT = "def make(n): return list(range(n))\ndef add(a, b): return a + b\ndef pair(): return 1, 2\ndef same(f): return f\nclass Base: pass\nSIZE = 2\n"
BROKEN = {
    "parameters that the test has not": "from solution import add\nimport pytest\n@pytest.mark.parametrize('x', [1])\ndef test_a(): assert add(1, 2) == 3",
    "a fixture that is not there": "from solution import add\ndef test_a(nothing_like_it): assert add(1, 2) == 3\ndef test_b(): assert add(1, 1) == 2",
    "a name that is not there": "from solution import add\nadd(1, 2)\nCASES = [make_it]\ndef test_a(): pass",
    "a module that is not there": "import solution, nothing_like_it\ndef test_a(): pass",
    "an object's address in its words": "import solution\nsolution.add(1, 2)\nraise ValueError(object())",
    "an error after the code was used": "from solution import *\na, b = pair()\nCASES = [x + 1 for x in make(3)]\nN = len(CASES[0:SIZE]) + int(SIZE)\nassert add(1, 2) == 3\nassert {}['x'] == add(1, 1)",
}
USED = {
    "items": ("CASES = [x + 1 for x in make(3)]", "def make(n): return 7"),
    "items of another type": ("CASES = [x + 1 for x in make(3)]", "def make(n): return ['a']"),
    "a pair": ("a, b = pair()", "def pair(): return 1"),
    "an assertion": ("assert add(1, 2) == 3", "def add(a, b): return 0"),
    "a denial": ("assert not add(1, -1)", "def add(a, b): return 7"),
    "a name": ("solution.add", "def sub(a, b): return 0"),
    "an exit": ("add(1, 2)", "def add(a, b): raise SystemExit(0)"),
    "an interrupt": ("add(1, 2)", "def add(a, b): raise KeyboardInterrupt"),
    "an end of the process": ("add(1, 2)", "import os\ndef add(a, b): os._exit(0)"),
    "a skip": ("add(1, 2)", "import unittest\ndef add(a, b): raise unittest.SkipTest('x')"),
    "pytest's skip": ("add(1, 2)", "import _pytest.outcomes\ndef add(a, b): raise _pytest.outcomes.Skipped('x', allow_module_level=True)"),
    "parameters": ("@pytest.mark.parametrize('a, b', [pair()])\ndef test_pairs(a, b): assert b - a == 1", "def pair(): return 1, 2, 3"),
    "whether there are tests": ("if add(1, 2) != 3: del test_it", "def add(a, b): return 0"),
    "a base": ("class Mine(type(Base())): pass", "def Base(): raise ValueError"),
    "a decorator": ("@same\ndef more(): return 1\nassert more() == 1", "def same(f): return 3"),
}  # fmt: skip


@pytest.fixture(scope="module")
def sandbox():
    """One for all."""
    with Sandbox() as sandbox:
        yield sandbox


@pytest.mark.parametrize("tests", BROKEN.values(), ids=BROKEN)
def test_tests_that_run_with_no_code_are_broken(sandbox, tests) -> None:
    """The code is right, and its reward is missing, not 0."""
    with pytest.raises(BrokenTests):
        by_tests(sandbox, "pytest", RIGHT, tests, LIMITS)


@pytest.mark.parametrize(("use", "wrong"), USED.values(), ids=USED)
def test_tests_that_stop_at_the_code_are_its_failure(sandbox, use, wrong) -> None:
    """Also where it is used before there are tests; a 0 that could be evaded would be missing in its group."""
    tests = f"import pytest, solution\nfrom solution import *\ndef test_it(): assert True\n{use}\n"
    if "same" not in use:  # functions of the tests cannot be handed to the code
        assert by_tests(sandbox, "pytest", RIGHT, tests, LIMITS).reason == ""
    result = by_tests(sandbox, "pytest", f"{RIGHT}\n{wrong}\n" if "sub" not in wrong else wrong, tests, LIMITS)
    assert (result.passed, result.reason) == (0, "failed")


def test_right_code_passes_tests_that_use_it_before_they_begin(sandbox) -> None:
    """As in one process."""
    tests = "import pytest\nfrom solution import *\n@pytest.mark.parametrize('x', make(3))\ndef test_it(x): assert add(x, 1) == x + 1"
    assert by_tests(sandbox, "pytest", RIGHT, tests, LIMITS) == CodeResult(passed=3, tests=3)
