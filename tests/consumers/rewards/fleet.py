"""Processes of `claw rewards run` on a real broker, and what they wrote."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import yaml

from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, Position, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import Event, RewardAssigned, ScoringFailed, VerdictKept
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import REWARDS, TOPICS, VERDICTS
from tests.children import end, start
from tests.trainer.pooled import rows_of

RULES = "tests.consumers.rewards.own_rules"
RULE = {"version": 1, "scope": "call", "environment": ["RULE_LOG"], "processes": 2}


def write(settings: LogSettings, history: Iterable[Event]) -> None:
    """Facts in order, and each row as it comes to be, in the partition of its group as the streams do."""
    topics = {topic.name: topic for topic in TOPICS}
    with closing(EventProducer(settings)) as producer:

        def append(item: Outgoing) -> Position:
            return producer.produce(item).result()

        for group, name, key, value in rows_of(history, append):
            partition = partition_of(group_key(group), settings.partitions)
            append(Outgoing(topic=topics[name], key=key, value=value, partition=partition))


class RewardsFleet:
    """Scorers of one rewards.yaml, with a log of what rules were asked."""

    def __init__(self, settings: LogSettings, folder: Path, scorers: Mapping[str, Mapping[str, Any]]) -> None:
        self.settings = settings
        self.folder = folder
        self.rule_log = folder / "rules.log"
        self.rule_log.touch()
        self.config = folder / "rewards.yaml"
        rules = {slot: {**RULE, **fields, "use": f"{RULES}:{fields['use']}"} for slot, fields in scorers.items()}
        self.config.write_text(yaml.safe_dump({"scorers": rules}))
        self.processes: list[Popen[bytes]] = []

    def start(self, **variables: str) -> "Popen[bytes]":
        environment = {
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": self.settings.bootstrap_servers,
            "CLAW_LOG_PREFIX": self.settings.prefix,
            "CLAW_LOG_PARTITIONS": str(self.settings.partitions),
            "CLAW_REWARDS_CONFIG": str(self.config),
            "RULE_LOG": str(self.rule_log),
            **variables,
        }
        with (self.folder / f"scorer-{len(self.processes)}.log").open("wb") as output:
            process = start(
                [sys.executable, "-m", "claw_r1.consumers.rewards"], env=environment, stdout=output, stderr=output
            )
        self.processes.append(process)
        return process

    def log(self, number: int = 0) -> str:
        return (self.folder / f"scorer-{number}.log").read_text()

    def questions(self) -> Counter[str]:
        """How often the rules were asked about each subject."""
        return Counter(self.rule_log.read_text().splitlines())

    def in_flight(self) -> int:
        """Subjects about which a rule was asked and of which no verdict is kept: a successor may ask again about these."""
        return len(self.questions()) - len({verdict.verdict_id for verdict in self.verdicts()})

    def stop(self) -> None:
        """Ends all that is left of it; what they had in hand they write before, or never."""
        for process in self.processes:
            end(process)

    def rewards(self) -> list[RewardAssigned | ScoringFailed]:
        events = readable(read_topics(self.settings, [REWARDS]))
        return [event for event in events if isinstance(event, RewardAssigned | ScoringFailed)]

    def verdicts(self) -> list[VerdictKept]:
        events = readable(read_topics(self.settings, [VERDICTS]))
        return [event for event in events if isinstance(event, VerdictKept)]

    def values(self) -> dict[tuple[str, str, str | None, str], set[tuple[str, float | None]]]:
        """(event id, value) of each slot of each subject: exactly one, or somebody was judged twice."""
        values: dict[tuple[str, str, str | None, str], set[tuple[str, float | None]]] = {}
        for event in self.rewards():
            value = event.value if isinstance(event, RewardAssigned) else None
            slot = (event.group_id, event.trajectory_id, event.call_id, f"{event.source}/{event.name}")
            values.setdefault(slot, set()).add((event.envelope.event_id, value))
        return values


@contextmanager
def fleet(settings: LogSettings, folder: Path, scorers: Mapping[str, Mapping[str, Any]]) -> Iterator[RewardsFleet]:
    """Nothing of it outlives the block."""
    scorer_fleet = RewardsFleet(settings, folder, scorers)
    try:
        yield scorer_fleet
    finally:
        scorer_fleet.stop()
