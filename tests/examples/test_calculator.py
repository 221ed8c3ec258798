from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.evaluate import evaluate
from claw_r1.agentflow.settings import EvaluationPlan
from claw_r1.claw.demo.turn import Turn
from examples.calculator.demonstrations import demonstration
from examples.calculator.flow import CalculatorFlow, ExplainedCalculatorFlow
from examples.calculator.rules import CALLS_MAX, VALUE_MAX, Problem, attempt, calculate, judge, right_reply
from tests.agentflow.fake_gateway import FakeGateway

SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS)
def test_a_problem_is_a_function_of_its_seed(seed: int) -> None:
    """One or two steps, each a clause of the story; every number on the way is positive and has one or two digits."""
    problem = Problem.from_seed(seed)
    assert problem == Problem.from_seed(seed)
    assert len(problem.solution) == problem.story.count("She") in (1, 2)
    assert all(0 < int(calculate(call)) <= VALUE_MAX for call in problem.solution)


def test_problems_do_not_change_between_versions() -> None:
    """Seeds name the same problems for ever."""
    assert Problem.from_seed(5).solution == ("6/2",)
    assert Problem.from_seed(5).story == "Zoe has 6 pens. She splits them by 2. How many now?"


@given(SEEDS)
def test_the_right_calls_lead_to_the_number(seed: int) -> None:
    """Each call's answer begins the next, and the last is the result, which earns 1 and ends the episode."""
    problem, shown = Problem.from_seed(seed), ""
    play = attempt(problem)
    for index, call in enumerate(problem.solution):
        assert call.startswith(shown)
        turn = play(right_reply(problem, index))
        assert turn.reward == 0.0
        assert turn.observation is not None
        shown = turn.observation
    assert play(f"#### {shown}") == Turn(1.0, None)


@given(SEEDS, st.text(max_size=12))
def test_nothing_but_the_number_earns(seed: int, text: str) -> None:
    """Whatever else is said ends the episode with nothing, or is a call of the calculator, or has the number after ####."""
    problem = Problem.from_seed(seed)
    turn = judge(problem, 0, text)
    assert turn.reward == 0.0 or "####" in text
    assert turn.observation is None or "<<" in text
    wrong = problem.result + 1
    assert judge(problem, 0, f"#### {wrong}") == Turn(0.0, None)
    assert judge(problem, 0, f"<<1+1>> #### {problem.result}").reward == 0.0


def test_calls_are_bounded() -> None:
    """The last call of the budget ends the episode, whatever it calculates."""
    play = attempt(Problem.from_seed(0))
    assert [play("<<1+1>>").observation for _ in range(CALLS_MAX)] == ["2"] * (CALLS_MAX - 1) + [None]


@pytest.mark.parametrize(
    ("expression", "value"),
    [("6+3", "9"), ("7/2", "3.5"), ("2/3", "0.666667"), ("-(1+2)*4", "-12"), ("0.1+0.2", "0.3"), ("1/0", "error"),
     ("2**9", "error"), ("a", "error"), ("len('x')", "error"), ("6+", "error"), ("", "error"), ("1+" * 40 + "1", "error"),
     ("True+1", "error"), ("1e999", "error"), ("(" * 64, "error"), ("1e9999999999", "error")],
)  # fmt: skip
def test_the_calculator_is_exact_and_knows_nothing_else(expression: str, value: str) -> None:
    """Fractions inside, decimals outside; powers, names and long or broken expressions are an error, not an exception."""
    assert calculate(expression) == value


@given(st.text(max_size=70))
def test_the_calculator_takes_any_text(text: str) -> None:
    """No text raises."""
    assert isinstance(calculate(text), str)


@given(st.randoms())
def test_demonstrations_are_conversations_of_the_rules(rng: Any) -> None:
    """Each tool message is what the calculator says to the call before it, and the last answer is what it said last."""
    talk = demonstration(rng)
    for call, result in zip(talk[1:-1:2], talk[2::2], strict=True):
        assert calculate(call["content"].strip("<>")) == result["content"]
    assert talk[-1]["content"] == f"#### {talk[-2]['content']}"


@pytest.mark.parametrize(("flow", "first"), [(CalculatorFlow, 0), (ExplainedCalculatorFlow, 1)])
async def test_the_flow_of_a_perfect_model_earns_one(flow: type[CalculatorFlow], first: int) -> None:
    """Played through a gateway by a model that solves the story, every episode returns 1; the story comes first."""
    problems = {problem.story: problem for problem in map(Problem.from_seed, range(200))}
    problems |= {flow().task(seed)["story"]: Problem.from_seed(seed) for seed in range(3)}

    class Known(flow):  # type: ignore[misc, valid-type]  # a class that is known at run time only
        def task(self, seed: int) -> Mapping[str, Any]:
            return super().task(seed % 200)

    def solver(messages: Sequence[Mapping[str, Any]]) -> str:
        return right_reply(problems[messages[first]["content"]], len(messages[first:]) // 2)

    async with FakeGateway(solver) as fake, GatewayClient(fake.url) as client:
        result = await evaluate(Known(), client, EvaluationPlan(episodes=16))
    assert result.reward_mean == 1.0
    assert {episode.calls for episode in result.episodes} == {2, 3}
