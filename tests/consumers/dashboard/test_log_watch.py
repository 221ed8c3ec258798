"""Whether the log answers is told to every page, once when it goes and once when it comes back."""

from collections.abc import Sequence

from claw_r1.consumers.dashboard.log_watch import LogWatch
from claw_r1.eventlog.errors import BrokerUnreachable
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Place
from claw_r1.schemas.topics import Topic


class Fickle(MemoryLog):
    """A log whose broker can be away."""

    away = False

    def end_offsets(self, topics: Sequence[Topic]) -> dict[Place, int]:
        if self.away:
            raise BrokerUnreachable("nobody there")
        return super().end_offsets(topics)


def test_going_and_coming_back_are_told_once_each() -> None:
    """It is away since the first question that it left open, however often it is asked meanwhile."""
    log, told = Fickle(), []
    watch = LogWatch(log, lambda: told.append(watch.away_since_us))
    watch.probe()
    log.away = True
    watch.probe()
    since = watch.away_since_us
    watch.probe()
    assert since is not None
    assert (watch.away_since_us, told) == (since, [since])
    log.away = False
    watch.probe()
    watch.probe()
    assert told == [since, None]
