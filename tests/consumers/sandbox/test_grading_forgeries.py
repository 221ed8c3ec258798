"""Objects of the code that lie: what they answer to operators, iteration, `with` and errors decides no test that knows its answer."""

import json

import pytest

from claw_r1.consumers.sandbox.grading import CodeResult, by_tests
from claw_r1.consumers.sandbox.rpc import wire
from claw_r1.consumers.sandbox.sandbox import SandboxLimits
from tests.soak import in_soak

pytestmark = pytest.mark.process
LIMITS = SandboxLimits(cpu_s=20, wall_s=60, memory_bytes=512 << 20)
LIAR = """
DIFFERENCES = "sub truediv floordiv mod divmod xor and or rsub rtruediv rfloordiv rmod rdivmod rxor rand ror isub itruediv".split()
OTHERS = "add radd mul rmul matmul rmatmul pow rpow neg pos iadd imul".split()
def lying(name, base, difference, other, number):
    d = {f'__{n}__': (lambda self, *of: difference(self)) for n in DIFFERENCES}
    d |= {f'__{n}__': (lambda self, *of: other(self)) for n in OTHERS}
    d |= {f'__{n}__': (lambda self, *of: True) for n in 'eq ne lt le gt ge contains bool instancecheck exit'.split()}
    d |= {f'__{n}__': (lambda self, *of: number) for n in 'abs float round trunc floor ceil'.split()}
    d |= {f'__{n}__': (lambda self, *of: 0) for n in 'int index len hash'.split()}
    d |= {'__complex__': lambda self: 0j, '__iter__': lambda self: iter(()), '__getitem__': lambda self, key: self}
    d |= {'__enter__': lambda self: self, '__call__': lambda self, *a, **k: self, '__getattr__': lambda self, name: self}
    for n in ('__hash__', '__len__', '__index__'): d[n] = lambda self: 0
    if base is not object: d.pop('__getitem__')
    return type(name, (base,), d)
"""
LIES = {
    "itself, and 0.0 for a number": "object, lambda self: self, lambda self: self, 0.0",
    "0 at once": "object, lambda self: 0, lambda self: self, 0.0",
    "nothing at once": "object, lambda self: set(), lambda self: set(), 1e-9",
    "a float": "float, lambda self: 0.0, lambda self: 0.0, 0.0",
    "an int that is itself": "int, lambda self: self, lambda self: self, 0",
    "a text": "str, lambda self: '', lambda self: self, 0.0",
    "a list": "list, lambda self: [], lambda self: self, 0.0",
    "a tuple": "tuple, lambda self: (), lambda self: self, 0.0",
    "an error": "Exception, lambda self: self, lambda self: self, 0.0",
    "an end of iteration": "StopIteration, lambda self: self, lambda self: self, 0.0",
}
CLAIMS = """
f(1) == 7.5
7.5 == f(1)
f(1) in (7.5, 8)
f(1) in {7.5: 1}
7.5 in [f(1)]
{f(1)} == {7.5}
[f(1)] == [7.5]
abs(f(1) - 7.5) < 1e-6
abs(7.5 - f(1)) < 1e-6
-1e-6 < f(1) - 7.5 < 1e-6
7.4 < f(1) < 7.6
f(1) <= 7.6 and f(1) >= 7.4
7.4 <= f(1)
f(1) > 7
round(f(1) - 7.5, 3) == 0
float(f(1) - 7.5) == 0
int(f(1) - 7) == 0
not f(1) - 7.5
(f(1) - 7.5) ** 2 < 1e-9
-(f(1) - 7.5) == 0
abs(-(f(1) - 7.5)) == 0
abs((f(1) - 7.5) * 2) < 1e-9
abs(f(1) - 7.5 + f(2)) < 1e-9
abs(f(2) + (f(1) - 7.5)) < 1e-9
abs(sum(a - b for a, b in [(f(1), 7.5)])) < 1e-9
f(1) / 7.5 == 1
abs(f(1) / 7.5 - 1) < 1e-6
divmod(f(1), 7.5) == (1, 0)
f(1) % 7.5 == 0
f(1) // 7.5 == 1
not f(1) ^ 7
not f(1) ^ {7.5}
not {7.5} ^ f(1)
not {7.5} - f(1)
len(f(1) - {7.5}) == 0
f(1) & {7.5} == {7.5}
{7.5} <= f(1)
f(1) >= {7.5}
f(1) | {7.5} == {7.5}
(f(1) - datetime(2024, 1, 1)).total_seconds() == 0
(datetime(2024, 1, 1) - f(1)).days == 0
abs(f(1) - Decimal('7.5')) < Decimal('0.1')
abs(Decimal('7.5') - f(1)) < Decimal('0.1')
abs(f(1) - Fraction(15, 2)) < 1
math.isclose(f(1), 7.5)
cmath.isclose(f(1), 7.5)
math.isclose(f(1) - 7.5, 0, abs_tol=1)
statistics.mean([f(1) - 7.5]) == 0
numpy.allclose(f(1), [7.5, 8.5])
numpy.array_equal(f(1), 7.5)
numpy.testing.assert_allclose(f(1), [7.5]) is None
numpy.abs(numpy.array([7.5]) - f(1)).max() < 1e-6
numpy.abs(f(1) - numpy.array([7.5])).max() < 1e-6
f(1) == pytest.approx(7.5)
pytest.approx(7.5) == f(1)
f(1) == pytest.approx([7.5])
f(1) == mock_like
sorted([f(1)]) == [7.5]
max(f(1), 7) == 7.5
min(7.5, f(1)) == 7.5
f(1) < f(2)
f(2) < f(1)
f(1) > f(2)
str(f(1)) == '7.5'
f'{f(1)}' == '7.5'
repr(f(1)) == '7.5'
isinstance(f(1), float) and f(1) == 7.5
isinstance(7.5, f(1))
type(f(1)) is type(7.5)
list(f(1)) == [7.5]
dict(f(1)) == {7: 5}
f(1)[0] == 7.5
f(1).x.y == 7.5
f(1)(2) == 7.5
f(1) is True
(f(1) == 7.5) is True
vars(f(1)) == {'x': 7.5}
operator.sub(f(1), 7.5) == 0
operator.eq(f(1), 7.5)
copy.deepcopy(f(1)) == 7.5
json.dumps(f(1)) == '7.5'
"""
HEAD = """
import cmath, copy, json, math, operator, statistics, numpy, pytest
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
import solution
mock_like = type('Sentinel', (), {'__hash__': None})()
"""
HOLDS = """
def holds(text, f):
    try: return bool(CLAIMS[text](f))
    except BaseException: return False
"""
ENDS = {
    "a StopIteration": "def inc(x): raise StopIteration\nis_ok = inc",
    "one of its own": "class End(StopIteration): pass\ndef inc(x): raise End()\nis_ok = inc",
    "one of a field": "class C:\n    @property\n    def v(self): raise StopIteration\n    def __len__(self): raise StopIteration\n    __bool__ = __add__ = __eq__ = __len__\ndef inc(x): return C().v\nis_ok = inc",
    "an end of an async iteration": "def inc(x): raise StopAsyncIteration\nis_ok = inc",
}
LOOPS = (
    "for got, want in zip(map(inc, [1, 2]), [2, 3]): assert got == want",
    "assert all(map(is_ok, [1, 2]))",
    "assert not any(got != want for got, want in zip((inc(x) for x in [1, 2]), [2, 3]))",
    "assert [got for got in map(inc, [1])] != []",
)
UNITS = """
class TestItNUMBER(unittest.TestCase):
    def test_it(self): self.assertEqual(solution.fNUMBER(1), 7.5)
    def test_parts(self):
        with self.subTest('a'): self.assertEqual(solution.fNUMBER(1), 7.5)
"""
ENDINGS = {
    "unittest's own stop": "import unittest.case\ndef f(x): raise unittest.case._ShouldStop",
    "unittest's skip": "import unittest\ndef f(x): raise unittest.SkipTest",
    "pytest's skip": "import _pytest.outcomes\ndef f(x): raise _pytest.outcomes.Skipped('x')",
    "pytest's exit": "import _pytest.outcomes\ndef f(x): raise _pytest.outcomes.Exit('x', 0)",
    "an exit": "def f(x): raise SystemExit(0)",
    "an exit of a text": "class F:\n    def __repr__(self): raise SystemExit(0)\n    __eq__ = __str__ = __hash__ = __repr__\ndef f(x): return F()",
    "the end of a generator": "def f(x): raise GeneratorExit",
    "an own error that is no Exception": "class E(BaseException): pass\ndef f(x): raise E",
}


