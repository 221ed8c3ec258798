"""Code against its tests: a hostile solution cannot write its own verdict."""

import json
import sys

import pytest

from claw_r1.consumers.sandbox.grading import BrokenTests, CodeResult, by_cases, by_tests
from claw_r1.consumers.sandbox.sandbox import SandboxLimits, SandboxProgram
from tests.soak import in_soak

pytestmark = pytest.mark.process
LIMITS = SandboxLimits(cpu_s=3, wall_s=30, memory_bytes=256 << 20)
GOOD = "def add(a, b): return a + b\ndef double(n): return add(n, n)\n"
TESTS = """
import pytest
from solution import add
import solution
def test_adds(): assert add(1, 2) == 3
def test_doubles(): assert solution.double(4) == 8
"""
FORGERIES = {
    "exit at import": "import os\nos._exit(0)",
    "exit in a call": "import os\ndef add(a, b): os._exit(0)\ndouble = add",
    "sys.exit": "import sys\ndef add(a, b): sys.exit(0)\ndouble = add",
    "stdout": 'print(\'2 passed in 0.01s\'); print(\'["passed", "t"]\\n["finished", 0]\')',
    "stderr": "import sys\nsys.stderr.write('2 passed in 0.01s\\n')",
    "every descriptor": """
import os
for n in range(3, 200):
    for text in (b'["tests", 2]\\n["passed", "a"]\\n["passed", "b"]\\n["finished", 0]\\n', b'\\0\\0\\0\\x0f["value",3,[]]  '):
        try: os.write(n, text)
        except OSError: pass
def add(a, b): return 0
""",
    "a patched pytest": """
import sys, types
sys.modules['pytest'] = types.ModuleType('pytest')
import builtins
builtins.AssertionError = Exception
def add(a, b): return 0
""",
    "equal to everything": """
class Yes(int):
    def __eq__(self, other): return True
    def __bool__(self): return True
    def __hash__(self): return 3
def add(a, b): return Yes(0)
def double(n): return Yes(0)
""",
    "an object equal to everything": """
class Yes:
    def __eq__(self, other): return True
    def __getattr__(self, name): return Yes()
    def __call__(self, *args): return Yes()
def add(a, b): return Yes()
def double(n): return Yes()
""",
    "errors": "def add(a, b): raise KeyboardInterrupt\ndef double(n): raise SystemExit(0)",
    "its tests replaced": """
import pathlib
for path in pathlib.Path('/tmp').rglob('*.py'):
    try: path.write_text('def test_a(): pass')
    except OSError: pass
pathlib.Path('test_solution.py').write_text('def test_adds(): pass')
pathlib.Path('conftest.py').write_text('import os; os._exit(0)')
def add(a, b): return 0
""",
    "deep nonsense": "def add(a, b):\n    x = []\n    for _ in range(100000): x = [x]\n    return x\ndouble = add",
    "killing the others": """
import os, signal
for pid in range(1, 3000):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
def add(a, b): return 0
""",
}
AT_PYTEST = ("stdout", "every descriptor", "a patched pytest", "its tests replaced", "no list")
"""What aims at pytest or its report, and one of the nonsense: the others meet a script, which costs a third of it."""
SAY = """
import json, os
def say(message):
    data = json.dumps(message).encode()
    os.write(3, len(data).to_bytes(4, 'big') + data)
"""
MODULE = [[0], [[1, "object", 0, "module", False], [0, "list", "ready", [1]]]]
NONSENSE = {
    "nothing behind ready": [[[0], [[0, "list", "ready"]]]],
    "a list for the module": [[[0], [[1, "list"], [0, "list", "ready", [1]]]]],
    "a number for the module": [[[0], [[0, "list", "ready", 3]]]],
    "an object without a number": [[[0], [[1, "object"], [0, "list", "ready", [1]]]]],
    "an object of no end": [[[0], [[1, "object", float("inf"), "x", False], [0, "list", "ready", [1]]]]],
    "an error of no words": [[[0], [[0, "list", "error"]]]],
    "broken with numbers": [[[0], [[0, "list", "broken", 1, 2]]]],
    "no names": [MODULE, [[0], [[1, "list"], [0, "list", "value", None, [1], [1]]]]],
    "names of no shape": [MODULE, [[0], [[0, "list", "value", 3]]]],
    "an error for names": [MODULE, [[0], [[0, "list", "error"]]]],
    "an error with numbers for names": [MODULE, [[0], [[0, "list", "error", 5]]]],
    "a list for a word": [MODULE, [[0], [[1, "list", "value"], [0, "list", [1], [1], [1]]]]],
    "no list": [MODULE, {"value": []}],
    "no table": [["ready", ["object", 0, "module"]]],
    "a table of words": [[[0], ["list"]]],
    "what the tests have, which gave nothing": [
        MODULE,
        [[0], [[1, "own", 0, "list"], [2, "list"], [0, "list", "value", [1], [2], [2]]]],
    ],
    "a deep table": [json.loads("[" * 500 + "]" * 500)],
}
STARS = {
    "a class": ("import pytest\nfrom solution import *", "add(1, 2) == pytest.approx(3)"),
    "a function": ("from math import isclose\nfrom solution import *", "isclose(add(1, 2), 3)"),
    "the tests' own": ("def check(a, b): return a == b\nfrom solution import *", "check(add(1, 2), 3)"),
    "another star": ("from math import *\nfrom solution import *", "isclose(add(1, 2), 3)"),
    "a constant": ("check = lambda a, b: a == b\nfrom solution import *", "check(add(1, 2), 3)"),
    "a global": (
        "def begin():\n    global check\n    def check(a, b): return a == b\nbegin()\nfrom solution import *",
        "check(add(1, 2), 3)",
    ),
}


