"""The pool and the runs as they are now, for one command."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import ValidationError

from claw.errors import CannotRun
from claw.pool.options import PerspectiveOptions
from claw.show.log import log_for_reading
from datapool.batch.spec import BatchSpec, first_problem, load, of_preset
from datapool.view.runs import RunIndex
from datapool.view.view import TOPICS, PoolView
from datapool.view.why import Perspective
from eventlog.kafka.reader import read_topics
from eventlog.records import readable
from eventlog.settings import LogSettings
from schemas.topics import BATCHES, Topic

CAUGHT_UP_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class OpenPool:
    """Where the log is, and a view that has seen all of it."""

    settings: LogSettings
    view: PoolView

    def runs(self) -> RunIndex:
        """What runs did so far."""
        index = RunIndex()
        for event in readable(read_topics(self.settings, [BATCHES])):
            index.apply(event)
        return index


@contextmanager
def open_pool(
    prefix: str, *, tokens: bool = False, group: str | None = None, topics: Sequence[Topic] = TOPICS
) -> Iterator[OpenPool]:
    """A view of the pool, or of what a question needs of it: as `PoolView`. Raises CannotRun."""
    with log_for_reading(prefix) as settings:
        view = PoolView(settings, tokens=tokens, group=group, topics=topics)
        view.start()
        try:
            view.wait_caught_up(CAUGHT_UP_TIMEOUT_S)
            yield OpenPool(settings, view)
        finally:
            view.stop()


def perspective_of(
    pool: OpenPool, runs: RunIndex, spec: BatchSpec | None, options: PerspectiveOptions
) -> Perspective | None:
    """Run, version and spec that a question is about; None when nobody named a spec and no run has one.

    spec: None for the run's own. Without a run, the samples say whose they are: the policy run of most groups' members.
    Raises CannotRun when the run's own spec is of another version.
    """
    run_id, version = options.run or runs.latest, options.version
    run = runs.runs.get(run_id) if run_id is not None else None
    if spec is None and run is not None and run.spec:
        spec = _spec_of(run.spec)
    if spec is None:
        return None
    trajectories = pool.view.ask(lambda rows: list(rows.trajectory_rows()))
    if run_id is None:
        policies = sorted(t.policy_run_id for t in trajectories if t.policy_run_id not in (None, "mixed"))
        run_id = max(policies, key=policies.count, default="")
    if version is None:
        versions = [t.max_version for t in trajectories if t.policy_run_id == run_id and t.max_version is not None]
        version = run.version if run else max(versions, default=0)
    return Perspective(run_id=run_id, version=version, spec=spec)


def named_spec(options: PerspectiveOptions) -> BatchSpec | None:
    """The spec that a person named, if any. Raises CannotRun, BatchSpecInvalid, before anything is read."""
    if options.spec is not None and options.preset is not None:
        raise CannotRun("--spec and --preset: name one of them (a file may say `preset: NAME` and change fields of it)")
    if options.spec is not None:
        return load(options.spec)
    return None if options.preset is None else of_preset(options.preset)


def _spec_of(run: str) -> BatchSpec:
    try:
        return BatchSpec.model_validate_json(run)
    except ValidationError as error:
        raise CannotRun(f"the run's own spec is of another version ({first_problem(error)}): --spec FILE") from error
