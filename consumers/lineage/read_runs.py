"""The runs that a question about lineage needs, read from the log.

Memory: one small entry per batch and version, and the plans that `selects` takes.
"""

from collections.abc import Callable, Sequence

from claw_r1.datapool.runs import OF_RUNS, Run, RunsById
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import BatchAssembled
from claw_r1.schemas.topics import BATCHES, WEIGHTS, Topic

Selects = Callable[[BatchAssembled], bool]


def published(settings: LogSettings) -> RunsById:
    """Every run that published weights. Raises BrokerUnreachable, TopicMissing."""
    return _runs(settings, [WEIGHTS], lambda _: False)


def read(settings: LogSettings, selects: Selects) -> RunsById:
    """Every run, with the plans that `selects` takes. Raises BrokerUnreachable, TopicMissing."""
    return _runs(settings, [WEIGHTS, BATCHES], selects)


def _runs(settings: LogSettings, topics: Sequence[Topic], selects: Selects) -> RunsById:
    runs: RunsById = {}
    for topic in topics:
        for event in readable(read_topics(settings, [topic])):
            if isinstance(event, OF_RUNS):
                runs.setdefault(event.run_id, Run(event.run_id, selects)).take(event)
    return runs