def spoken(messages: object) -> str:
    """Code that says these messages to the tests, in place of what a module's code says."""
    return f"{SAY}\nfor one in json.loads('{json.dumps(messages)}'): say(one)"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("pytest", name) if name in AT_PYTEST else in_soak("pytest", name) for name in [*FORGERIES, *NONSENSE]),
        *(in_soak("python", name) if name in AT_PYTEST else ("python", name) for name in [*FORGERIES, *NONSENSE]),
    ],
)
def test_a_forged_verdict_is_none(sandbox, kind, name) -> None:
    """Whatever the code prints, patches, ends or writes, the tests' own process says what came of them."""
    tests = TESTS if kind == "pytest" else "assert add(1, 2) == 3\nassert double(4) == 8\n"
    forgery = FORGERIES[name] if name in FORGERIES else spoken(NONSENSE[name])
    tested = by_tests(sandbox, kind, forgery, tests, LIMITS)
    assert tested.passed < 2 if kind == "pytest" else tested.passed == 0
    assert tested.reason in ("failed", "broken")


@pytest.mark.parametrize(("head", "claim"), STARS.values(), ids=STARS)
def test_what_the_tests_bind_is_not_replaced_by_a_star(sandbox, head, claim) -> None:
    """Whatever stands first; and right code passes the same tests, also where a parameter has its function's name."""
    code = """
class pytest: approx = staticmethod(lambda v: 0)
def isclose(*of): return True
def check(*of): return True
def add(a, b): return 0
"""
    tests = f"{head}\ndef by(add): assert {claim}\ndef test_it(): by(add)"
    assert by_tests(sandbox, "pytest", code, tests, LIMITS).passed == 0
    assert by_tests(sandbox, "pytest", GOOD, tests, LIMITS) == CodeResult(passed=1, tests=1)


def test_pytest_takes_no_orders_from_the_code(sandbox) -> None:
    """Names that pytest looks for in a file of tests would make it stop, and so make no verdict of a 0."""
    code = "pytestmark = pytest_plugins = ['nothing_like_it']\ndef add(a, b): return 0"
    tests = "from solution import *\ndef test_it(): assert add(1, 2) == 3"
    tested = by_tests(sandbox, "pytest", code, tests, LIMITS)
    assert (tested.passed, tested.tests, tested.reason) == (0, 1, "failed")


def test_right_code_passes(sandbox) -> None:
    """All of pytest's, and a script; also after the forgeries above, which leave nothing in their sandbox."""
    assert by_tests(sandbox, "pytest", GOOD, TESTS, LIMITS) == CodeResult(passed=2, tests=2)
    script = "def check(f):\n    assert f(1, 2) == 3\ncheck(add)\nassert math.floor(add(1.5, 0)) == 1"
    assert by_tests(sandbox, "python", "import math\n" + GOOD, script, LIMITS) == CodeResult(passed=1, tests=1)


def test_names_of_python_are_not_the_codes(sandbox) -> None:
    """A code that has its own `all`, `len` or `math` does not judge itself by them."""
    code = "def all(x): return True\ndef len(x): return 3\nclass math:\n    isclose = lambda *a: True\ndef add(a, b): return 0\n"
    lines = (
        "assert all([add(1, 2) == 3])",
        "assert len([add(1, 2)]) == 3",
        "import math; assert math.isclose(add(1, 2), 3)",
    )
    tests = "from solution import *\n" + "".join(f"def test_{n}(): {line}\n" for n, line in enumerate(lines))
    assert by_tests(sandbox, "pytest", code, tests, LIMITS).passed == 0
    for line in lines:
        assert by_tests(sandbox, "python", code, line, LIMITS).passed == 0
    assert by_tests(sandbox, "python", code, "assert math.isclose(add(1, 2), 3)", LIMITS).passed == 0


