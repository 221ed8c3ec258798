"""Tests that do not run: their author is to blame where they do so without any code, and the code where they ran with other code."""

import pytest

from claw_r1.consumers.sandbox.grading import BrokenTests, CodeResult, by_tests
from claw_r1.consumers.sandbox.sandbox import SandboxLimits
from tests.soak import in_soak

pytestmark = pytest.mark.process
LIMITS = SandboxLimits(cpu_s=10, wall_s=60, memory_bytes=256 << 20)
RIGHT = "def make(n): return list(range(n))\ndef add(a, b): return a + b\ndef pair(): return 1, 2\ndef same(f): return f\nclass Base: pass\nSIZE = 2\n"
BROKEN = {
    "parameters that the test has not": "from solution import add\nimport pytest\n@pytest.mark.parametrize('x', [1])\ndef test_a(): assert add(1, 2) == 3",
    "a fixture that is not there": "from solution import add\ndef test_a(nothing_like_it): assert add(1, 2) == 3\ndef test_b(): assert add(1, 1) == 2",
    "a name that is not there": "from solution import add\nadd(1, 2)\nCASES = [make_it]\ndef test_a(): pass",
    "a module that is not there": "import solution, nothing_like_it\ndef test_a(): pass",
    "an object's address in its words": "import solution\nsolution.add(1, 2)\nraise ValueError(object())",
    "a name that is not there, beside the code's": "from solution import make, add\nimport pytest\nCASES = [x for x in make(3)]\n@pytest.mark.parametrize('x', CASES + [nothing, add(1, 2)])\ndef test_a(x): pass",
    "a function as decorated": "from solution import same\n@same\ndef more(): return 1\ndef test_a(): assert more() == 1",
    "an error after the code was used": "from solution import *\na, b = pair()\nCASES = [x + 1 for x in make(3)]\nN = len(CASES[0:SIZE]) + int(SIZE)\nassert add(1, 2) == 3\nassert {}['x'] == add(1, 1)",
}
LIKE_OTHERS = ("a name that is not there", "a module that is not there", "a function as decorated")
"""Of `BROKEN`: these stop as others do, and come in `make soak`."""
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
    "a list of its items": ("CASES = [x for x in make(3)]\nassert CASES, 'no data'", "def make(n): return []"),
    "the number of its items": ("CASES = list(make(3))\nif len(CASES) != 3: raise RuntimeError('want 3')", "def make(n): return []"),
    "a truth": ("if add(1, -1): raise ValueError('not 0')", "def add(a, b): return 7"),
    "an item that is not there": ("FIRST = list(make(3))[0]", "def make(n): return []"),
    "the least": ("CASES = list(make(3))\nLEAST = min(CASES)", "def make(n): return []"),
    "what a function took": ("CASES = []\ndef load(): CASES.extend(make(3))\nload()\nassert CASES", "def make(n): return []"),
    "what a function gives": ("CASES = list(make(3))\ndef first(): return CASES[0]\nFIRST = first()", "def make(n): return []"),
    "a constant": ("if type(SIZE) is not int: raise ValueError('SIZE')", "SIZE = 'x'"),
}  # fmt: skip
DIFFERENT = frozenset(
    {
        "items",
        "a name",
        "an exit",
        "an end of the process",
        "pytest's skip",
        "parameters",
        "whether there are tests",
        "what a function took",
    }
)
"""Of `USED`, one of each way in which a file stops; the others come in `make soak`."""
NOT_HANDABLE = {
    "a function": "assert same(lambda x: x)(1) == 1",
    "a class": "class Mine: pass\n    assert same(Mine) is Mine",
    "a mock in its place": "from unittest.mock import patch\n    with patch.object(solution, 'add', return_value=5): assert solution.add(1, 2) == 5",
    "a function in its place": "pytest.MonkeyPatch().setattr(solution, 'add', lambda a, b: 5)",
    "a function in a list": "assert same([lambda: 1])[0]() == 1",
}
HANDED = ("a function", "a mock in its place", "a function in its place")
"""Of `NOT_HANDABLE`, one of each way to hand it over."""


@pytest.mark.parametrize("name", [in_soak(name) if name in LIKE_OTHERS else name for name in BROKEN])
def test_tests_that_run_with_no_code_are_broken(sandbox, name) -> None:
    """The code is right, and its reward is missing, not 0."""
    with pytest.raises(BrokenTests):
        by_tests(sandbox, "pytest", RIGHT, BROKEN[name], LIMITS)


def using(use: str) -> str:
    """Tests that use the code before they begin."""
    return f"import pytest, solution\nfrom solution import *\ndef test_it(): assert True\n{use}\n"


def test_right_code_passes_each_use(sandbox) -> None:
    """All uses of `USED` in one file: where wrong code fails there, it is the code's failure."""
    tests = using("\n".join(use for use, _ in USED.values()))
    assert by_tests(sandbox, "pytest", RIGHT, tests, LIMITS) == CodeResult(passed=2, tests=2)


