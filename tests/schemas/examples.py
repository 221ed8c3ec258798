"""One fixed example of a few event types, with their bytes as files in golden/.

`python -m tests.schemas.examples` writes the files anew. Do that only while a schema is unreleased: the bytes of a
released version must stay readable for ever.
"""

from pathlib import Path

from schemas import codec
from schemas.arrays import pack_floats, pack_ids
from schemas.events import (
    CallCaptured,
    Edge,
    Envelope,
    Event,
    GroupClosed,
    Integrity,
    RewardAssigned,
    Sampling,
    StreamPosition,
    TensorSpec,
    Timings,
    TrajectoryCompleted,
    Usage,
    VersionSpan,
    WeightsPublished,
)

FOLDER = Path(__file__).parent / "golden"
ENVELOPE = Envelope(
    event_id="019a7b2c-0000-7000-8000-000000000001",
    occurred_at_us=1_767_225_600_000_001,
    producer="gateway/1",
    run_id="run-1",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)


def edge(text: bytes) -> Edge:
    return Edge(suffix=text, full_length=len(text), full_digest="00" * 32)


EXAMPLES: tuple[Event, ...] = (
    CallCaptured(
        envelope=ENVELOPE,
        group_id="gruppe/ä",
        trajectory_id="t-1",
        call_id="c-1",
        prompt=edge(pack_ids([1, 151_643, 7])),
        response_ids=pack_ids([5, 6]),
        response_logprobs=pack_floats([-0.25, -1.5]),
        spans=(
            VersionSpan(run_id="run-1", version=3, start=0, end=1),
            VersionSpan(run_id="run-1", version=4, start=1, end=2),
        ),
        sampling=Sampling(temperature=0.7, top_p=1.0, top_k=0, stop=("\n",)),
        finish_reason="stop",
        request=edge(b'{"messages":[]}'),
        response_body=b'{"choices":[]}',
        model_id="tiny",
        upstream="http://127.0.0.1:8000",
        tags=("a", "b"),
        status="completed",
        http_status=200,
        usage=Usage(prompt_tokens=3, completion_tokens=2),
        timings=Timings(received_us=1, dispatched_us=2, done_us=4),
        integrity=Integrity(complete=True),
    ),
    RewardAssigned(envelope=ENVELOPE, group_id="g", trajectory_id="t", value=0.5, metadata='{"why":"exact"}'),
    TrajectoryCompleted(envelope=ENVELOPE, group_id="g", trajectory_id="t", status="completed"),
    GroupClosed(envelope=ENVELOPE, group_id="g", members=("t", "u"), reason="deadline", last_progress_event_id="e-1"),
    StreamPosition(partition=3, offsets={"claw.calls": 41}, fold_version=1, updated_at_us=5),
    WeightsPublished(
        envelope=ENVELOPE,
        model_id="tiny",
        run_id="run-1",
        version=0,
        digest="ab" * 32,
        bytes_total=8,
        manifest=(TensorSpec(name="lm_head.weight", dtype="float32", shape=(1, 2)),),
        offer_url="http://127.0.0.1:1/offer",
    ),
)


def golden(event: Event) -> Path:
    """File of an example's bytes, in hexadecimal with 32 bytes per line."""
    return FOLDER / f"{type(event).__name__}.hex"


if __name__ == "__main__":
    for example in EXAMPLES:
        text = codec.encode(example).hex()
        lines = [text[at : at + 64] for at in range(0, len(text), 64)]
        golden(example).write_text("\n".join(lines) + "\n")
