"""Right code keeps its point: what its tests say in one process, they say from another."""

import sys
from textwrap import indent
from types import ModuleType

import pytest

from claw_r1.consumers.sandbox.grading import CodeResult, by_tests
from claw_r1.consumers.sandbox.sandbox import SandboxLimits
from tests.consumers.sandbox.right_programs import PROGRAMS
from tests.soak import in_soak

pytestmark = pytest.mark.process
LIMITS = SandboxLimits(cpu_s=30, wall_s=60, memory_bytes=1 << 30)


def functions(names) -> str:
    """A test function of each program."""
    bodies = [indent(PROGRAMS[name][1], "    ") for name in names]
    return "\n".join(f"def test_{number}():\n{body}" for number, body in enumerate(bodies))


def lost(sandbox, kind, names) -> list[str]:
    """Those that do not pass: tried together, and by halves where they do not pass together."""
    code = "\n".join(PROGRAMS[name][0] for name in names)
    tests = functions(names)
    if kind == "pytest":
        tests, whole = f"from solution import *\n{tests}", CodeResult(passed=len(names), tests=len(names))
    else:
        calls = "\n".join(f"test_{number}()" for number in range(len(names)))
        tests, whole = f"{tests}\n{calls}\n", CodeResult(passed=1, tests=1)
    result = by_tests(sandbox, kind, code, tests, LIMITS)
    if result == whole:
        return []
    if len(names) == 1:
        return [f"{names[0]}: {result.detail}"]
    half = len(names) // 2
    return lost(sandbox, kind, names[:half]) + lost(sandbox, kind, names[half:])


def test_the_programs_are_right(monkeypatch) -> None:
    """In plain Python, in one process; there are 60 and more."""
    assert len(PROGRAMS) >= 60
    for name, (code, test) in PROGRAMS.items():
        module = ModuleType("solution")
        monkeypatch.setitem(sys.modules, "solution", module)
        exec(code, module.__dict__)
        exec(test, dict(module.__dict__))
        assert name


@pytest.mark.parametrize("kind", ["pytest", in_soak("python")])
def test_right_code_keeps_its_point(sandbox, kind) -> None:
    """Whatever kinds of values, errors and operators its tests meet."""
    assert lost(sandbox, kind, list(PROGRAMS)) == []
