"""The perspective of a question: the run, the version and the spec from which a group is looked at."""

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.datapool.batch.rewards import slots_never_rewarded
from claw_r1.datapool.batch.spec import BatchSpec, first_problem
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.why import Explanation, Perspective, why
from claw_r1.schemas.events import StepRecord


def perspective_of(
    rows: PoolRows, runs: RunIndex, spec: BatchSpec | None, *, run_id: str | None = None, version: int | None = None
) -> Perspective | None:
    """Run, version and spec of a question; None if no spec was named and no run has one.

    spec: None for the run's own. Without a run, the samples decide: the policy run of most groups' members.
    Raises PoolRefusal when the run's own spec is of another version.
    """
    run_id = run_id or runs.latest
    run = runs.runs.get(run_id) if run_id is not None else None
    if spec is None and run is not None and run.spec:
        spec = _spec_of(run.spec)
    if spec is None:
        return None
    if run_id is None:
        policies = _policies(rows)
        run_id = (
            max(sorted(policies.keys() - {None, "mixed"}, key=str), key=lambda each: policies[each], default="") or ""
        )
    if version is None and run is not None:
        version = run.version or 0
    elif version is None:
        version = max(_versions(rows, run_id), default=0)
    return Perspective(run_id=run_id, version=version, spec=spec)


def _policies(rows: PoolRows) -> Counter[str | None]:
    """Counts the trajectories that each policy run sampled; to decode every row takes seconds."""
    return rows.tables.counted("trajectories", "policy_run", rows.tables.trajectories.alive)


def _versions(rows: PoolRows, policy: str) -> set[int]:
    """The latest versions of the trajectories that a policy run sampled."""
    sampled = rows.tables.trajectories.holding("policy_run", [policy])
    return set(rows.tables.counted("trajectories", "version_max", sampled))


def explained(
    rows: PoolRows,
    runs: RunIndex,
    perspective: Perspective | None,
    name: str,
    decoded: Mapping[tuple[str, str], Sequence[StepRecord]] | None = None,
) -> tuple[list[Explanation], list[str]]:
    """Explains each thing of that id, and lists slots of the spec that no reward ever named. decoded: as `why` takes it."""
    warnings = [] if perspective is None else list(slots_never_rewarded(perspective.spec, rows.reward_slots))
    return why(rows, runs, perspective, name, decoded), warnings


def _spec_of(run: str) -> BatchSpec:
    try:
        return BatchSpec.model_validate_json(run)
    except ValidationError as error:
        raise PoolRefusal(f"the run's own spec is of another version ({first_problem(error)}): --spec FILE") from error
