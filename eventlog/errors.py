"""What can go wrong with the log. Each type has one meaning: retry, stop, or ask a person."""


class LogError(Exception):
    """Root of this room's errors; raised itself for what no retry and no other type covers."""


class BrokerUnreachable(LogError):
    """No broker answered in time. Retryable."""


class NotCaughtUp(BrokerUnreachable):
    """A follower did not reach the end that it was asked for in time. `records_left`: None while the end is not known."""

    def __init__(self, message: str, records_left: int | None) -> None:
        super().__init__(message)
        self.records_left = records_left


class NotAcknowledged(LogError):
    """The log did not confirm the record in time. Retryable: it may stand in the log all the same, and the event_id
    tells the second copy from the first."""


class RecordTooLarge(LogError):
    """The record exceeds the largest size that topics take. Retrying cannot help."""


class Fenced(LogError):
    """Another owner opened the same transactional id: stop, and write nothing more."""


class HistoryCut(LogError):
    """Retention, compaction or deletion removed what was asked for."""


class TopicMissing(LogError):
    """A topic of the catalogue is not on the broker."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} is not on the broker; create the topics with `claw topics create`")
        self.topic = topic


class SpoolFull(LogError):
    """The local spool cannot take the record: its limit is reached, or the disk refuses. Retryable, later."""
