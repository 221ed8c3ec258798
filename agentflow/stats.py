"""Counts of a runner, and the file and the lines that show them. The file is always one whole JSON object."""

import re
import time
from collections import deque
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import TextIO

import orjson

from claw_r1.agentflow.episode import EpisodeResult
from claw_r1.runtime.files import write_atomically

RECENT = 64
REASON_CHARACTERS_MAX = 300
NUMBERED = re.compile(r"\w*\d\w*")
WAITING = {
    "capacity": "it is behind, or its run is over",
    "run_unknown": "nobody has started a run of this id",
}


@dataclass(slots=True, kw_only=True)
class Counts:
    """The counts of a runner so far."""

    run_id: str | None
    channel: str
    state: str = "running"
    groups_opened: int = 0
    groups_finished: int = 0
    """Groups of which every episode has ended, well or not."""
    groups_refused: int = 0
    """Answers "not now" of the gateway: how often the runner waited for the trainer."""
    refused_for: str | None = None
    """The gateway's word for why the next group has to wait; None: it does not."""
    tasks_at_rest: int | None = None
    """Tasks that are drawn less, as far as is known; None: there is no curriculum."""
    groups_at_rest: int = 0
    """Opened groups of tasks that were at rest then."""
    episodes_completed: int = 0
    episodes_failed: int = 0
    episodes_stopped: int = 0
    """The failed episodes that the runner's own stop cut off. Cut off by a stop of the runner."""
    completions_lost: int = 0
    failed_in_a_row: int = 0
    """The newest episodes that failed for one reason and earned nothing, with no other ending among them."""
    failed_for: str | None = None
    """That reason, as the last of them says it; None: the newest episode came to an outcome."""
    calls_replied: int = 0
    """Model calls whose reply carried a call id."""
    calls_unanswered: int = 0
    """Model calls whose reply no agent saw: refused, or cut off by a stop. The gateway may have captured them."""


@dataclass(slots=True, kw_only=True)
class Summary(Counts):
    """A snapshot, as it is written to the file."""

    episodes_running: int
    reward_mean: float | None
    """Over the completed episodes that were rewarded here; None: there is none."""
    reward_mean_recent: float | None
    """Over the last 64 of them."""
    seconds: float

    @property
    def all_failed(self) -> bool:
        """Episodes failed by themselves, and none was completed."""
        return not self.episodes_completed and self.episodes_failed > self.episodes_stopped


@dataclass(slots=True, kw_only=True)
class Stats(Counts):
    """Counts of one runner; mutable, owned by it."""

    reward_sum: float = 0.0
    episodes_rewarded: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    started_s: float = field(default_factory=time.monotonic)

    def count_refusal(self, reason: str) -> None:
        """The gateway said "not now"."""
        self.groups_refused += 1
        self.refused_for = reason

    def count_opened(self, *, at_rest: bool = False) -> None:
        """A group was admitted. at_rest: its task was."""
        self.groups_opened += 1
        self.groups_at_rest += at_rest
        self.refused_for = None

    def count(self, result: EpisodeResult) -> None:
        """An episode ended by itself."""
        self.completions_lost += not result.reported
        self._count_in_a_row(result)
        if result.status == "failed":
            self.episodes_failed += 1
            return
        self.episodes_completed += 1
        if result.reward is not None:
            self.episodes_rewarded += 1
            self.reward_sum += result.reward
            self.recent.append(result.reward)

    def _count_in_a_row(self, result: EpisodeResult) -> None:
        """A failed episode that was rewarded is an outcome: it can be trained."""
        failure = result.failure if result.reward is None else None
        same = failure is not None and self.failed_for is not None and kind(failure) == kind(self.failed_for)
        self.failed_in_a_row = self.failed_in_a_row + 1 if same else int(failure is not None)
        self.failed_for = failure

    def count_stopped(self) -> None:
        """An episode was cut off by a stop."""
        self.episodes_failed += 1
        self.episodes_stopped += 1

    def summary(self, episodes_running: int) -> Summary:
        """The counts of this moment."""
        return Summary(
            **{count.name: getattr(self, count.name) for count in fields(Counts)},
            episodes_running=episodes_running,
            reward_mean=self.reward_sum / self.episodes_rewarded if self.episodes_rewarded else None,
            reward_mean_recent=fmean(self.recent) if self.recent else None,
            seconds=round(time.monotonic() - self.started_s, 3),
        )


def kind(failure: str) -> str:
    """A reason up to its first semicolon, without what tells one episode's from another's: the words with digits in them, which
    are ids and counts."""
    return NUMBERED.sub("N", failure.partition(";")[0])


def progress_line(summary: Summary, groups_max: int | None) -> str:
    """The counts for a person who waits: one line, with the time that is left where the number of groups is known."""
    of = "" if groups_max is None else f" of {groups_max}"
    failed = f" ({summary.episodes_failed} failed)" if summary.episodes_failed else ""
    parts = [
        f"{summary.seconds:.0f} s",
        f"groups {summary.groups_opened}{of} opened, {summary.groups_finished} finished",
        f"episodes {summary.episodes_completed + summary.episodes_failed}{failed}, {summary.episodes_running} under way",
        f"reward {_two_digits(summary.reward_mean)} (last {RECENT}: {_two_digits(summary.reward_mean_recent)})",
        f"calls {summary.calls_replied}",
        f"told to wait {summary.groups_refused} times",
    ]
    if summary.tasks_at_rest is not None:
        share = summary.groups_at_rest / max(summary.groups_opened, 1)
        parts.append(f"tasks at rest {summary.tasks_at_rest}, {share:.0%} of the groups")
    return "  ".join(parts) + _outlook(summary, groups_max)


def _outlook(summary: Summary, groups_max: int | None) -> str:
    """Describes what the run waits for when nothing moves, else how long it will take."""
    if summary.state != "running":
        return ""
    failing = ""
    if summary.failed_for and summary.failed_in_a_row > 1:
        reason = " ".join(summary.failed_for.split())[:REASON_CHARACTERS_MAX]
        failing = f"  the last {summary.failed_in_a_row} episodes failed: {reason}"
    if summary.refused_for and not summary.episodes_running:
        return f"{failing}  waiting for the trainer: {WAITING.get(summary.refused_for, summary.refused_for)}"
    if failing:
        return failing
    if not summary.calls_replied:
        return "  waiting for the first reply"
    if groups_max is None or not summary.groups_finished:
        return ""
    remaining_s = summary.seconds / summary.groups_finished * (groups_max - summary.groups_finished)
    return f"  about {remaining_s:.0f} s left"


class ProgressLines:
    """Writes a line every `interval_s`, and the last one when the run has ended. `out` is stderr as `claw_r1.runtime.logs` makes it:
    nobody need read it."""

    def __init__(self, out: TextIO, groups_max: int | None, interval_s: float) -> None:
        self._out, self._groups_max, self._interval_s = out, groups_max, interval_s
        self._next_s = interval_s

    def __call__(self, summary: Summary) -> None:
        """A moment of the run."""
        if summary.state == "running" and summary.seconds < self._next_s:
            return
        self._next_s = summary.seconds + self._interval_s
        print(progress_line(summary, self._groups_max), file=self._out, flush=True)


def _two_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def write_summary(path: Path, summary: Summary) -> None:
    """Replace the file in one step: a reader sees the old object or the new one."""
    write_atomically(path, orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode())