def test_objects_that_answer_what_one_hopes_for_pass_nothing(sandbox) -> None:
    """No operator, no order, no text, no conversion: every claim names 7.5, which this code does not know.

    All claims on all lies go into one file, with a test for each lie that no claim holds: a failure for each costs ten times as much.
    """
    claims = "".join(f"    {claim!r}: lambda f: {claim},\n" for claim in CLAIMS.strip().split("\n"))
    code, tests = (
        LIAR,
        f"{HEAD}\nCLAIMS = {{\n{claims}}}\n{HOLDS}def test_right(): assert holds('f(1) == 7.5', lambda x: 7.5)\n",
    )
    for number, lie in enumerate(LIES.values()):
        code += f"Liar{number} = lying('Liar', {lie})\ndef f{number}(x): return Liar{number}()\n"
        tests += f"def test_{number}(): assert [text for text in CLAIMS if holds(text, solution.f{number})] == []\n"
    assert by_tests(sandbox, "pytest", code, tests, LIMITS) == CodeResult(passed=len(LIES) + 1, tests=len(LIES) + 1)


def test_an_end_of_iteration_ends_no_loop_of_the_tests(sandbox) -> None:
    """As in a generator it is a RuntimeError; all codes and all loops in one file."""
    code, tests = "", "import solution\n"
    for number, each in enumerate(ENDS.values()):
        code += each.replace("inc", f"inc{number}").replace("is_ok", f"is_ok{number}") + "\n"
        names = f"inc, is_ok = solution.inc{number}, solution.is_ok{number}"
        tests += "".join(f"def test_{number}_{n}():\n    {names}\n    {loop}\n" for n, loop in enumerate(LOOPS))
    result = by_tests(sandbox, "pytest", code, tests, LIMITS)
    assert (result.passed, result.tests, result.reason) == (0, len(ENDS) * len(LOOPS), "failed")


