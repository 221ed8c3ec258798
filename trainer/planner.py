"""Waiting for a whole batch, and the commitment to it: after `next_plan` returned, the plan is in the log."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import structlog

from datapool.bounds import SKIPPED_GROUPS_MAX
from datapool.plan import Selection, assemble, groups_of, select
from schemas.envelopes import decision_id, envelope
from schemas.events import BatchAssembled, BatchSkipped
from trainer.progress import Progress
from trainer.settings import TrainerSettings
from trainer.world import Collaborators, Milestone

log = structlog.get_logger()


class Planner:
    """Plans batches of one run. It moves `progress.settled` and nothing else."""

    def __init__(self, settings: TrainerSettings, world: Collaborators, progress: Progress) -> None:
        self._settings = settings
        self._world = world
        self._progress = progress

    def next_plan(self) -> tuple[BatchAssembled, float]:
        """The committed plan of the next batch, and the seconds waited for it. Raises Stopped, Fenced."""
        began = said = time.monotonic()
        while True:
            self._world.raise_if_stopped()
            selection = self._select()
            if selection.complete:
                return self._commit(selection), time.monotonic() - began
            if time.monotonic() - said >= self._settings.wait_log_interval_s:
                said = time.monotonic()
                self._say_what_is_missing(selection, said - began)
            self._world.stop.wait(self._settings.poll_interval_s)

    def settle(self, group_ids: Iterable[str]) -> None:
        """This run plans these groups no more."""
        for group_id in group_ids:
            self._progress.settled.add(group_id)
            self._world.pool.forget(group_id)

    def _select(self) -> Selection:
        """Groups that will never be trained are said so at once: others wait for their admission capacity."""
        settings, progress = self._settings, self._progress
        selection = select(self._world.pool, settings.spec, progress.named_version, settings.run_id, progress.settled)
        if selection.skipped:
            self._world.journal.commit(*self._skips(selection.skipped))
            self.settle(selection.skipped)
        return selection

    def _skips(self, skipped: Mapping[str, str]) -> list[BatchSkipped]:
        log.info("groups_skipped", reasons=dict(Counter(skipped.values())))
        return [
            BatchSkipped(
                envelope=envelope(self._world.producer, run_id=self._settings.run_id),
                run_id=self._settings.run_id,
                group_ids=group_ids,
                reason=reason,
            )
            for reason, group_ids in by_reason(skipped)
        ]

    def _commit(self, selection: Selection) -> BatchAssembled:
        settings, sequence = self._settings, self._progress.sequence + 1
        event_id = decision_id("BatchAssembled", settings.run_id, str(sequence))
        plan = assemble(
            selection.chosen,
            settings.spec,
            run_id=settings.run_id,
            sequence=sequence,
            version=self._progress.named_version,
            seed=seed_of(settings.seed, sequence),
            envelope=envelope(self._world.producer, run_id=settings.run_id, event_id=event_id),
        )
        self._world.journal.commit(plan)
        self.settle(groups_of(plan))
        self._world.reached(Milestone.PLANNED)
        return plan

    def _say_what_is_missing(self, selection: Selection, waited_s: float) -> None:
        log.info(
            "waiting_for_groups",
            ready=len(selection.chosen),
            wanted=self._settings.spec.groups_per_batch,
            left_out=dict(Counter(reason.split(":")[0] for reason in selection.left_out.values())),
            waited_s=round(waited_s, 1),
        )


def by_reason(skipped: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each reason with its groups, sorted; several times where they are too many for one event."""
    for reason in sorted(set(skipped.values())):
        group_ids = sorted(group_id for group_id, why in skipped.items() if why == reason)
        for start in range(0, len(group_ids), SKIPPED_GROUPS_MAX):
            yield reason, tuple(group_ids[start : start + SKIPPED_GROUPS_MAX])


def seed_of(run_seed: int, sequence: int) -> int:
    """Seed of everything random in a batch: a function of the run's seed, so that a plan says it all."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}/{sequence}".encode()).digest()[:4])
