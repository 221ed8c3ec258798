"""A log to read from: the broker that is named or runs, else the kept one, started for the duration of the command."""

from collections.abc import Iterator
from contextlib import contextmanager

from claw.local.broker import resolve_broker
from claw.show.notice import notice
from eventlog.errors import TopicMissing
from eventlog.kafka.admin import describe_topics
from eventlog.settings import LogSettings
from schemas.topics import CALLS

STARTED = (
    "no broker was running, so this command started one and stops it at its end, which takes some seconds; "
    "`claw broker` in another terminal keeps one running"
)


@contextmanager
def log_for_reading(prefix: str) -> Iterator[LogSettings]:
    """Settings of a broker that answers. Raises CannotRun with the ways out when there is none.

    Whoever waits for a broker to start and stop is told so, once, on stderr.
    """
    with resolve_broker() as broker:
        if broker.local is not None and broker.local.started_here:
            notice(STARTED)
        yield LogSettings(bootstrap_servers=broker.bootstrap, prefix=prefix)


def as_on_broker(settings: LogSettings) -> LogSettings:
    """With the partitions and replicas that the facts have there. Raises TopicMissing, BrokerUnreachable."""
    name = settings.catalogue().name(CALLS)
    for state in describe_topics(settings):
        if state.name == name:
            return settings.model_copy(update={"partitions": state.partitions, "replication": state.replication})
    raise TopicMissing(name)
