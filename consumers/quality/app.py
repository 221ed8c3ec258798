"""The composition root: a member of the panel's consumer group on the real log."""

from collections.abc import Iterator
from functools import partial

from claw_r1.consumers.quality.scorers import named
from claw_r1.consumers.quality.scoring import Scoring, signature
from claw_r1.consumers.quality.settings import QualitySettings
from claw_r1.datapool.view.request_bodies import backwards
from claw_r1.eventlog.consume import ConsumeLimits, consume
from claw_r1.eventlog.kafka.acls import check_access
from claw_r1.eventlog.kafka.admin import begin_offsets
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.ranges import read_range
from claw_r1.eventlog.records import Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.logs import log_to_stderr
from claw_r1.schemas.topics import CALLS


def serve(settings: QualitySettings, log_settings: LogSettings) -> None:
    """Score until SIGTERM or SIGINT. Several processes of one panel share the partitions. Raises ScorerUnknown, LogError."""
    log_to_stderr()
    panel = [named(name) for name in settings.scorers]
    scoring = Scoring(settings, panel, earlier=partial(_earlier, log_settings))
    check_access(log_settings, "quality")
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
