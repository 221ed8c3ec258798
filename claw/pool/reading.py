"""The pool and the runs as they are now, for one command."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import notice
from claw_r1.claw.pool.options import PerspectiveOptions
from claw_r1.datapool.batch.spec import BatchSpec, load, of_preset
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.view import TOPICS, PoolView
from claw_r1.eventlog.kafka.consumer_groups import facts_behind
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import BATCHES, Topic

CAUGHT_UP_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class OpenPool:
    """The settings of the log, and a view that has seen all of it."""

    settings: LogSettings
    view: PoolView

    def runs(self) -> RunIndex:
        """Returns the index of all runs so far."""
        return RunIndex.of(read_topics(self.settings, [BATCHES]))


@contextmanager
def open_pool(prefix: str, *, group: str | None = None, topics: Sequence[Topic] = TOPICS) -> Iterator[OpenPool]:
    """A view of the pool, or of what a question needs of it: as `PoolView`. Raises CannotRun."""
    with log_for_reading(prefix) as settings:
        say_how_far(settings)
        with pool_of(settings, group=group, topics=topics) as pool:
            yield pool


def say_how_far(settings: LogSettings) -> None:
    """One line on stderr where the pool does not hold all facts yet, so that nobody takes an earlier moment for now."""
    if behind := facts_behind(settings):
        facts = f"{behind:,} facts" if behind > 1 else "1 fact"
        notice(f"the pool is {facts} behind: what follows is of an earlier moment (`claw streams` folds them)")


@contextmanager
def pool_of(settings: LogSettings, *, group: str | None = None, topics: Sequence[Topic] = TOPICS) -> Iterator[OpenPool]:
    """The same on a log that is there."""
    view = PoolView(settings, group=group, topics=topics, listed=True)
    view.start()
    try:
        view.wait_caught_up(CAUGHT_UP_TIMEOUT_S)
        yield OpenPool(settings, view)
    finally:
        view.stop()


def named_spec(options: PerspectiveOptions) -> BatchSpec | None:
    """The spec that a person named, if any. Raises CannotRun, BatchSpecInvalid, before anything is read."""
    if options.spec is not None and options.preset is not None:
        raise CannotRun("--spec and --preset: name one of them (a file may say `preset: NAME` and change fields of it)")
    if options.spec is not None:
        return load(options.spec)
    return None if options.preset is None else of_preset(options.preset)
