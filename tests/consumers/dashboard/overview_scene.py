"""A run in full work, with everything that the overview speaks of; names of agents and workers are hostile."""

import json
from collections.abc import Sequence

from msgspec.structs import replace

from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import (
    BatchAssembled,
    Event,
    FactPosition,
    PlannedStep,
    PlannedTrajectory,
    TrajectoryCompleted,
    VersionSpan,
    WorkerReported,
)
from claw_r1.schemas.topics import CALLS, REWARDS
from tests import facts
from tests.browser_session import PAYLOADS
from tests.consumers.dashboard.stage import DashboardStage, said
from tests.consumers.runs import observed

SPEC = {"group_size": 2, "groups_per_batch": 2, "rewards_required": ["judge/style"]}
MINUTE_US = 60_000_000
SPANS = (VersionSpan(run_id="run", version=2, start=0, end=3),)
PLACE = FactPosition(topic="claw.calls", partition=0, offset=0)


def played(group: str, returns: Sequence[float | None], at_us: int) -> list[Event]:
    """A group for the run, each member of one call; a return of None is one that nobody rewarded."""
    envelope = facts.envelope(at_us=at_us)
    events: list[Event] = [facts.opened(group, envelope=envelope, expected_size=len(returns))]
    for n, value in enumerate(returns):
        name = f"{group}-{n}"
        call = {"received_us": at_us, "envelope": facts.envelope(at_us=at_us), "spans": SPANS}
        events.append(said(group, name, "Which animal?", "a cat", **call))
        done = facts.completed(group, name, calls=1, reward=value, envelope=facts.envelope(at_us=at_us + 1_000_000))
        assert isinstance(done, TrajectoryCompleted)
        events.append(done)
    return events


def plan(
    sequence: int, group: str, trained: Sequence[bool], run_id: str = "run", names: Sequence[str] = ()
) -> BatchAssembled:
    """names: of the members; none: GROUP-0, GROUP-1, ..."""
    event = observed.planned(sequence, run_id)
    assert isinstance(event, BatchAssembled)
    members = [
        PlannedTrajectory(
            group_id=group,
            trajectory_id=names[n] if names else f"{group}-{n}",
            reward=float(n),
            advantage=0.0,
            min_version=3,
            steps=(PlannedStep(call_id=f"{group}-{n}-0", position=PLACE, digest="", trained=True),) if each else (),
        )
        for n, each in enumerate(trained)
    ]
    return replace(event, spec=json.dumps(SPEC), trajectories=tuple(members))


def worker(name: str, at_us: int, **changes: object) -> WorkerReported:
    fields = {"state": "ready", "run_id": "run", "version": 2, "report_interval_s": 5.0, "in_flight": 3, **changes}
    envelope = facts.envelope(at_us=at_us)
    return WorkerReported(envelope=envelope, worker_id=name, url="http://w", model_id="tiny", model="tiny", **fields)


class WholeStage(DashboardStage):
    """Streams have read everything."""

    def tell(self, *events: Event) -> None:
        super().tell(*events)
        self.log.commit_offsets(self.log.settings.catalogue().streams_group, self.log.end_offsets([CALLS, REWARDS]))


def scene(now: int | None = None) -> WholeStage:
    """Two batches trained, one group of three that waits for a judge, one open, one lacks rewards; a silent worker."""
    now = now or now_us()
    stage = WholeStage()
    for n in range(4):
        stage.tell(*played(f"g{n}", (0.0, 1.0), now - (20 - n) * MINUTE_US))
    stage.tell(*played(f"{PAYLOADS['bidi']}-open", (None, None), now - 2 * MINUTE_US))
    stage.tell(said("going", "t-open", "Which animal?", PAYLOADS["script"], received_us=now - MINUTE_US))
    config = json.dumps({"spec": SPEC})
    stage.report(observed.at(observed.started(config=config), (now - 19 * MINUTE_US) / 1e6))
    for n in range(2):
        stage.report(plan(n, f"g{n}", (True, n == 0)))
        metrics = {"trained_tokens": 300.0, "train_s": 2.0}
        stage.report(observed.at(observed.trained(n, 0.25 + n / 2, **metrics), (now - (15 - 5 * n) * MINUTE_US) / 1e6))
        stage.report(observed.weights(n + 1))
    stage.report(worker("w-1", now - 1_000_000), worker(PAYLOADS["script"], now - 2 * MINUTE_US, version=1))
    return stage
