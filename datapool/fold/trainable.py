"""The decision whether a step may be trained on, with each reason against it as a stable code.

A reason is decided by the capture alone (`capture_flaws`, sizes that the small record no longer shows) or from the
record and its neighbours (`reasons`). Words of `Integrity.missing` are passed through; a word reserved for the fold
is shown as `missing_<word>`, since states are read back from these.
"""

from collections.abc import Collection, Iterator

from claw_r1.datapool.digests import row_digest
from claw_r1.datapool.fold import bounds
from claw_r1.datapool.fold.state import StepState
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.events import CallCaptured, Edge, Sampling, StepRecord, VersionSpan

IDS_MALFORMED = "ids_malformed"
LOGPROBS_MISMATCH = "logprobs_mismatch"
PROMPT_MISMATCH = "prompt_mismatch"
CAPTURE_FLAWS = frozenset({IDS_MALFORMED, LOGPROBS_MISMATCH, PROMPT_MISMATCH})
ID_FLAWS = frozenset({IDS_MALFORMED, PROMPT_MISMATCH})
"""Nothing can be put together from such a call."""
FOLD_BUG = "fold_bug"
NO_CALL = "no_call"
PARENT_MISSING = "parent_missing"
CURATED_OUT = "curated_out"
TOO_MANY_JUDGEMENTS = "too_many_judgements"
"""Earlier ones are forgotten, among them perhaps the one that kept the step out of training."""
OWN_WORDS = CAPTURE_FLAWS | {FOLD_BUG, NO_CALL, PARENT_MISSING, CURATED_OUT, TOO_MANY_JUDGEMENTS}


def capture_flaws(call: CallCaptured) -> tuple[str, ...]:
    """Contradictions within a capture, sorted."""
    flaws = []
    if len(call.response_ids) % ITEM_BYTES:
        flaws.append(IDS_MALFORMED)
    if len(call.response_logprobs) != len(call.response_ids):
        flaws.append(LOGPROBS_MISMATCH)
    if not _edge_holds(call.prompt):
        flaws.append(PROMPT_MISMATCH)
    return tuple(flaws)


def _edge_holds(edge: Edge) -> bool:
    if len(edge.suffix) != (edge.full_length - edge.keep) * ITEM_BYTES:
        return False
    if edge.base_call_id is not None:
        return edge.keep >= 0
    return edge.keep == 0 and row_digest(edge.suffix) == edge.full_digest


def reasons(step: StepState, chain_known: bool) -> tuple[str, ...]:
    """Returns why a step is not trainable, sorted; empty when it is. chain_known: every prompt base up to a full one is
    there."""
    words = set(_reasons(step, chain_known))
    return tuple(sorted(words)) if words else ()


def _reasons(step: StepState, chain_known: bool) -> Iterator[str]:
    if step.buggy:
        yield FOLD_BUG
    if step.curation is not None and step.curation.trainable is False:
        yield CURATED_OUT
    if step.curation is not None and len(step.curation.judgements) >= bounds.JUDGEMENTS_MAX:
        yield TOO_MANY_JUDGEMENTS
    if step.capture is None:
        yield NO_CALL
        return
    yield from step.capture.reasons
    yield from _record_reasons(step.capture)
    if not chain_known:
        yield PARENT_MISSING


def _record_reasons(record: StepRecord) -> Iterator[str]:
    if record.integrity is None or not record.integrity.complete:
        words = (record.integrity and record.integrity.missing) or ("incomplete",)
        yield from (f"missing_{word}" if word in OWN_WORDS else word for word in words)
    if record.status != "completed":
        yield f"status_{record.status}"
    if record.response_length == 0:
        yield "response_empty"
    if record.sampling is not None:
        yield from sampling_reasons(record.sampling)
    yield from _span_reasons(record.spans, record.response_length)


def sampling_reasons(sampling: Sampling) -> Iterator[str]:
    """Returns why log-probabilities under these parameters are not those of the policy that is trained."""
    if not sampling.temperature > 0:
        yield "greedy"
    if sampling.top_p != 1:
        yield "top_p"
    if sampling.top_k > 0:
        yield "top_k"
    if sampling.min_p != 0:
        yield "min_p"
    if (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) != (0, 0, 1):
        yield "penalties"
    if sampling.constrained:
        yield "constrained"


def _span_reasons(spans: Collection[VersionSpan], length: int) -> Iterator[str]:
    if not spans:
        yield "spans_unknown"
        return
    if not _tiles(spans, length):
        yield "spans_mismatch"
    if len({span.run_id for span in spans}) > 1:
        yield "policy_run_mixed"


def _tiles(spans: Collection[VersionSpan], length: int) -> bool:
    end = 0
    for span in spans:
        if span.start != end or span.end <= span.start:
            return False
        end = span.end
    return end == length
