"""Runs for tests: events of a run as a trainer writes them, and the records that hold them."""

from collections.abc import Iterable

from msgspec.structs import replace

from claw_r1.eventlog.records import Record
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchTrained,
    Event,
    RunEnded,
    RunStarted,
    VersionEvaluated,
    WeightsPublished,
)
from tests import facts

SECOND_US = 1_000_000


def at(event: Event, second: float) -> Event:
    """The event as if it had occurred then."""
    return replace(event, envelope=replace(event.envelope, occurred_at_us=int(second * SECOND_US)))


def started(run_id: str = "run", config: str = "{}") -> Event:
    return RunStarted(
        envelope=facts.envelope(),
        run_id=run_id,
        model_id="tiny",
        incarnation=1,
        config=config,
        group_size=8,
        groups_per_batch=8,
        staleness_max=1,
        facts_prefix="claw",
    )


def trained(sequence: int, reward: float, run_id: str = "run", **metrics: float) -> Event:
    values = {"reward": reward, "staleness_mean": 0.5, "staleness_max": 1.0, "kl_k3": 0.01, "wait_s": 1.0, **metrics}
    event = BatchTrained(
        envelope=facts.envelope(), run_id=run_id, sequence=sequence, version=sequence + 1, metrics=values
    )
    return at(event, 10.0 * sequence)


def planned(sequence: int, run_id: str = "run") -> Event:
    return BatchAssembled(
        envelope=facts.envelope(),
        run_id=run_id,
        sequence=sequence,
        version=sequence,
        spec="{}",
        trajectories=(),
        seed=0,
    )


def evaluated(
    version: int, greedy: float, *, best: bool, uri: str | None = None, held_out: bool | None = None
) -> Event:
    return VersionEvaluated(
        envelope=facts.envelope(),
        run_id="run",
        version=version,
        trajectories=64,
        greedy=greedy,
        pass_at={"4": 0.9, "1": 0.5, "16": 1.0},
        best=best,
        held_out=held_out,
        checkpoint_uri=uri,
    )


def weights(version: int, uri: str | None = None, run_id: str = "run") -> Event:
    return WeightsPublished(
        envelope=facts.envelope(),
        model_id="tiny",
        run_id=run_id,
        version=version,
        digest=f"{version:064d}",
        bytes_total=1,
        manifest=(),
        checkpoint_uri=uri,
    )


def ended(batches: int, run_id: str = "run") -> Event:
    return RunEnded(
        envelope=facts.envelope(),
        run_id=run_id,
        status="finished",
        reason="stop_reward",
        batches=batches,
        version=batches,
    )


def records(events: Iterable[Event]) -> list[Record]:
    """As the broker hands them out; written when the events occurred."""
    return [
        Record(
            "claw.training.batches", 0, n, event.envelope.occurred_at_us // 1000, event.run_id.encode(), encode(event)
        )
        for n, event in enumerate(events)
    ]
