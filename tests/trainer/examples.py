"""Examples made by hand."""

from collections.abc import Sequence

import numpy as np

from claw_r1.trainer.learn.examples import Example


def example(
    prompt: Sequence[int],
    response: Sequence[int],
    *,
    logprob: float = -3.4,
    temperature: float = 1.0,
    advantage: float = 1.0,
    version: int = 0,
    index: int = 0,
) -> Example:
    """One call: everything of its response is trained."""
    n = len(response)

    def same(value: float, dtype: type = np.float32) -> np.ndarray:
        return np.full(n, value, dtype=dtype)

    return Example(
        ids=np.array([*prompt, *response], dtype=np.int32),
        at=np.arange(len(prompt), len(prompt) + n),
        behaviour=same(logprob),
        temperatures=same(temperature),
        advantages=same(advantage),
        versions=same(version, np.int64),
        responses=same(index, np.int64),
        trajectories=same(index, np.int64),
        rewards=same(0.0),
        weights=np.tile(np.array([1, 0, 1], dtype=np.float32), (n, 1)),
        scale=same(1.0),
        group=index,
    )
