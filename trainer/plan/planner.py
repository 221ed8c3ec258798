"""Waits for a complete batch and commits to it: when `next_batch` has returned, its plan is in the log.

Invariant: a committed plan can be trained, because its rows were assembled before, and are the ones trained.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import structlog

from claw_r1.datapool.batch.eligibility import CHANGING, word_of
from claw_r1.datapool.batch.plan import assemble, groups_of
from claw_r1.datapool.batch.selection import Selection, Selector
from claw_r1.datapool.errors import FactUnreadable
from claw_r1.datapool.fold.bounds import SKIPPED_GROUPS_MAX
from claw_r1.datapool.view.planned_rows import unreadable_groups
from claw_r1.eventlog.errors import NotCaughtUp
from claw_r1.eventlog.records import Position
from claw_r1.schemas.envelopes import decision_id, envelope
from claw_r1.schemas.events import BatchAssembled, BatchSkipped
from claw_r1.trainer.dependencies import Milestone, TrainerDependencies
from claw_r1.trainer.plan.prefetch import FactsAhead
from claw_r1.trainer.plan.skips import Skips
from claw_r1.trainer.plan.training_batch import TrainingBatch, read
from claw_r1.trainer.progress import TrainingProgress
from claw_r1.trainer.settings import TrainerSettings

log = structlog.get_logger()

PAUSE_S = 1.0
"""Between two attempts to reach a broker that is away."""
CATCH_UP_STEP_S = 3.0
"""How long one wait for the pool lasts before `stop` is checked; far longer than a broker needs to say where
its end is."""


class Planner:
    """Plans batches of one run. It moves `progress.consumed` and nothing else."""

    def __init__(
        self, settings: TrainerSettings, dependencies: TrainerDependencies, progress: TrainingProgress
    ) -> None:
        self._settings = settings
        self._dependencies = dependencies
        self._progress = progress
        self._skipped = Skips(settings)
        self._selector = Selector(dependencies.pool, settings.spec, settings.run_id)
        self._facts = FactsAhead(dependencies.facts, self._pause)

    def wait_for_pool(self) -> None:
        """Until the pool was read to its end: the spec's order means nothing among the groups that happen to be read.

        Raises Stopped, LogError when the view of the pool ended (no broker answers it any more, for example).
        """
        started_at = logged_at = time.monotonic()
        while True:
            self._dependencies.raise_if_stopped()
            try:
                self._dependencies.pool.wait_caught_up(CATCH_UP_STEP_S)
            except NotCaughtUp as behind:
                if time.monotonic() - logged_at >= self._settings.wait_log_interval_s:
                    logged_at = time.monotonic()
                    log.info(
                        "reading_pool", records_left=behind.records_left, waited_s=round(logged_at - started_at, 1)
                    )
            else:
                return

    def next_batch(self) -> tuple[TrainingBatch, float] | None:
        """The next batch, its plan committed, and the seconds waited for it; None when no whole one will ever be there.

        Raises Stopped, Fenced, LogError.
        """
        started_at = logged_at = time.monotonic()
        self._skipped.see(self._progress)
        while True:
            self._dependencies.raise_if_stopped()
            selection = self._select()
            if selection.complete:
                waited_s = time.monotonic() - started_at
                batch = self._put_together(selection)
                if batch is None:
                    continue  # other groups take the places of those that cannot be read
                batch = replace(batch, skipped=self._skipped.total)
                self._commit(batch.plan)
                return batch, waited_s
            if not self._dependencies.pool_grows and CHANGING.reason not in selection.left_out.values():
                self._log_missing_groups(selection, 0.0)
                return None
            if time.monotonic() - logged_at >= self._settings.wait_log_interval_s:
                logged_at = time.monotonic()
                self._log_missing_groups(selection, logged_at - started_at)
            self._dependencies.stop.wait(self._settings.poll_interval_s)

    def read_ahead(self) -> None:
        """Begin to read the facts of the groups that would make the next batch now; others may come in their place."""
        progress = self._progress  # its next batch is being trained
        selection = self._selector.select(progress.version_free, progress.consumed, progress.sequence_free + 1)
        members = (member for group in selection.chosen for member in group.members)
        positions = (step.position for member in members for step in member.steps)
        self._facts.read(Position.of(position) for position in positions if position is not None)

    def close(self) -> None:
        """Ends the thread that reads ahead."""
        self._facts.close()

    def consume(self, group_ids: Iterable[str]) -> None:
        """This run plans these groups no more."""
        for group_id in group_ids:
            self._progress.consumed.add(group_id)
            self._dependencies.pool.forget(group_id)

    def _pause(self) -> None:
        self._dependencies.stop.wait(PAUSE_S)
        self._dependencies.raise_if_stopped()

    def _select(self) -> Selection:
        """The groups of the next batch. Groups that will never be trained are skipped at once: others wait for their capacity."""
        progress = self._progress
        selection = self._selector.select(progress.named_version, progress.consumed, progress.sequence_free)
        if selection.skipped:
            self._skip(selection.skipped)
        return selection

    def _put_together(self, selection: Selection) -> TrainingBatch | None:
        """The plan with its rows; None: groups of it cannot be read, and are skipped by name."""
        plan = self._plan(selection)
        try:
            return read(plan, self._facts, self._dependencies.learner.vocabulary, self._dependencies.render)
        except FactUnreadable as unreadable:
            log.warning("batch_unreadable", batch=plan.sequence, error=str(unreadable))
            groups = unreadable_groups(
                plan, self._facts, self._dependencies.learner.vocabulary, self._dependencies.render
            )
            if not groups:
                raise  # each of them alone can be read: another attempt would end the same way
            self._skip(groups)
            return None

    def _skip(self, skipped: Mapping[str, str]) -> None:
        """skipped: group_id -> why this run will never train it."""
        self._dependencies.journal.commit(*self._skips(skipped))
        self.consume(skipped)
        self._skipped.count(skipped)
        self._dependencies.metrics.skip(map(word_of, skipped.values()))

    def _skips(self, skipped: Mapping[str, str]) -> list[BatchSkipped]:
        log.info("groups_skipped", reasons=dict(Counter(skipped.values())))
        return [
            BatchSkipped(
                envelope=envelope(self._dependencies.producer, run_id=self._settings.run_id),
                run_id=self._settings.run_id,
                group_ids=group_ids,
                reason=reason,
            )
            for reason, group_ids in by_reason(skipped)
        ]

    def _plan(self, selection: Selection) -> BatchAssembled:
        settings, sequence = self._settings, self._progress.sequence_free
        event_id = decision_id("BatchAssembled", settings.run_id, str(sequence))
        return assemble(
            selection.chosen,
            settings.spec,
            run_id=settings.run_id,
            sequence=sequence,
            version=self._progress.named_version,
            seed=seed_of(settings.seed, sequence),
            envelope=envelope(self._dependencies.producer, run_id=settings.run_id, event_id=event_id),
        )

    def _commit(self, plan: BatchAssembled) -> None:
        self._dependencies.journal.commit(plan)
        self.consume(groups_of(plan))
        self._skipped.begin_anew()
        self._dependencies.reached(Milestone.PLANNED)

    def _log_missing_groups(self, selection: Selection, waited_s: float) -> None:
        own = {name: why for name, why in selection.left_out.items() if name not in selection.foreign}
        self._skipped.starve(own, waited_s, selection.missing)
        ready, needed = len(selection.chosen), self._settings.spec.groups_per_batch
        self._dependencies.metrics.short_of_groups(ready, Counter(map(word_of, own.values())))
        left_out = dict(Counter(reason.split(":")[0] for reason in selection.left_out.values()))
        waits = {"ready": ready, "needed": needed, "left_out": left_out, "waited_s": round(waited_s, 1)}
        log.info("waiting_for_groups", **waits, **({"missing": selection.missing} if selection.missing else {}))


def by_reason(skipped: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each reason with its groups, sorted; several times where they are too many for one event."""
    for reason in sorted(set(skipped.values())):
        group_ids = sorted(group_id for group_id, why in skipped.items() if why == reason)
        for start in range(0, len(group_ids), SKIPPED_GROUPS_MAX):
            yield reason, tuple(group_ids[start : start + SKIPPED_GROUPS_MAX])


def seed_of(run_seed: int, sequence: int) -> int:
    """Seed of everything random in a batch: a function of the run's seed, so that a plan says it all."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}/{sequence}".encode()).digest()[:4])
