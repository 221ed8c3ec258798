"""The composition root: the real log around `Scoring`."""

import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from consumers.quality.panel import who
from consumers.quality.requests import backwards
from consumers.quality.scorers import named
from consumers.quality.scoring import Scoring
from consumers.quality.settings import QualitySettings
from eventlog.kafka.admin import begin_offsets, end_offsets
from eventlog.kafka.producer import EventProducer
from eventlog.kafka.reader import LogReader, commit_offsets, committed_offsets, read_range
from eventlog.records import Place, Position, Record
from eventlog.settings import LogSettings
from schemas.runtime.logs import log_to_stderr
from schemas.topics import CALLS


def serve(settings: QualitySettings, log_settings: LogSettings) -> None:
    """Score until a signal. One process per panel: offsets are committed without membership. Raises ScorerUnknown, LogError."""
    log_to_stderr()
    panel = [named(name) for name in settings.scorers]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # Only ASCII letters, digits, dots, dashes and underscores are safe in a group's name everywhere.
    name = who(panel).removeprefix("scorer/").replace("@", "-").replace("+", "_")
    group = f"{log_settings.prefix}.quality.{name}.{settings.generation}"
    start = _start(log_settings, group)
    with closing(LogReader(log_settings, [CALLS], start=start)) as reader, closing(EventProducer(log_settings)) as sink:
        commit = partial(commit_offsets, log_settings, group)
        earlier = partial(_earlier, log_settings)
        Scoring(settings, panel, reader=reader, producer=sink, commit=commit, earlier=earlier).run(stop)


def _start(log_settings: LogSettings, group: str) -> dict[Place, int]:
    """Where the panel goes on, in every partition that the broker has: what settings say of their number is no matter."""
    partitions = [number for _, number in end_offsets(log_settings, [CALLS])]
    committed = committed_offsets(log_settings, group, [CALLS], partitions)
    return {place: offset for place, offset in committed.items() if offset is not None}


def _earlier(log_settings: LogSettings, at: Position) -> Iterator[Record]:
    begin = begin_offsets(log_settings, [CALLS])[at.topic, at.partition]
    return backwards(partial(read_range, log_settings, CALLS), begin, at)
