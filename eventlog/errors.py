"""The errors of the log. Each type has one meaning: retry, stop, or ask a person."""


class LogError(Exception):
    """Root of this room's errors; raised itself for what no retry and no other type covers."""


class Retryable(LogError):
    """The same call may succeed later. A consumer's work raises it, too, for a service of its own that is away."""


class RecordRefused(LogError):
    """A consumer's work cannot use the record, now or later. `reason`: a stable word, which
    its dead letter carries."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class BrokerUnreachable(Retryable):
    """No broker answered in time, or those that did cannot serve the request yet: they are
    starting, or were fenced."""


class AccessRefused(LogError):
    """The broker does not let this client in, or not do this; or the
    client does not trust the broker. Stop, and ask a person."""


class NotCaughtUp(BrokerUnreachable):
    """A follower did not reach the end of the log in time. `records_left`: None while the end is not known."""

    def __init__(self, message: str, records_left: int | None) -> None:
        super().__init__(message)
        self.records_left = records_left


class NotAcknowledged(Retryable):
    """The log did not confirm the record in time. It may stand in the log all the same: the event_id tells the second
    copy from the first."""


class RecordTooLarge(LogError):
    """The record exceeds the largest size that topics take. Retrying cannot help."""


class Fenced(LogError):
    """Another owner opened the same transactional id: stop, and write nothing more."""


class HistoryCut(LogError):
    """Retention, compaction or deletion removed the history that the caller reads."""


class TopicMissing(LogError):
    """A topic of the catalogue is not on the broker."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} is not on the broker; create the topics with `claw topics create`")
        self.topic = topic


class SpoolFull(Retryable):
    """The local spool cannot take the record: its limit is reached, or the disk refuses."""
