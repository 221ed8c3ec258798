"""`claw rewards test`: what each scorer would say. Facts and rows are read, and nothing is written."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import printable
from claw_r1.consumers.rewards.config import load, slot_named
from claw_r1.consumers.rewards.trial import Trial, rows_of, try_out
from claw_r1.eventlog.kafka.admin import as_on_broker
from claw_r1.schemas.json_values import JsonDict


def run_trial(name: str, config: Path, scorers: Sequence[str], *, prefix: str) -> Iterator[Answer]:
    """Yields one line per subject of each scorer; exit code 1 when the pool has no such trajectory, or somebody gave up."""
    slots = load(config)
    chosen = [slot_named(slots, scorer) for scorer in scorers] or slots
    with log_for_reading(prefix) as settings:
        on_broker = as_on_broker(settings)
        rows = rows_of(on_broker, name)
        if len(rows) > 1:
            groups = ", ".join(group_id for _, group_id, _ in rows)
            raise CannotRun(f"several groups have a trajectory {name}: --on GROUP/{name} ({groups})")
        if not rows:
            yield Answer({"found": False}, f"the pool has no trajectory {name}", 1)
            return
        trials = [trial for slot in chosen for trial in try_out(on_broker, slot, rows)]
    for trial in trials:
        yield Answer(as_object(trial), as_line(trial), 1 if trial.failed else 0)


def as_object(trial: Trial) -> JsonDict:
    """Returns the trial as JSON; values are those of the subject's targets, in order."""
    return {name: getattr(trial, name) for name in Trial.__slots__}


def as_line(trial: Trial) -> str:
    """The answer, and its reasons behind it."""
    words = trial.failed or ", ".join("nothing" if value is None else f"{value:g}" for value in trial.values)
    cost = f" ({trial.tokens} tokens)" if trial.tokens else ""
    detail = f"  — {' '.join(trial.detail.split())}" if trial.detail else ""
    return printable(f"{trial.scorer}  {trial.subject}: {words}{cost}{detail}")
