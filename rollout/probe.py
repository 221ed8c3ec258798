"""The probe whether an engine serves the weights that it loaded: it scores a few token ids as the trainer did with
exactly these.

The digest shows that the right bytes arrived, not that the engine computes with all of them: a packed head, a fused tensor
or a rank of it may stay behind. Nothing else would notice before training goes wrong.
"""

import math
import struct
import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from claw_r1.rollout.errors import EngineLost
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.schemas.events import WeightsPublished
from claw_r1.schemas.http import version_label

log = structlog.get_logger()

FP32_GAP_MAX = 1e-3
HALF_GAP_MAX = 0.5
"""The largest gap where trainer or engine computes in 16 bits: logits of 16 and more are 0.125 apart in bfloat16, and
each side rounds its own."""


class PromptScorer(Protocol):
    """claw_r1.rollout.engine_client over HTTP, or a fake."""

    async def prompt_logprobs(self, ids: Sequence[int]) -> list[float]:
        """Returns the log-probability of each id but the first, at temperature 1. Raises EngineLost, and TimeoutError
        while it has no room for a prompt."""
        ...


async def probe(engine: PromptScorer, settings: RolloutSettings, target: WeightsPublished) -> dict[str, float]:
    """`probe`: milliseconds; `probe_gap`: the largest difference of a log-probability. Empty: the version brings no probe.

    An engine too busy to answer in time has no gap. Raises EngineLost where the gap is above the bound.
    """
    ids = tuple(id_ for (id_,) in struct.iter_unpack("<i", _whole(target.probe_ids)))
    expected = tuple(logprob for (logprob,) in struct.iter_unpack("<f", _whole(target.probe_logprobs)))
    if len(expected) != len(ids) - 1:
        return {}
    if settings.max_model_len is not None:
        ids = ids[: settings.max_model_len - 1]
    if len(ids) < 2:
        return {}
    began = time.monotonic()
    try:
        logprobs = await engine.prompt_logprobs(ids)
    except TimeoutError:
        log.warning(
            "weights_not_probed", version=target.version, why="the engine is too busy to score the probe in time"
        )
        return {"probe": _ms_since(began)}
    gaps = [abs(ours - theirs) for ours, theirs in zip(logprobs, expected[: len(ids) - 1], strict=True)]
    gap = math.inf if any(map(math.isnan, gaps)) else max(gaps)
    if gap > (bound := gap_max(settings, target)):
        raise EngineLost(
            f"the engine does not serve {version_label(target.run_id, target.version)}, which it loaded: a log-probability of "
            f"its probe is {gap:.3g} from the trainer's, at most {bound:g} is right (probe_gap_max)"
        )
    return {"probe": _ms_since(began), "probe_gap": gap}


def _whole(content: bytes) -> bytes:
    """Without the bytes of a number that is cut: whatever an event says, it must not end the worker."""
    return content[: len(content) // 4 * 4]


def gap_max(settings: RolloutSettings, target: WeightsPublished) -> float:
    """By the coarser of the number types in which trainer and engine compute, unless the settings say it."""
    if settings.probe_gap_max is not None:
        return settings.probe_gap_max
    is_engine_fp32 = settings.dtype in ("float32", "float") or (settings.dtype is None and settings.runs_on_cpu)
    is_trainer_fp32 = all(tensor.dtype in ("float32", "float64") for tensor in target.manifest)
    return FP32_GAP_MAX if is_engine_fp32 and is_trainer_fp32 else HALF_GAP_MAX


def _ms_since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)
