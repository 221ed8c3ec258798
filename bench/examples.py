"""Rows for learners, made in code. It imports nothing that a machine with torch alone has not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from claw_r1.trainer.learn.examples import Example


def example(
    ids: Sequence[int],
    at: Sequence[int],
    advantage: float,
    behaviour: float | Sequence[float],
    *,
    group: int = 0,
    member: int = 0,
    version: int = 0,
    scale: float = 1.0,
) -> Example:
    """One sequence whose tokens `at` are trained, with the same advantage. member: its index within the batch."""
    n = len(at)

    def same(value: Any, dtype: type = np.float32) -> np.ndarray:  # Any: one number, or one for each token
        return np.full(n, value, dtype=dtype)

    return Example(
        ids=np.array(ids, dtype=np.int32),
        at=np.array(at, dtype=np.int64),
        behaviour=same(behaviour),
        temperatures=same(1.0),
        advantages=same(advantage),
        versions=same(version, np.int64),
        responses=same(member, np.int64),
        trajectories=same(member, np.int64),
        rewards=same(0.0),
        weights=np.tile(np.array([1, 0, 0], dtype=np.float32), (n, 1)),
        scale=same(scale),
        group=group,
    )
