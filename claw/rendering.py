"""Events as a person at a terminal reads them."""

from claw_r1.schemas import arrays
from claw_r1.schemas.events import CallCaptured, Event
from claw_r1.schemas.http import version_label


def one_line(event: Event) -> str:
    """An event on one line: its type and what tells it from others."""
    parts = [f"{name}={value}" for name in SHOWN if (value := getattr(event, name, None)) not in (None, "", ())]
    if isinstance(event, CallCaptured):
        versions = ",".join(f"{version_label(s.run_id, s.version)}[{s.start}:{s.end}]" for s in event.spans)
        parts += [f"tokens={event.usage.prompt_tokens}+{arrays.count(event.response_ids)}", f"versions={versions}"]
    return f"{type(event).__name__:<20} {' '.join(parts)}"


SHOWN = (
    "group_id",
    "trajectory_id",
    "call_id",
    "worker_id",
    "model_id",
    "run_id",
    "sequence",
    "version",
    "status",
    "state",
    "ready",
    "reasons",
    "expected_size",
    "channel",
    "calls",
    "reward",
    "value",
    "return_total",
    "reward_mean",
    "reason",
)