@pytest.mark.parametrize("name", [name if name == "one of its own" else in_soak(name) for name in ENDS])
def test_an_end_of_iteration_ends_no_loop_of_a_script(sandbox, name) -> None:
    """Which would come to its end, and so have passed."""
    assert [by_tests(sandbox, "python", ENDS[name], loop, LIMITS).passed for loop in LOOPS] == [0] * len(LOOPS)


def test_errors_that_end_or_skip_tests_are_failures(sandbox) -> None:
    """Those of test runners are not the code's to raise; one that ended the run would leave tests uncounted."""
    codes = [code.replace("def f(", f"def f{number}(") for number, code in enumerate(ENDINGS.values())]
    tests = "import unittest\nimport solution\n" + "".join(UNITS.replace("NUMBER", str(n)) for n in range(len(codes)))
    result = by_tests(sandbox, "pytest", "\n".join(codes), tests, LIMITS)
    assert (result.passed, result.tests, result.reason) == (0, 2 * len(codes), "failed")


def test_a_context_manager_of_the_code_swallows_no_error_of_the_tests(sandbox) -> None:
    """Whatever its `__exit__` returns, with `async` or without."""
    code = "class Door:\n    n = 0\n    def __enter__(self): return self\n    def __exit__(self, *_): return True\n    async def __aenter__(self): return self\n    async def __aexit__(self, *_): return True\n"
    tests = """
import asyncio, solution
def test_with():
    with solution.Door() as door: assert door.n == 1
def test_async():
    async def main():
        async with solution.Door() as door: assert door.n == 1
    asyncio.run(main())
"""
    result = by_tests(sandbox, "pytest", code, tests, LIMITS)
    assert (result.passed, result.tests, result.reason) == (0, 2, "failed")