@pytest.mark.parametrize("name", [name if name in DIFFERENT else in_soak(name) for name in USED])
def test_tests_that_stop_at_the_code_are_its_failure(sandbox, name) -> None:
    """Also where it is used before there are tests; a 0 that could be evaded would be missing in its group."""
    use, wrong = USED[name]
    code = f"{RIGHT}\n{wrong}\n" if "sub" not in wrong else wrong
    result = by_tests(sandbox, "pytest", code, using(use), LIMITS)
    assert (result.passed, result.reason) == (0, "failed")


def test_right_code_passes_tests_that_use_it_before_they_begin(sandbox) -> None:
    """As in one process."""
    tests = "import pytest\nfrom solution import *\n@pytest.mark.parametrize('x', make(3))\ndef test_it(x): assert add(x, 1) == x + 1"
    assert by_tests(sandbox, "pytest", RIGHT, tests, LIMITS) == CodeResult(passed=3, tests=3)


@pytest.mark.parametrize("name", [name if name in HANDED else in_soak(name) for name in NOT_HANDABLE])
def test_tests_that_hand_over_what_cannot_go_are_broken(sandbox, name) -> None:
    """It cannot go to any code, right or wrong, and a 0 would say nothing."""
    tests = f"import pytest, solution\nfrom solution import *\ndef test_first(): assert add(1, 2) == 3\ndef test_it():\n    {NOT_HANDABLE[name]}\n"
    with pytest.raises(BrokenTests, match="cannot be handed to code"):
        by_tests(sandbox, "pytest", RIGHT, tests, LIMITS)


def test_what_cannot_go_is_not_held_against_wrong_code(sandbox) -> None:
    """Neither by pytest's tests, of which others fail, nor by a script."""
    tests = f"from solution import *\ndef test_first(): assert add(1, 2) == 3\ndef test_it(): {NOT_HANDABLE['a function']}\n"
    with pytest.raises(BrokenTests, match="cannot be handed to code"):
        by_tests(sandbox, "pytest", f"{RIGHT}\ndef add(a, b): return 0", tests, LIMITS)
    with pytest.raises(BrokenTests, match="cannot be handed to code"):
        by_tests(sandbox, "python", RIGHT, "assert same(lambda: 1)() == 1", LIMITS)


def test_a_value_in_place_of_the_codes_is_handed_over(sandbox) -> None:
    """And what was there comes back."""
    tests = "import solution\nfrom unittest.mock import patch\ndef test_it():\n    with patch.object(solution, 'SIZE', 3): assert solution.size() == 3\n    assert solution.size() == 2\n"
    code = f"{RIGHT}\ndef size(): return SIZE"
    assert by_tests(sandbox, "pytest", code, tests, LIMITS) == CodeResult(passed=1, tests=1)


def test_a_refused_value_that_tests_expect_breaks_nothing(sandbox) -> None:
    """Nor does one that the code made: whether it comes depends on the code."""
    tests = "import pytest\nfrom solution import *\ndef test_it():\n    with pytest.raises(TypeError): same(lambda: 1)\n    assert add(1, 2) == 3\n"
    assert by_tests(sandbox, "pytest", RIGHT, tests, LIMITS) == CodeResult(passed=1, tests=1)
    assert by_tests(sandbox, "pytest", f"{RIGHT}\ndef add(a, b): return 0", tests, LIMITS).reason == "failed"
    given = "from solution import *\ndef test_it(): assert same(add(1, 2)) == 3"
    for wrong in ("async def add(a, b): return 3", "def add(a, b): return type('X', (), {})()"):
        assert by_tests(sandbox, "pytest", f"{RIGHT}\n{wrong}", given, LIMITS).reason == "failed"


@pytest.mark.parametrize("line", ["import nothing_like_it", "CASES = {}['x']", "EXPECTED = int('x')"])
def test_a_script_that_stops_with_no_code_is_broken(sandbox, line) -> None:
    """Where it stops at no assertion, and at no answer of the code."""
    with pytest.raises(BrokenTests):
        by_tests(sandbox, "python", RIGHT, f"assert add(1, 2) == 3\n{line}\n", LIMITS)


SCRIPTS = {
    "assert make(2)[1] == 1": "def make(n): return [0]",
    "FIRST = list(make(3))[0]": "def make(n): return []",
    "assert add(1, 2) == 3": "del add",
    "assert int(add(1, 2)) == 3": "def add(a, b): return 'x'",
    "make(1)": "def make(n): return {}['x']",
}


def test_right_code_passes_each_line(sandbox) -> None:
    """All lines of `SCRIPTS` in one script."""
    assert by_tests(sandbox, "python", RIGHT, "\n".join(SCRIPTS), LIMITS).reason == ""


@pytest.mark.parametrize(("line", "wrong"), SCRIPTS.items(), ids=SCRIPTS)
def test_a_script_that_stops_at_the_code_is_its_failure(sandbox, line, wrong) -> None:
    """Whatever kind of error comes of it."""
    result = by_tests(sandbox, "python", f"{RIGHT}\n{wrong}", line, LIMITS)
    assert (result.passed, result.tests, result.reason) == (0, 1, "failed")
