"""Runs read from the log. Plans, by far the largest records of their topic, are counted as a sign of life and not decoded."""

from collections.abc import Iterable
from difflib import get_close_matches

from claw_r1.consumers.errors import ConsumerError
from claw_r1.datapool.runs import Run
from claw_r1.eventlog.kafka.reader import LogReader, read_topics
from claw_r1.eventlog.records import Record, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import event_name
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.topics import BATCHES, WEIGHTS

PLAN = "BatchAssembled"


class NoSuchRun(ConsumerError):
    """The log has no run of that name."""


def read_all(settings: LogSettings) -> list[Run]:
    """Every run, the one with the newest record first. Raises BrokerUnreachable, TopicMissing."""
    runs = fold(read_topics(settings, [BATCHES]))
    return sorted(runs.values(), key=lambda run: (-run.seen_us, run.run_id))


def read_named(settings: LogSettings, names: Iterable[str]) -> list[Run]:
    """These runs with their published versions. Raises NoSuchRun with the nearest names, BrokerUnreachable, TopicMissing."""
    runs = {run.run_id: run for run in read_all(settings)}
    chosen = [_named(runs, name) for name in names]
    models = {run.model_id.encode() for run in chosen}
    with LogReader(settings, [WEIGHTS], wants=lambda _, key, __: key in models) as reader:
        for event in readable(reader.read_to_end()):
            run = runs.get(getattr(event, "run_id", ""))
            if run in chosen:
                run.take(event)
    return chosen


def fold(records: Iterable[Record]) -> dict[str, Run]:
    """Records of claw.training.batches by run. What cannot be read is passed over."""
    runs: dict[str, Run] = {}
    for record in records:
        run_id = (record.key or b"").decode(errors="replace")
        run = runs.setdefault(run_id, Run(run_id))
        run.seen_us = max(run.seen_us, record.timestamp_ms * 1000)
        if not is_plan(record):
            for event in readable([record]):
                run.take(event)
    return runs


def is_plan(record: Record) -> bool:
    """Returns whether a record is a plan, without decoding it."""
    try:
        return record.value is not None and event_name(record.value) == PLAN
    except UndecodableRecord:
        return False


def _named(runs: dict[str, Run], name: str) -> Run:
    if name in runs:
        return runs[name]
    if not runs:
        raise NoSuchRun(f"no run {name!r}: the log has no runs yet; `claw demo` or `claw train` begins one")
    nearest = get_close_matches(name, runs, n=3, cutoff=0.4) or sorted(runs, key=lambda n: -runs[n].seen_us)[:3]
    raise NoSuchRun(f"no run {name!r} in the log; the nearest names are {', '.join(nearest)} (`claw runs list`)")