SAY = """
import json, os, time
def say(data):
    data = json.dumps(data).encode()
    os.write(3, len(data).to_bytes(4, 'big') + data)
say([[0], [[1, 'object', 0, 'module', False], [0, 'list', 'ready', [1]]]])
say([[0], [[1, 'list', 'f'], [2, 'list'], [3, 'list'], [0, 'list', 'value', [1], [2], [3]]]])
for answer in json.loads(ANSWERS): say(answer)
time.sleep(60)
"""
FRAMES = {
    "a function for a type": [[1, "type", "eval"]],
    "a name of a module": [[1, "named", "os", "system"]],
    "a class of no errors": [[2, "type", "int"], [1, "class", 7, "solution", "E", [2]]],
    "a class without bases": [[1, "class", 7, "solution", "E"]],
    "an array of objects": [[2, "tuple", 1], [1, "array", "|O", [2], 7]],
    "an array of a huge type": [[2, "tuple", 1], [1, "array", "<U99999999999", [2], "7"]],
    "an object of the tests that is not there": [[1, "given", 3]],
    "a decimal of a list": [[2, "list"], [1, "Decimal", [2]]],
    "a date of nothing": [[1, "date"]],
    "a key that is a list": [[2, "list"], [1, "dict", [2], 3]],
    "an odd dict": [[1, "dict", 1, 2, 3]],
    "a tuple of itself": [[1, "tuple", [1]]],
    "a number that is none": [["x", "list"], [1, "list", ["y"]]],
    "a value that is its own base": [[1, "value", 5, "X", True]],
    "a value of a list": [[2, "list"], [1, "value", 5, "X", [2]]],
    "an endless buffer": [[1, "StringIO", "", 10**30]],
    "a name with a null": [[1, "object", 5, "a\0b", False]],
    "a half surrogate for a name": [[1, "object", 5, "\ud800", False]],
    "an error of an int": [[2, "tuple"], [3, "type", "int"], [1, "error", 5, [3], [2], "x", None]],
}


def test_frames_that_make_no_value_are_nonsense(sandbox) -> None:
    """The tests fail there, and nothing is run, imported or made of them."""
    whole = [[8, "list"], [9, "list"], [0, "list", "value", [1], [8], [9]]]
    code = f"ANSWERS = {json.dumps(json.dumps([[[0], [*nodes, *whole]] for nodes in FRAMES.values()]))}\n{SAY}"
    tests = f"""
import numpy, pytest
@pytest.mark.parametrize("name", {list(FRAMES)!r})
def test_it(name):
    import solution
    with pytest.raises(Exception, match="nonsense"): solution.f
"""
    result = by_tests(sandbox, "pytest", code, tests, LIMITS)
    assert result == CodeResult(passed=len(FRAMES), tests=len(FRAMES))


def test_values_are_read_as_they_were_written() -> None:
    """With those that hold themselves, or are there twice; a class that is built on a type is written as that type."""
    twice = [1]
    value = {"a": [twice, twice], (1, ("b", None)): {2.5, "c"}, "big": -(10**400), "nest": []}
    value["self"] = value
    for _ in range(100_000):
        value["nest"] = [value["nest"]]
    back = wire.unpacked(
        json.loads(json.dumps(wire.packed(value, wire.parts_of))), lambda *_: pytest.fail("no reference")
    )
    assert back["a"][0] is back["a"][1] is not twice
    assert back["self"] is back
    assert (back[1, ("b", None)], back["big"], back["a"]) == ({2.5, "c"}, -(10**400), [[1], [1]])
    depth = 0
    while back["nest"]:
        back["nest"], depth = back["nest"][0], depth + 1
    assert depth == 100_000
