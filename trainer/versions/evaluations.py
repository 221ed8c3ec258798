"""The results of evaluations of versions: groups of the channel `val`, which agents play beside the run, read from the
pool.

Input: the pool's groups whose tags are those of `claw_r1.schemas.evaluation`. Output: one `VersionEvaluated` per
version, and the best version as an export that no later one displaces. A replay concludes nothing twice: evaluations
in the run's history are settled, and their groups are forgotten, so memory holds only the running evaluations.

While an evaluation of the version in memory is played, no batch is trained: its episodes would be sampled by two versions.
It is trained while verdicts are still to come.
From the first evaluation on, the tags give the interval in versions, so the next is awaited before its start.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, inf
from pathlib import Path
from statistics import fmean

import structlog

from claw_r1.datapool.batch.candidates import member_of
from claw_r1.schemas.envelopes import decision_id, envelope
from claw_r1.schemas.evaluation import EpisodeKind, EvaluatedTask, reaches
from claw_r1.schemas.events import GroupRecord, RewardSlot, StepRecord, TrajectoryRecord, VersionEvaluated
from claw_r1.schemas.http import CallKind, Channel, kind_tag
from claw_r1.trainer.dependencies import TrainerDependencies
from claw_r1.trainer.progress import TrainingProgress
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.storage.async_writer import BackgroundWriter
from claw_r1.trainer.storage.directories import PartialDirectory, remove
from claw_r1.trainer.versions.publication import Publisher

log = structlog.get_logger()

OVER_THOUGH = frozenset({"no_trainable_call", "failed_without_outcome"})
"""The reasons for which an episode that is over need not be ready: at temperature 0 no call can be trained."""
COUNTED_SHARE_MIN = 0.5
"""The share of its episodes that an evaluation must have counted to be the best one."""


def pass_at(n: int, c: int, k: int) -> float:
    """Chance that one of k of n samples, c of which are solutions, is one: 1 - C(n-c, k) / C(n, k).

    The unbiased estimator of Chen et al. 2021 (Evaluating Large Language Models Trained on Code). 1 <= k <= n.
    """
    return 1.0 - comb(n - c, k) / comb(n, k)


def is_over(row: TrajectoryRecord) -> bool:
    """Returns whether an episode has ended and all of it has arrived. That it could not be trained is no matter here."""
    return set(row.reasons) <= OVER_THOUGH


def worth(row: TrajectoryRecord) -> float | None:
    """Returns the return of an episode that is over; None: not judged yet.

    One that failed is worth 0, whatever it earned on the way, as for `claw agents eval`.
    """
    return row.return_total if row.status == "completed" else 0.0


def is_judged(row: TrajectoryRecord, steps: Iterable[StepRecord]) -> bool:
    """Returns whether it has its return, or a scorer gives none: to the whole, or to each of its calls."""
    if worth(row) is not None or _has_word(row.rewards):
        return True
    scored = [step.rewards for step in steps if kind_tag(CallKind.SIDE) not in step.tags]
    return bool(scored) and all(map(_has_word, scored))


def _has_word(slots: Iterable[RewardSlot]) -> bool:
    return any(slot.verdict or slot.failed is not None for slot in slots)


@dataclass(frozen=True, slots=True)
class EvaluatedGroup:
    """One group of an evaluation with all of its members."""

    task: EvaluatedTask
    record: GroupRecord
    rows: Sequence[TrajectoryRecord]
    waits: bool = False
    """A verdict on it may still come."""

    @property
    def is_over(self) -> bool:
        return self.record.closed or (len(self.rows) >= self.task.size and all(map(is_over, self.rows)))


@dataclass(frozen=True, slots=True)
class Score:
    """`counted`: episodes that the version sampled alone. `greedy`: their mean return at temperature 0. `held_out`: of tasks that
    are not trained on."""

    counted: int
    left_out: int
    greedy: float | None
    pass_at: Mapping[str, float]
    held_out: bool = False

    @property
    def figure(self) -> float | None:
        """The figure by which versions are compared; None: too little was counted."""
        enough = self.counted >= COUNTED_SHARE_MIN * (self.counted + self.left_out)
        return (self.pass_at.get("1") if self.greedy is None else self.greedy) if enough else None


def score(parts: Sequence[EvaluatedGroup], run_id: str) -> Score:
    """A task counts for pass@k where at least k of its samples do.

    An episode that nobody judged is left out.
    """
    task = parts[0].task
    returns: dict[EpisodeKind, list[list[float]]] = {"greedy": [], "sample": []}
    solutions: list[list[bool]] = []
    for part in parts:
        rows = [row for row in part.rows if is_over(row) and _is_of(row, run_id, part.task.version)]
        pairs = [(row, value) for row in rows if (value := worth(row)) is not None]
        returns[part.task.kind].append([value for _, value in pairs])
        if part.task.kind == "sample":
            solutions.append([row.status == "completed" and reaches(value, task.solved) for row, value in pairs])
    counted = sum(map(len, (*returns["greedy"], *returns["sample"])))
    greedy = [value for values in returns["greedy"] for value in values]
    shares: dict[str, float] = {}
    for k in (1 << power for power in range(task.samples.bit_length())):
        tasks = [solved for solved in solutions if len(solved) >= k]
        if tasks:
            shares[str(k)] = fmean(pass_at(len(solved), sum(solved), k) for solved in tasks)
    left_out = task.tasks * (1 + task.samples) - counted
    held_out = all(part.task.held_out for part in parts)
    return Score(counted, left_out, fmean(greedy) if greedy else None, shares, held_out)


def _is_of(row: TrajectoryRecord, run_id: str, version: int) -> bool:
    return row.policy_run_id == run_id and row.min_version == row.max_version == version


@dataclass(slots=True)
class OpenEvaluation:
    """The groups of one version's evaluation so far; of two groups of one part the first to end counts."""

    moved_s: float
    """The time when a fact of it last arrived: a group, a call, an end."""
    parts: dict[tuple[EpisodeKind, int], EvaluatedGroup] = field(default_factory=dict)
    progress: dict[str, tuple[int, str]] = field(default_factory=dict)
    """group_id -> the newest fact of each group."""

    def see(self, record: GroupRecord, now_s: float) -> None:
        """A group in its present state: its calls show that a long episode is alive."""
        newest = record.last_progress_us, record.last_progress_event_id
        if self.progress.get(record.group_id) != newest:
            self.progress[record.group_id], self.moved_s = newest, now_s

    def take(self, group: EvaluatedGroup) -> None:
        part, name = group.task.part, group.record.group_id
        earlier = self.parts.get(part)
        if earlier is None or not earlier.is_over or earlier.record.group_id == name:
            self.parts[part] = group

    @property
    def is_played(self) -> bool:
        """Every group of it is over."""
        return all(len(self.parts) == group.task.parts and group.is_over for group in self.parts.values())

    @property
    def is_whole(self) -> bool:
        """Every group of it is over and judged."""
        return self.is_played and not any(group.waits for group in self.parts.values())


