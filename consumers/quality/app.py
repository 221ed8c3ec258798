"""The composition root: a member of the panel's consumer group on the real log."""

from collections.abc import Iterator
from functools import partial

from consumers.quality.scorers import named
from consumers.quality.scoring import Scoring, signature
from consumers.quality.settings import QualitySettings
from datapool.view.request_bodies import backwards
from eventlog.consume import ConsumeLimits, consume
from eventlog.kafka.admin import begin_offsets
from eventlog.kafka.log import KafkaLog
from eventlog.kafka.ranges import read_range
from eventlog.records import Position, Record
from eventlog.settings import LogSettings
from schemas.runtime.logs import log_to_stderr
from schemas.topics import CALLS


def serve(settings: QualitySettings, log_settings: LogSettings) -> None:
    """Score until SIGTERM or SIGINT. Several processes of one panel share the partitions. Raises ScorerUnknown, LogError."""
    log_to_stderr()
    panel = [named(name) for name in settings.scorers]
    scoring = Scoring(settings, panel, earlier=partial(_earlier, log_settings))
    # Only ASCII letters, digits, dots, dashes and underscores are safe in a group's name everywhere.
    name = signature(panel).removeprefix("scorer/").replace("@", "-").replace("+", "_")
    consume(
        KafkaLog(log_settings),
        [CALLS],
        f"{log_settings.prefix}.quality.{name}.{settings.generation}",
        scoring.work,
        on_revoked=scoring.forget,
        limits=ConsumeLimits(records_max=settings.records_max, commit_interval_s=settings.commit_interval_s),
    )


def _earlier(log_settings: LogSettings, at: Position) -> Iterator[Record]:
    begin = begin_offsets(log_settings, [CALLS])[at.topic, at.partition]
    return backwards(partial(read_range, log_settings, CALLS), begin, at)
