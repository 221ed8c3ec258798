"""The composition root: the real log around `Scoring`."""

import signal
import sys
import threading
from contextlib import closing
from functools import partial

import structlog

from consumers.quality.panel import who
from consumers.quality.scorers import named
from consumers.quality.scoring import Scoring
from consumers.quality.settings import QualitySettings
from eventlog.producer import EventProducer
from eventlog.reader import LogReader, commit_offsets, committed_offsets
from eventlog.settings import LogSettings
from schemas.topics import CALLS


def serve(settings: QualitySettings, log_settings: LogSettings) -> None:
    """Score until a signal. One process per panel: offsets are committed without membership. Raises ScorerUnknown, LogError."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    panel = [named(name) for name in settings.scorers]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # Only ASCII letters, digits, dots, dashes and underscores are safe in a group's name everywhere.
    name = who(panel).removeprefix("scorer/").replace("@", "-").replace("+", "_")
    group = f"{log_settings.prefix}.quality.{name}.{settings.generation}"
    committed = committed_offsets(log_settings, group, [CALLS], range(log_settings.partitions))
    start = {place: offset for place, offset in committed.items() if offset is not None}
    with closing(LogReader(log_settings, [CALLS], start=start)) as reader, closing(EventProducer(log_settings)) as sink:
        commit = partial(commit_offsets, log_settings, group)
        Scoring(settings, panel, reader=reader, producer=sink, commit=commit).run(stop)
