"""Word problems with a calculator, in the notation of GSM8K: pure, a problem is a function of its seed.

    Ann has 6 eggs. She buys 3. She eats 4. How many now?
    <<6+3>>     the agent calls the calculator
    9           its answer
    <<9-4>>     and so on
    5
    #### 5      the agent's answer, which ends the episode and earns 1.0 if it is right

Half of the problems have two steps. Every number is positive and has one or two digits.
"""

import ast
import operator
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

from claw_r1.claw.demo.turn import Turn, TurnOf

CALLS_MAX = 6
EXPRESSION_CHARS_MAX = 64
VALUE_MAX = 99
PEOPLE = ("Ann", "Eve", "Ida", "May", "Sue", "Zoe")
THINGS = ("eggs", "nuts", "pens", "cups", "hats", "figs")
CLAUSES = {
    "+": ("buys {}", "finds {}"),
    "-": ("eats {}", "loses {}"),
    "*": ("needs {} times as many",),
    "/": ("splits them by {}",),
}
"""The clauses of a story for each operation."""
OPERATIONS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
CALL, FINAL = re.compile(r"<<([^<>]*)>>"), re.compile(r"####\s*(-?[\d.,]+)")


@dataclass(frozen=True, slots=True)
class Problem:
    """A story; the calls that solve it, in order; the number asked for."""

    story: str
    solution: tuple[str, ...]
    result: int

    @classmethod
    def from_seed(cls, seed: int) -> "Problem":
        """The same problem for the same seed, on every machine and Python version that we support."""
        rng = random.Random(seed)
        value = rng.randint(2, 9)
        story, solution = [f"{rng.choice(PEOPLE)} has {value} {rng.choice(THINGS)}."], []
        for _ in range(rng.choice((1, 2))):
            sign, operand = rng.choice(_possible(value))
            solution.append(f"{value}{sign}{operand}")
            story.append(f"She {rng.choice(CLAUSES[sign]).format(operand)}.")
            value = int(calculate(solution[-1]))
        return cls(" ".join([*story, "How many now?"]), tuple(solution), value)


def _possible(value: int) -> list[tuple[str, int]]:
    """Steps from here whose result is whole and within bounds; rare divisions count three times."""
    results = [(sign, n, calculate(f"{value}{sign}{n}")) for sign in CLAUSES for n in range(2, 10)]
    steps = [(sign, n) for sign, n, result in results if result.isdigit() and 0 < int(result) <= VALUE_MAX]
    return steps + 2 * [step for step in steps if step[0] == "/"]


def calculate(expression: str) -> str:
    """The value of sums, products and brackets of numbers, as short as it is exact; `error` for anything else."""
    try:
        if len(expression) > EXPRESSION_CHARS_MAX:
            return "error"
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return "error"
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"


def _value(node: ast.expr) -> Fraction:
    """Raises ValueError for what is no arithmetic: names, calls, powers."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](_value(left), _value(right))
    raise ValueError(ast.dump(node))


def judge(problem: Problem, index: int, text: str) -> Turn:
    """The outcome of the `index`-th reply (from 0): the calculator's answer, or the end."""
    call = CALL.search(text)
    if call and index < CALLS_MAX - 1:
        return Turn(reward=0.0, observation=calculate(call[1]))
    final = FINAL.search(text)
    right = final is not None and calculate(final[1].replace(",", "").rstrip(".")) == str(problem.result)
    return Turn(reward=float(right and not call), observation=None)


def attempt(problem: Problem) -> TurnOf:
    """One episode."""
    index = count()
    return lambda text: judge(problem, next(index), text)


def right_reply(problem: Problem, index: int) -> str:
    """Returns the reply that solves the problem: the calls in order, then the number."""
    return f"<<{problem.solution[index]}>>" if index < len(problem.solution) else f"#### {problem.result}"
