"""From a committed plan to a published version: train, keep, stage, publish, in this order (see `run.py`)."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from claw_r1.datapool.batch.plan import groups_of
from claw_r1.eventlog.errors import LogError
from claw_r1.runtime.monitoring.tracing import Attributes, spans
from claw_r1.schemas.envelopes import envelope, now_us
from claw_r1.schemas.events import BatchTrained
from claw_r1.schemas.http import version_label
from claw_r1.trainer.dependencies import Milestone, TrainerDependencies
from claw_r1.trainer.learn.metrics import finite
from claw_r1.trainer.plan.learner_batch import learner_batch
from claw_r1.trainer.plan.plan_metrics import plan_metrics
from claw_r1.trainer.plan.training_batch import TrainingBatch
from claw_r1.trainer.progress import TrainingProgress
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.storage.async_writer import BackgroundWriter, log_not_written
from claw_r1.trainer.storage.checkpoints import WEIGHTS_DIGEST, Checkpoints
from claw_r1.trainer.storage.reports import Reports
from claw_r1.trainer.versions.publication import Candidate, Publisher
from claw_r1.weights.archive import VersionArchive

log = structlog.get_logger()


class Updater:
    """Carries out plans for one incarnation of one run. It moves all of `progress` but `consumed`.

    A batch whose step was skipped is published like any other, as a version of equal bytes: it counts, and nothing waits.
    """

    def __init__(
        self,
        settings: TrainerSettings,
        dependencies: TrainerDependencies,
        progress: TrainingProgress,
        *,
        publisher: Publisher,
        checkpoints: Checkpoints,
        reports: Reports,
        writer: BackgroundWriter,
        incarnation: int,
    ) -> None:
        self._settings = settings
        self._dependencies = dependencies
        self._progress = progress
        self._publisher = publisher
        self._checkpoints = checkpoints
        self._reports = reports
        self._writer = writer
        self._incarnation = incarnation
        self._archive = archive_of(settings)

    def carry_out(self, batch: TrainingBatch, waited_s: float) -> None:
        """Steps 2 to 5 of a batch."""
        began_us = now_us()
        values = finite({**self.train(batch), "wait_s": waited_s})
        self._dependencies.reached(Milestone.TRAINED)
        is_checkpoint_due = (batch.plan.sequence + 1) % self._settings.checkpoint_every == 0
        if is_checkpoint_due or self._is_export_due(self._progress.version_free):
            self._writer.wait()  # copies of one batch at a time: a slow disk slows the run and fills no memory
        candidate = self._publisher.candidate()
        checkpoint = self._keep(candidate, values) if is_checkpoint_due else None
        self.publish(values, candidate, checkpoint, groups_of(batch.plan))
        if (own := spans()) is not None:
            version = version_label(batch.plan.run_id, self._progress.named_version)
            attributes: Attributes = {"claw.batch": batch.plan.sequence, "claw.policy_version": version}
            own.record("train batch", began_us, batch.traceparents, attributes)

    def train(self, batch: TrainingBatch) -> dict[str, float]:
        """Step 2 alone: the weights change and have no version until they are published. Metrics of the batch."""
        began = time.monotonic()
        values = self._dependencies.learner.train(learner_batch(batch), self._dependencies.raise_if_stopped)
        self._progress.sequence, self._progress.version = batch.plan.sequence, None
        rendered = sum(len(row.rendered_calls) for row in batch.rows)
        return {
            **plan_metrics(batch.plan),
            **({"rendered_responses": float(rendered)} if rendered else {}),
            **values,
            "groups_skipped": float(batch.skipped),
            "read_s": batch.read_s,
            "train_s": time.monotonic() - began,
        }

    def _is_export_due(self, version: int) -> bool:
        return version % self._settings.hf_every == 0

    def _keep(self, candidate: Candidate, values: Mapping[str, float]) -> Path | None:
        """Step 3: the state is copied now and written by the writer's thread, with the digest of the weights, which is hashed
        meanwhile. None: the disk takes nothing."""
        sequence = self._progress.sequence
        target = self._checkpoints.path(sequence, self._incarnation)
        state = {
            "run_id": self._settings.run_id,
            "sequence": sequence,
            "version": self._progress.version_free,
            "metrics": dict(values),
        }

        def save(partial: Path) -> Callable[[], None]:
            write = self._dependencies.learner.save(partial, state)

            def write_all() -> None:
                write()
                (partial / WEIGHTS_DIGEST).write_text(candidate.manifest.digest)

            return write_all

        try:
            finish = self._checkpoints.begin(target, save)
        except OSError as error:
            log_not_written(f"checkpoint {target.name}", error)
            return None

        def write() -> None:
            finish()
            self._dependencies.reached(Milestone.KEPT)

        self._writer.submit(f"checkpoint {target.name}", write)
        return target

    def publish(
        self, values: Mapping[str, float], candidate: Candidate, checkpoint: Path | None, groups: Sequence[str] = ()
    ) -> None:
        """Steps 4 and 5: the candidate becomes the next version, made by batch `progress.sequence`. groups: of its plan;
        none: readers use the plan.

        Raises NothingLearned.
        """
        progress, version, sequence = self._progress, self._progress.version_free, self._progress.sequence
        self._publisher.stage(version, candidate)
        self._dependencies.reached(Milestone.STAGED)
        trained = BatchTrained(
            envelope=envelope(self._dependencies.producer, run_id=self._settings.run_id),
            run_id=self._settings.run_id,
            sequence=sequence,
            version=version,
            metrics=dict(values),
            group_ids=tuple(groups),
            checkpoint_uri="" if checkpoint is None else checkpoint.resolve().as_uri(),
            critic_digest=self._dependencies.learner.critic_digest,
        )
        published = self._publisher.event(version, candidate, None, sequence)
        self._dependencies.journal.commit(published, trained)
        self._publisher.settle(version)
        progress.version, progress.digest, progress.version_free = version, candidate.manifest.digest, version + 1
        progress.count(sequence, values)
        self.archive(version, candidate)
        self.export_if_due(version, candidate, sequence)
        self._reports.write(trained)
        self._dependencies.metrics.trained(trained)
        self._dependencies.reached(Milestone.PUBLISHED)
        progress.raise_if_nothing_learned()

    def archive(self, version: int, candidate: Candidate) -> None:
        """Soon, by the writer's thread, behind what it still has to write: a slow disk slows the run, and fills no memory."""
        if (archive := self._archive) is not None:
            self._writer.wait()
            self._writer.submit(f"archive {version}", lambda: archive.add(candidate.snapshot))

    def export_if_due(self, version: int, candidate: Candidate, sequence: int | None) -> None:
        """Soon, by the writer's thread. sequence: of the batch that made the version; None: the initial weights."""
        if self._is_export_due(version):
            self._writer.submit(f"export {version}", lambda: self._export(version, candidate, sequence))

    def _export(self, version: int, candidate: Candidate, sequence: int | None) -> None:
        """By the writer's thread: the version is announced once more when its export is on disk."""
        export = self._publisher.export(version, candidate)
        try:
            self._dependencies.journal.commit(self._publisher.event(version, candidate, export, sequence))
        except LogError as error:  # the loop meets the same, and decides
            log.warning("export_not_announced", version=version, export=str(export), error=str(error))


def archive_of(settings: TrainerSettings) -> VersionArchive | None:
    """Returns the archive of a run's versions, where it has one."""
    if settings.archive_dir is None:
        return None
    return VersionArchive(settings.archive_dir / settings.run_id, settings.archive_whole_every)