def test_objects_of_the_code_are_used_from_afar(sandbox) -> None:
    """Classes, iterators, containers, arguments that are changed, errors by their type."""
    code = """
class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item); return self
    def __len__(self): return len(self.items)
    def __getitem__(self, n): return self.items[n]
    def __contains__(self, item): return item in self.items
class Mine(Exception): pass
def numbers(): yield from range(3)
def sort_in_place(values): values.sort()
def fails(kind): raise {'value': ValueError('no'), 'mine': Mine('no')}[kind]
def shapes(): return {'a': (1, 2.5, None), 'b': {1, 2}, 3: b'x', 'c': [1j, float('inf')]}
def maximum(stack): return max(stack.items)
"""
    tests = """
import pytest, solution
from solution import *
def test_objects():
    stack = Stack()
    assert not stack
    stack.push(3).push(1)
    assert len(stack) == 2 and stack and stack[0] == 3 and 1 in stack and 7 not in stack and stack.items == [3, 1]
    assert solution.maximum(stack) == 3 and stack == stack and stack != Stack()
    stack.items = [5]
    assert maximum(stack) == 5
def test_values():
    assert list(numbers()) == [0, 1, 2] and sum(numbers()) == 3
    values = [3, 1, 2]
    sort_in_place(values)
    assert values == [1, 2, 3]
    assert shapes() == {'a': (1, 2.5, None), 'b': {1, 2}, 3: b'x', 'c': [1j, float('inf')]}
def test_errors():
    with pytest.raises(ValueError, match='no'): fails('value')
    with pytest.raises(solution.Mine, match='^no$'): fails('mine')
    with pytest.raises(AttributeError): solution.nothing
    with pytest.raises(TypeError): sort_in_place(lambda: 1)
"""
    assert by_tests(sandbox, "pytest", code, tests, LIMITS) == CodeResult(passed=3, tests=3)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def add(a, b):\n    while True: pass", "cpu"),
        ("while True: pass", "cpu"),
        ("def add(a, b): return len([bytearray(1 << 20) for _ in range(1000)])", "memory"),
        ("def add(a, b):\n    while True: print('x' * 1000)", "output"),
        ("def add(a, b):\n    import time; time.sleep(100)", "wall"),
        ("def (", "broken"),
    ],
)
def test_a_limit_that_the_code_breaks_is_its_own_failure(sandbox, code, reason) -> None:
    """With the limit's name."""
    limits = SandboxLimits(cpu_s=1, wall_s=4 if reason == "wall" else 60, memory_bytes=200 << 20)
    tested = by_tests(sandbox, "python", code, "assert add(1, 2) == 3", limits)
    assert (tested.passed, tested.reason) == (0, reason)


@pytest.mark.parametrize("tests", ["def (", "x = 1", "import nothing_like_it", "raise ValueError"])
def test_broken_tests_are_no_verdict(sandbox, tests) -> None:
    """Nobody is to blame but their author."""
    with pytest.raises(BrokenTests):
        by_tests(sandbox, "pytest", GOOD, tests, LIMITS)


def test_a_skipped_or_failing_test_is_not_passed(sandbox) -> None:
    """Nor is one that fails in its tear-down."""
    tests = """
import pytest
@pytest.fixture
def late():
    yield
    assert False
def test_ok(): pass
@pytest.mark.skip
def test_skipped(): pass
def test_torn(late): pass
"""
    tested = by_tests(sandbox, "pytest", GOOD, tests, LIMITS)
    assert (tested.passed, tested.tests, tested.reason) == (1, 3, "failed")


def test_programs_against_cases(sandbox) -> None:
    """stdin to stdout; the exit status counts, and space at line ends does not."""
    program = SandboxProgram(argv=[sys.executable, "-I", "-S", "main.py"], limits=LIMITS)

    def run(code, cases):
        files = {"main.py": code.encode()}
        return by_cases(sandbox, SandboxProgram(argv=program.argv, files=files, limits=LIMITS), cases, timeout_s=30)

    cases = [("1 2\n", "3\n"), ("5 5\n", "10")]
    assert run("print(sum(map(int, input().split())), '')", cases) == CodeResult(passed=2, tests=2)
    wrong = run("print(3)", cases)
    assert (wrong.passed, wrong.tests, wrong.reason) == (1, 2, "failed")
    assert run("print(sum(map(int, input().split())))\nraise SystemExit(1)", cases).passed == 0
    assert run("import os; os._exit(0)", cases).passed == 0
    late = by_cases(sandbox, SandboxProgram(argv=["/usr/bin/sleep", "100"], limits=LIMITS), cases, timeout_s=1)
    assert (late.passed, late.tests, late.reason) == (0, 2, "wall")
