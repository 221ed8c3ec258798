"""The parameters and samples of one call of `engine.generate`, packed for the gateway.

    {"prompt": ids, "cached": 12, "sampling": {...}, "choices": [{"ids": ids, "logprobs": numbers, "spans": [["run/3", 0, 36]],
     "finish": "stop"}]}

ids: base64 of little-endian int32; numbers: of float32. Packed, 30,000 tokens are read in a millisecond.
"""

import json
from array import array
from base64 import b64encode
from copy import copy
from typing import Any

SHAPING = ("structured_outputs", "logit_bias", "allowed_token_ids", "bad_words", "min_tokens", "thinking_token_budget")
"""Fields of vLLM's SamplingParams that shape the distribution whenever they hold anything."""
PLAIN = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "max_tokens")


class Response:
    """One sampled response, as it grows."""

    __slots__ = ("finish", "ids", "logprobs", "spans")

    def __init__(self) -> None:
        self.ids, self.logprobs = array("i"), array("f")
        self.spans: list[tuple[str, int, int]] | None = None
        self.finish: str | None = None

    def as_json(self) -> dict[str, object]:
        return {
            "ids": _packed(self.ids),
            "logprobs": _packed(self.logprobs),
            "spans": self.spans or [],
            "finish": self.finish,
        }


class Generation:
    """Fed with the outputs of one call, cumulative ones excepted: vLLM's routes ask for
    deltas, or for the end alone."""

    def __init__(self, params: Any) -> None:  # Any: vLLM's SamplingParams; importing it here would load the engine
        self.params = copy(params)
        """For the engine: they ask for log-probabilities of the sampled tokens, also where `params` do not. Routes write
        theirs into replies."""
        self._is_own = params.logprobs is None and params.logprob_token_ids is None
        if self._is_own:
            self.params.logprobs = 0
            self.params.flat_logprobs = params.prompt_logprobs is None  # theirs would be written in another form
        self._prompt: list[int] = []
        self._cached: int | None = None
        self._responses: dict[int, Response] = {}

    def take(self, output: Any) -> None:  # Any: vLLM's RequestOutput
        """Takes in what this output adds. Log-probabilities that only we asked for are taken out of it."""
        self._prompt = output.prompt_token_ids or self._prompt
        self._cached = output.num_cached_tokens if output.num_cached_tokens is not None else self._cached
        for each in output.outputs:
            choice = self._responses.setdefault(each.index, Response())
            choice.ids.extend(each.token_ids)
            if each.logprobs is not None:
                choice.logprobs.extend(_of_sampled(each.token_ids, each.logprobs))
            if each.finish_reason is not None:
                choice.finish = each.finish_reason
                versions = each.weight_versions or ()
                choice.spans = [(span.version, span.start, span.end) for span in versions]
            if self._is_own:
                each.logprobs = each.cumulative_logprob = None

    def dump(self) -> bytes:
        """Returns the form that the module describes, in compact ASCII JSON."""
        fields = {
            "prompt": _packed(array("i", self._prompt)),
            "cached": self._cached,
            "sampling": self._sampling(),
            "choices": [self._responses[index].as_json() for index in sorted(self._responses)],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def _sampling(self) -> dict[str, object]:
        """Field by field what `claw_r1.schemas.events.Sampling` says."""
        params = self.params
        shaping = any(_shapes(getattr(params, name, None)) for name in SHAPING)
        return {
            **{name: getattr(params, name) for name in PLAIN},
            "top_k": max(params.top_k, 0),
            "seed": params.seed,
            "n": params.n,
            "stop": [params.stop] if isinstance(params.stop, str) else params.stop or [],
            "constrained": shaping or bool(params.extra_args),
        }


def _shapes(value: Any) -> bool:  # Any: a value of SamplingParams
    unconstrained = getattr(value, "all_constraints_none", None)
    return bool(value) and not (unconstrained is not None and unconstrained())


def _of_sampled(ids: list[int], logprobs: Any) -> list[float]:  # Any: vLLM's lists of log-probabilities, of two kinds
    if hasattr(logprobs, "start_indices"):  # flat: of each position the sampled token stands first
        return [logprobs.logprobs[at] for at in logprobs.start_indices]
    return [position[token].logprob for token, position in zip(ids, logprobs, strict=False)]


def _packed(numbers: "array[Any]") -> str:
    return b64encode(numbers.tobytes()).decode()