class Evaluations:
    """The evaluations of one incarnation of one run. `evaluated`: what earlier ones concluded, by version."""

    def __init__(
        self,
        settings: TrainerSettings,
        dependencies: TrainerDependencies,
        progress: TrainingProgress,
        publisher: Publisher,
        writer: BackgroundWriter,
        evaluated: Mapping[int, VersionEvaluated],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._dependencies = dependencies
        self._progress = progress
        self._publisher = publisher
        self._writer = writer
        self._settled = set(evaluated)
        self._best: dict[bool, tuple[float, int]] = {}
        """Figure and version by whether the tasks are held out: figures of other tasks are not compared."""
        for event in evaluated.values():
            if event.best and (figure := _figure(event)) is not None:
                best = figure, event.version
                self._best[bool(event.held_out)] = max(best, self._best.get(bool(event.held_out), best))
        self._open: dict[int, OpenEvaluation] = {}
        self._every: int | None = None
        self._now_s = now_s

    def look(self) -> None:
        """Conclude what is judged; wait, up to `evaluation_wait_s` without a sign of it, for the evaluation of the version in
        memory. Once per round, between a plan and its training. Raises Stopped, Fenced, LogError."""
        self._wait_while(self._is_awaited)

    def conclude_all(self) -> None:
        """At the end of the run: with what there is.

        Verdicts are waited for up to `evaluation_wait_s` without a sign.
        """
        self.look()
        self._wait_while(self._are_rewards_awaited)
        for version in sorted(self._open):
            self._conclude(version)

    def _wait_while(self, is_awaited: Callable[[float], bool]) -> None:
        began_s = self._now_s()
        while self._read() and is_awaited(began_s):
            self._dependencies.raise_if_stopped()
            self._dependencies.stop.wait(self._settings.poll_interval_s)
        waited_s = self._now_s() - began_s
        if waited_s > self._settings.wait_log_interval_s:
            log.info("evaluation_waited_for", version=self._progress.version, waited_s=round(waited_s, 1))

    def _read(self) -> bool:
        """Reads the groups, and returns whether this run is evaluated at all; what is over is concluded."""
        for record in self._dependencies.pool.groups():
            if record.channel == Channel.VALIDATION and record.run_id == self._settings.run_id:
                task = EvaluatedTask.of(record.tags)
                if task is not None:
                    self._take(task, record)
        for version, evaluation in sorted(self._open.items()):
            quiet_s = self._now_s() - evaluation.moved_s
            if evaluation.is_whole or quiet_s > self._settings.evaluation_quiet_s:
                self._conclude(version)
        return self._every is not None

    def _take(self, task: EvaluatedTask, record: GroupRecord) -> None:
        if task.version in self._settled:
            self._dependencies.pool.forget(record.group_id)
            return
        self._every = task.every
        evaluation = self._open.get(task.version)
        earlier = evaluation.parts.get(task.part) if evaluation else None
        if earlier is not None and earlier.record == record:
            return  # nor has anything below it changed
        rows = self._dependencies.pool.trajectories(record)
        if rows is not None:
            evaluation = evaluation or OpenEvaluation(self._now_s())
            self._open[task.version] = evaluation
            waits = self._awaits_verdict(record)
            evaluation.take(EvaluatedGroup(task, record, rows, waits))
        if evaluation is not None:
            evaluation.see(record, self._now_s())

    def _awaits_verdict(self, record: GroupRecord) -> bool:
        """Returns whether an episode has no return yet, or a reward that batches wait for may still come."""
        spec = self._settings.spec
        is_required = bool(spec.rewards_required) and spec.reward_missing != "reject"
        members = self._dependencies.pool.members(record)
        if members is None:
            return True  # the pool has moved on since
        for row, steps in members:
            if row.status == "completed" and is_over(row):
                lacks = member_of(record, row, steps, spec).lacks if is_required else {}
                if None in lacks.values() or not is_judged(row, steps):
                    return True
        return False

    def _are_rewards_awaited(self, _: float) -> bool:
        """Returns whether one that was played had a sign of life lately."""
        played = (each for each in self._open.values() if each.is_played)
        newest_s = max((each.moved_s for each in played), default=-inf)
        quiet_s = self._now_s() - newest_s
        return quiet_s < self._settings.evaluation_wait_s

    def _is_awaited(self, began_s: float) -> bool:
        version = self._progress.named_version
        evaluation = self._open.get(version)
        if version in self._settled or (evaluation is None and (self._every is None or version % self._every)):
            return False
        if evaluation is not None and evaluation.is_played:
            return False
        sign_s = began_s if evaluation is None else evaluation.moved_s
        if self._now_s() - sign_s <= self._settings.evaluation_wait_s:
            return True
        self._every = None  # until the next one is seen
        self._dependencies.metrics.evaluations_given_up.inc()
        log.warning("evaluation_not_waited_for", version=version, began=evaluation is not None)
        return False

    def _conclude(self, version: int) -> None:
        evaluation = self._open[version]
        if evaluation.is_played and not evaluation.is_whole:
            log.warning(
                "evaluation_not_judged",
                version=version,
                reason="its scorers are slow or off, or do not judge `val`",
            )
        parts = list(evaluation.parts.values())
        outcome = score(parts, self._settings.run_id)
        figure, is_best = outcome.figure, self._is_best(version, outcome)
        export = self._keep(version) if is_best else None
        self._dependencies.journal.commit(self._event(version, outcome, export, best=is_best))
        log.info(
            "version_evaluated",
            version=version,
            greedy=outcome.greedy,
            pass_at=outcome.pass_at,
            best=is_best,
            held_out=outcome.held_out,
        )
        if figure is not None and is_best:
            self._best[outcome.held_out] = figure, version
            for old in list(self._publisher.exports.glob("best-*")):
                if export is not None and old != export:
                    remove(old)
        self._settled.add(version)
        for group_id in self._open.pop(version).progress:
            self._dependencies.pool.forget(group_id)

    def _is_best(self, version: int, outcome: Score) -> bool:
        """Returns whether no version was better, nor a later one as good: verdicts may come in another order.

        Trained tasks outdo no held-out ones: they measure memorisation.
        """
        figure, held_out = outcome.figure, outcome.held_out
        if figure is None or (True in self._best and not held_out):
            return False
        best = figure, version
        return best >= self._best.get(held_out, best)

    def _event(self, version: int, outcome: Score, export: Path | None, *, best: bool) -> VersionEvaluated:
        run_id = self._settings.run_id
        event_id = decision_id("VersionEvaluated", run_id, str(version))
        return VersionEvaluated(
            envelope=envelope(self._dependencies.producer, run_id=run_id, event_id=event_id),
            run_id=run_id,
            version=version,
            trajectories=outcome.counted,
            left_out=outcome.left_out,
            greedy=outcome.greedy,
            pass_at=dict(outcome.pass_at),
            best=best,
            held_out=outcome.held_out,
            checkpoint_uri=None if export is None else export.resolve().as_uri(),
        )

    def _keep(self, version: int) -> Path | None:
        """A copy of the version's export that shares its bytes on disk; None, and why, where the weights cannot be had."""
        self._writer.wait()  # an export under way is the version's own, or drops an older one
        try:
            source = next(self._publisher.exports.glob(f"{version:08d}-*"), None)
            if source is None and version == self._progress.version:
                source = self._publisher.export(version, self._publisher.candidate())
            if source is not None:
                return _linked(source, source.with_name(f"best-{source.name}"))
            reason = "the run went on before its evaluation was over, and it was not due for an export"
        except OSError as error:
            reason = str(error)
        log.warning("best_version_not_kept", version=version, reason=reason)
        return None


def _figure(event: VersionEvaluated) -> float | None:
    return Score(event.trajectories, event.left_out, event.greedy, event.pass_at).figure


def _linked(source: Path, target: Path) -> Path:
    """`target` with the files of `source`, whole or not at all; hard links where the file system has them."""
    if not target.is_dir():
        partial = PartialDirectory(target)
        partial.fill(lambda: shutil.copytree(source, partial.path, copy_function=_link, dirs_exist_ok=True))
    return target


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
