"""Runs read from the log, without their plans."""

from collections.abc import Iterable
from difflib import get_close_matches

from claw_r1.consumers.errors import ConsumerError
from claw_r1.datapool.runs import Run, RunsById, runs_of
from claw_r1.eventlog.kafka.reader import LogReader, read_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import BATCHES, WEIGHTS


class NoSuchRun(ConsumerError):
    """The log has no run of that name."""


def read_all(settings: LogSettings) -> list[Run]:
    """Every run, the one with the newest record first. Raises BrokerUnreachable, TopicMissing."""
    runs = runs_of(read_topics(settings, [BATCHES]))
    return sorted(runs.values(), key=lambda run: (-run.seen_us, run.run_id))


def read_named(settings: LogSettings, names: Iterable[str]) -> list[Run]:
    """These runs with their published versions. Raises NoSuchRun with the nearest names, BrokerUnreachable, TopicMissing."""
    runs = {run.run_id: run for run in read_all(settings)}
    chosen = [_named(runs, name) for name in names]
    models = {run.model_id.encode() for run in chosen}
    with LogReader(settings, [WEIGHTS], wants=lambda _, key, __: key in models) as reader:
        runs_of(reader.read_to_end(), before=runs)
    return chosen


def _named(runs: RunsById, name: str) -> Run:
    if name in runs:
        return runs[name]
    if not runs:
        raise NoSuchRun(f"no run {name!r}: the log has no runs yet; `claw demo` or `claw train` begins one")
    nearest = get_close_matches(name, runs, n=3, cutoff=0.4) or sorted(runs, key=lambda n: -runs[n].seen_us)[:3]
    raise NoSuchRun(f"no run {name!r} in the log; the nearest names are {', '.join(nearest)} (`claw runs list`)")
