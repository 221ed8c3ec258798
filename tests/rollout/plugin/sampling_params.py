"""Sampling parameters as an engine has them."""

from types import SimpleNamespace
from typing import Any

from claw_r1.rollout.plugin.generation import PLAIN, SHAPING


def params(**more: Any) -> SimpleNamespace:
    """Sampling parameters as vLLM's, of which none shapes anything."""
    named = dict.fromkeys(("logprobs", "prompt_logprobs", "logprob_token_ids", "seed", "stop", "extra_args", *SHAPING))
    plain = {**dict.fromkeys(PLAIN, 1.0), "max_tokens": 5, "top_k": 0, "n": 1, "flat_logprobs": False}
    return SimpleNamespace(**{**named, **plain, **more})
