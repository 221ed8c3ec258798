"""Scorers of one rewards.yaml, tried on trajectories of the page: by the code of `claw rewards test`."""

from collections.abc import Sequence
from pathlib import Path

from claw_r1.consumers.dashboard.routes.parameters import trajectory_of
from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.rewards.config import load, slot_named
from claw_r1.consumers.rewards.subjects.of_rows import TrajectoryRow
from claw_r1.consumers.rewards.trial import try_out
from claw_r1.consumers.web.problems import PageProblem
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.keys import group_key


def trial_slots(config: Path | None) -> list[str]:
    """Names of the slots that may be tried. Who started the dashboard names the file: a page takes no code from anybody.
    Raises ConfigRefused."""
    return [] if config is None else [slot.name for slot in load(config)]


def tried(source: DashboardSource, config: Path | None, slot: str, places: Sequence[tuple[str, str]]) -> list[JsonDict]:
    """One answer per subject. Raises PageProblem, ConsumerError, LogError."""
    if config is None:
        raise PageProblem(422, "no scorers to try: start the dashboard with --rewards rewards.yaml")
    if not isinstance(source.log, KafkaLog):
        raise PageProblem(501, "this dashboard reads a log in memory, which scorers cannot read")
    scored, partitions = slot_named(load(config), slot), source.log.settings.partitions
    answers: list[JsonDict] = []
    for g, t in places:
        row, at = trajectory_of(source, g, t), (partition_of(group_key(g), partitions), g, t)
        trials = try_out(source.log.settings, scored, {at: TrajectoryRow(row, "", row.last_progress_us // 1000)})
        answers += [{"g": g, "t": t} | {name: getattr(each, name) for name in each.__slots__} for each in trials]
    return answers
