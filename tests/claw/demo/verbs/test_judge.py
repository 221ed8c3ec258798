"""The judge of verbs: its lessons, and that it agrees with the rule through a real engine and a real gateway."""

import random
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import orjson
import pytest

from claw_r1.claw.demo.models.tiny_model import Recipe
from claw_r1.claw.demo.verbs.judge import MODEL, call_of, is_right, lesson, make_judge
from claw_r1.schemas.keys import step_key
from tests.caches import CACHE
from tests.claw.demo.judging import agreement, judge_at, kappa, moved
from tests.gateway.house import House
from tests.real_vllm import served
from tests.soak import only_in_soak

BRIEF = Recipe(steps=1, batch_dialogues=2)


def test_lessons_are_right_and_wrong_by_the_rule() -> None:
    """Half of them each; the answer is the last word, and no control token of the agent's is in the question."""
    dice = random.Random(0)
    lessons = [lesson(dice) for _ in range(400)]
    assert 0.4 < fmean(float(messages[-1]["content"]) for messages in lessons) < 0.6
    assert {message["role"] for messages in lessons for message in messages} == {"system", "user", "assistant"}
    assert all(is_right(call_of(dice, right=True)) for _ in range(50))
    assert sum(is_right(call_of(dice, right=False)) for _ in range(50)) <= 1


def test_a_judge_is_a_function_of_its_seed(tmp_path: Path) -> None:
    """Two makes of a seed are equal byte by byte, and nothing else is left beside them."""
    first, again = (make_judge(tmp_path / name, 0, BRIEF) for name in "ab")
    assert sorted(path.name for path in first.iterdir()) == sorted(path.name for path in again.iterdir())
    assert all(path.read_bytes() == (again / path.name).read_bytes() for path in first.iterdir())
    assert list((tmp_path / "a").iterdir()) == [first]


def test_kappa_is_agreement_beyond_chance() -> None:
    """1 for equal raters, 0 for independent ones; a known value between."""
    assert kappa([True, False, True], [True, False, True]) == 1
    assert kappa([True, True, False, False], [True, False, True, False]) == 0
    assert kappa(
        [True] * 20 + [True] * 5 + [False] * 10 + [False] * 15, [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    ) == pytest.approx(0.4)


MAKING = pytest.mark.timeout(1200)


@pytest.mark.vllm
@pytest.mark.slow
def test_each_verdict_has_its_evidence(vllm: str) -> None:
    """One captured call per verdict, on channel judge, held to its form by the engine: an untaught model would say anything else."""
    with House() as gateway, judge_at(gateway.url, model="policy") as scorer:
        gateway.worker(vllm, model="policy")
        opinions = [
            future.result() for future in scorer.judge([call_of(random.Random(n), right=True) for n in range(50)])
        ]
        captured = {step_key(call.group_id, call.trajectory_id, call.call_id).decode() for call in gateway.captured}
    assert {call.channel for call in gateway.captured} == {"judge"}
    for opinion in opinions:
        assert len(opinion.calls) == 1
        assert opinion.calls[0] in captured
        assert opinion.tokens > 100
        assert opinion.values[0] in (0.0, 1.0)
    assert all("structured_outputs" in orjson.loads(call.request.suffix) for call in gateway.captured)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a vLLM with the judge, which takes two minutes of one core to make."""
    with served(make_judge(CACHE / "models"), MODEL, tmp_path_factory.mktemp("judge") / "log") as url:
        yield url


@pytest.fixture
def gateway(engine: str) -> Iterator[House]:
    with House() as running:
        running.worker(engine, model=MODEL)
        yield running


@pytest.mark.vllm
@only_in_soak
@MAKING
def test_it_agrees_with_the_rule(gateway: House) -> None:
    """Kappa of at least 0.6 over 200 calls."""
    with judge_at(gateway.url) as scorer:
        assert agreement(scorer, 200, random.Random(5)) >= 0.6


@pytest.mark.vllm
@only_in_soak
@MAKING
def test_its_soft_score_is_between_its_answers(gateway: House) -> None:
    """And agrees with the rule as well; the engine's probabilities come through the gateway."""
    with judge_at(gateway.url, soft=True) as scorer:
        assert agreement(scorer, 200, random.Random(5)) >= 0.6
        dice = random.Random(6)
        soft = [future.result().values[0] for future in scorer.judge([call_of(dice, right=True) for _ in range(20)])]
    assert all(value is not None and 0 < value < 1 for value in soft)


@pytest.mark.vllm
@only_in_soak
@MAKING
def test_how_often_it_is_moved_is_measured(gateway: House) -> None:
    """Every attempt has a share; whatever it is, each question got an answer."""
    with judge_at(gateway.url) as scorer:
        shares = moved(scorer, 16, random.Random(8))
    assert len(shares) > 20
    assert all(0 <= share <= 1 for share in shares.values())
