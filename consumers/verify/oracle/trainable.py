"""The reasons why a captured call is not trainable, whatever stands before it."""

from claw_r1.consumers.verify.oracle.digests import sha
from claw_r1.schemas.events import CallCaptured, Edge, Sampling

POOL_WORDS = (
    *("ids_malformed", "logprobs_mismatch", "prompt_mismatch", "fold_bug"),
    *("no_call", "parent_missing", "curated_out", "too_many_judgements"),
)


def call_reasons(call: CallCaptured) -> set[str]:
    return _broken(call) | _distorted(call.sampling) | _unknown_policy(call) | _incomplete(call)


def _broken(call: CallCaptured) -> set[str]:
    count, rest = divmod(len(call.response_ids), 4)
    checks = {
        "ids_malformed": rest > 0,
        "logprobs_mismatch": len(call.response_logprobs) != len(call.response_ids),
        "prompt_mismatch": not _prompt_holds(call.prompt),
        f"status_{call.status}": call.status != "completed",
        "response_empty": count == 0,
    }
    return {reason for reason, holds in checks.items() if holds}


def _prompt_holds(prompt: Edge) -> bool:
    if prompt.keep < 0 or len(prompt.suffix) != 4 * (prompt.full_length - prompt.keep):
        return False
    return prompt.base_call_id is not None or (prompt.keep == 0 and sha(prompt.suffix) == prompt.full_digest)


def _distorted(sampling: Sampling) -> set[str]:
    """Returns how tokens were drawn from something else than the policy's own distribution."""
    checks = {
        "greedy": sampling.temperature <= 0,
        "top_p": sampling.top_p != 1.0,
        "top_k": sampling.top_k > 0,
        "min_p": sampling.min_p != 0.0,
        "penalties": (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) != (0, 0, 1),
        "constrained": sampling.constrained,
    }
    return {reason for reason, holds in checks.items() if holds}


def _unknown_policy(call: CallCaptured) -> set[str]:
    spans = call.spans
    ends = [0, *(span.end for span in spans)]
    tiled = [span.start for span in spans] == ends[:-1] and ends == sorted(set(ends))
    checks = {
        "spans_unknown": not spans,
        "spans_mismatch": bool(spans) and not (tiled and ends[-1] == len(call.response_ids) // 4),
        "policy_run_mixed": len({span.run_id for span in spans}) > 1,
    }
    return {reason for reason, holds in checks.items() if holds}


def _incomplete(call: CallCaptured) -> set[str]:
    """In the words of its capture; a reason reserved for the pool gets the prefix `missing_`."""
    words = set() if call.integrity.complete else set(call.integrity.missing) or {"incomplete"}
    return {f"missing_{word}" if word in POOL_WORDS else word for word in words}
