"""What a runner has done so far, and the file that tells others. The file is always one whole JSON object."""

import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import orjson

from agentflow.episode import EpisodeResult

RECENT = 64


@dataclass(frozen=True, slots=True)
class Summary:
    """A snapshot, as it is written to the file."""

    run_id: str | None
    channel: str
    state: str
    groups_opened: int
    groups_refused: int
    """Answers "not now" of the gateway: how often the runner waited for the trainer."""
    episodes_completed: int
    episodes_failed: int
    completions_lost: int
    calls_replied: int
    """Model calls whose reply carried a call id."""
    reward_mean: float | None
    reward_mean_recent: float | None
    """Over the last 64 completed episodes."""
    seconds: float


@dataclass(slots=True)
class Stats:
    """Counts of one runner; mutable, owned by it."""

    run_id: str | None
    channel: str
    state: str = "running"
    groups_opened: int = 0
    groups_refused: int = 0
    episodes_completed: int = 0
    episodes_failed: int = 0
    completions_lost: int = 0
    calls_replied: int = 0
    reward_sum: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    started_s: float = field(default_factory=time.monotonic)

    def count_refusal(self) -> None:
        """The gateway said "not now"."""
        self.groups_refused += 1

    def count(self, result: EpisodeResult) -> None:
        """An episode ended by itself."""
        self.completions_lost += not result.reported
        if result.status == "failed":
            self.episodes_failed += 1
            return
        self.episodes_completed += 1
        self.reward_sum += result.reward
        self.recent.append(result.reward)

    def summary(self) -> Summary:
        """The counts of this moment."""
        completed = self.episodes_completed
        return Summary(
            run_id=self.run_id,
            channel=self.channel,
            state=self.state,
            groups_opened=self.groups_opened,
            groups_refused=self.groups_refused,
            episodes_completed=completed,
            episodes_failed=self.episodes_failed,
            completions_lost=self.completions_lost,
            calls_replied=self.calls_replied,
            reward_mean=self.reward_sum / completed if completed else None,
            reward_mean_recent=fmean(self.recent) if self.recent else None,
            seconds=round(time.monotonic() - self.started_s, 3),
        )


def write_summary(path: Path, summary: Summary) -> None:
    """Replace the file in one step: a reader sees the old object or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")
    draft.replace(path)
