"""What a worker makes of the scores of an engine that it cannot look into."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from claw_r1.rollout.errors import EngineLost
from claw_r1.rollout.probe import FP32_GAP_MAX, HALF_GAP_MAX, gap_max, probe
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import TensorSpec, WeightsPublished

IDS = (5, 7, 9)
RIGHT = [-1.0, -2.0]


@dataclass
class Engine:
    """Scores a prompt as told, or has no room for it."""

    logprobs: list[float] | None

    async def prompt_logprobs(self, ids: Sequence[int]) -> list[float]:
        """Of each id but the first."""
        if self.logprobs is None:
            raise TimeoutError
        return self.logprobs[: len(ids) - 1]


def settings(**changes: object) -> RolloutSettings:
    return RolloutSettings(model=Path("m"), model_id="m", device="cpu", **changes)  # type: ignore[arg-type]  # fields by name, of any type


def version(dtype: str = "float32", ids: tuple[int, ...] = IDS, expected: Sequence[float] = RIGHT) -> WeightsPublished:
    return WeightsPublished(
        envelope=envelope("trainer/test", run_id="r"),
        model_id="m",
        run_id="r",
        version=3,
        digest="",
        bytes_total=0,
        manifest=(TensorSpec(name="w", dtype=dtype, shape=(1,)),),
        probe_ids=struct.pack(f"<{len(ids)}i", *ids),
        probe_logprobs=struct.pack(f"<{len(expected)}f", *expected),
    )


async def test_the_largest_difference_is_reported_and_bounded() -> None:
    """Within the bound it stands in the report, beyond it the engine is lost, and the error names the version and the gap."""
    near = await probe(Engine([-1.0, -2.0005]), settings(), version())
    assert near["probe_gap"] == pytest.approx(0.0005)
    for wrong in ([-1.0, -2.002], [float("nan"), -2.0]):
        with pytest.raises(EngineLost, match="does not serve r/3"):
            await probe(Engine(wrong), settings(), version())
    assert "probe_gap" in await probe(Engine([-1.0, -2.002]), settings(probe_gap_max=0.01), version())


async def test_a_busy_engine_is_no_wrong_one() -> None:
    """It keeps its traffic; the report has no gap."""
    assert set(await probe(Engine(None), settings(), version())) == {"probe"}


async def test_what_cannot_be_compared_is_not() -> None:
    """A version without a probe gives nothing; a worker of short prompts compares as much as it can take."""
    assert await probe(Engine(None), settings(), version(ids=(), expected=())) == {}
    long, expected = tuple(range(40)), [-1.0] * 39
    assert "probe_gap" in await probe(
        Engine(expected), settings(max_model_len=16), version(ids=long, expected=expected)
    )


@pytest.mark.parametrize(
    ("dtype", "trained", "bound"),
    [
        (None, "float32", FP32_GAP_MAX),
        ("float32", "float32", FP32_GAP_MAX),
        ("bfloat16", "float32", HALF_GAP_MAX),
        (None, "bfloat16", HALF_GAP_MAX),
    ],
)
def test_the_coarser_side_makes_the_bound(dtype: str | None, trained: str, bound: float) -> None:
    """An engine in bfloat16 is no worse for it, whatever the trainer computes in, and the other way round."""
    assert gap_max(settings(dtype=dtype), version(trained)) == bound
