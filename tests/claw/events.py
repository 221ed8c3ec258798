"""Events for the tests of this room: whole, with only what a test cares about spelled out."""

from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import (
    BatchTrained,
    CallCaptured,
    Edge,
    Integrity,
    Sampling,
    Timings,
    TrajectoryRecord,
    Usage,
    VersionSpan,
)

ENVELOPE = envelope("test/1", run_id="r")


def trained(sequence: int, reward: float, **metrics: float) -> BatchTrained:
    shared = {"groups": 8.0, "staleness_max": 1.0, "staleness_mean": 0.5, "max_logprob_gap": 2e-6}
    return BatchTrained(
        envelope=ENVELOPE,
        run_id="r",
        sequence=sequence,
        version=sequence + 1,
        metrics={**shared, "reward": reward, **metrics},
    )


def played(
    trajectory_id: str, returned: float, *, version: int = 0, channel: str = "train", run_id: str = "r"
) -> TrajectoryRecord:
    return TrajectoryRecord(
        group_id="g",
        trajectory_id=trajectory_id,
        status="completed",
        return_total=returned,
        min_version=0,
        max_version=version,
        policy_run_id=run_id,
        channel=channel,
        ready=True,
    )


def captured(
    call_id: str = "c", *, ids: bytes = b"\x07\0\0\0", request: bytes = b"{}", reply: bytes = b"{}"
) -> CallCaptured:
    return CallCaptured(
        envelope=ENVELOPE,
        group_id="g",
        trajectory_id="t",
        call_id=call_id,
        prompt=Edge(suffix=b"\x01\0\0\0\x02\0\0\0", full_length=2, full_digest="d"),
        response_ids=ids,
        response_logprobs=b"\0\0\0\0",
        spans=(VersionSpan(run_id="r", version=3, start=0, end=1),),
        sampling=Sampling(temperature=1.0, top_p=1.0, top_k=0),
        request=Edge(suffix=request, full_length=len(request), full_digest="d"),
        response_body=reply,
        model_id="m",
        upstream="u",
        status="completed",
        http_status=200,
        usage=Usage(prompt_tokens=2, completion_tokens=1),
        timings=Timings(received_us=1, dispatched_us=2, done_us=3),
        integrity=Integrity(complete=True),
    )
