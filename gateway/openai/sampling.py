"""Effective sampling parameters: what the engine used, not what the client wrote.

Holds for vLLM started with `--generation-config vllm`, where a parameter that the client leaves out has vLLM's own
default and never one from the model's directory. Source of defaults and clamps: vLLM 0.32, `ChatCompletionRequest`,
`CompletionRequest` and `SamplingParams.__post_init__`.
"""

import math
from collections.abc import Mapping

from claw_r1.gateway.errors import InvalidRequest
from claw_r1.schemas.events import Sampling
from claw_r1.schemas.json_values import Json

GREEDY_BELOW = 1e-5
TEMPERATURE_MIN = 1e-2
"""Lowest temperature that is not greedy: vLLM raises smaller ones to it."""
N_MAX = 1024
INT64 = 1 << 63
CHAT_LIMITS = ("max_completion_tokens", "max_tokens")
SHAPING = frozenset(
    (
        "logit_bias",
        "bad_words",
        "allowed_token_ids",
        "min_tokens",
        "structured_outputs",
        "thinking_token_budget",
        "use_beam_search",
        "watermarking",
        "vllm_xargs",
        "logits_processors",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "functions",
    )
)
"""Fields that shape the distribution whenever they hold anything."""


def effective(
    body: Mapping[str, Json], *, limits: tuple[str, ...] = CHAT_LIMITS, limit_default: int | None = None
) -> Sampling:
    """Sampling parameters of a request. Raises InvalidRequest for a value that no engine takes.

    limits: fields that bound the response, of which the first that is set counts. limit_default: without any; in tokens.
    """
    temperature = _number(body, "temperature", 1.0)
    greedy = temperature < GREEDY_BELOW
    seed = _integer(body, "seed", None)
    return Sampling(
        temperature=temperature if greedy else max(temperature, TEMPERATURE_MIN),
        top_p=1.0 if greedy else _number(body, "top_p", 1.0),
        top_k=0 if greedy else max(_integer(body, "top_k", 0) or 0, 0),
        min_p=0.0 if greedy else _number(body, "min_p", 0.0),
        presence_penalty=_number(body, "presence_penalty", 0.0),
        frequency_penalty=_number(body, "frequency_penalty", 0.0),
        repetition_penalty=_number(body, "repetition_penalty", 1.0),
        max_tokens=_max_tokens(body, limits, limit_default),
        seed=None if seed == -1 else seed,
        n=_choices(body),
        stop=_stop(body),
        constrained=constrained(body),
    )


def constrained(body: Mapping[str, Json]) -> bool:
    """Returns whether a grammar, a forced tool, a bias or a ban shaped the distribution that tokens were sampled
    from."""
    shaped = not SHAPING.isdisjoint(body) and any(body.get(field) for field in SHAPING)
    return shaped or _formatted(body) or _forced_tool(body)


def _formatted(body: Mapping[str, Json]) -> bool:
    form = body.get("response_format")
    return bool(form) and not (isinstance(form, dict) and form.get("type") == "text")


def _forced_tool(body: Mapping[str, Json]) -> bool:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if choice == "none" or not isinstance(tools, list):
        return False
    return (choice not in (None, "auto")) or any(_strict(tool) for tool in tools)


def _strict(tool: Json) -> bool:
    # A strict function has its arguments enforced by a grammar, even when the model chooses freely whether to call it.
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and bool(function.get("strict"))


def _choices(body: Mapping[str, Json]) -> int:
    count = _integer(body, "n", 1)
    if count is None or not 1 <= count <= N_MAX:
        raise InvalidRequest(f"n must be between 1 and {N_MAX}", param="n")
    return count


def _max_tokens(body: Mapping[str, Json], limits: tuple[str, ...], default: int | None) -> int | None:
    field = next((name for name in limits if body.get(name) is not None), limits[-1])
    limit = _integer(body, field, default)
    if limit is not None and not 0 <= limit < 1 << 31:
        raise InvalidRequest("max_tokens must fit in 31 bits", param="max_tokens")
    return limit


def _stop(body: Mapping[str, Json]) -> tuple[str, ...]:
    stop = body.get("stop")
    if stop is None:
        return ()
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        raise InvalidRequest("stop must be a string or a list of strings", param="stop")
    return tuple(stops)


def _number(body: Mapping[str, Json], field: str, default: float) -> float:
    value = body.get(field)
    if value is None:
        return default
    try:
        number = float(value)  # engines take "0.7" for 0.7, so it is taken for that here, too
    except (TypeError, ValueError) as broken:
        raise InvalidRequest(f"{field} must be a number", param=field) from broken
    if not math.isfinite(number):
        raise InvalidRequest(f"{field} must be finite", param=field)
    return number


def _integer(body: Mapping[str, Json], field: str, default: int | None) -> int | None:
    value = body.get(field)
    if value is None:
        return default
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as broken:
        raise InvalidRequest(f"{field} must be an integer", param=field) from broken
    if not -INT64 <= number < INT64 or (isinstance(value, float) and number != value):
        raise InvalidRequest(f"{field} must be an integer of 64 bits", param=field)
    return number
