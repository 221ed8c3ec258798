"""The training loop: from ready groups to a published version, each batch exactly once across crashes.

Order per batch, and why each step may be the last one before a crash:
  1. plan      its rows are read from the facts, then BatchAssembled is committed. Nothing else is trained under this
               sequence number from now on.
  2. train     from these rows. Lost with the process: trained again from the facts that the plan names.
  3. keep      a checkpoint, where due: copied here, written by a thread. Found again: not trained a second time.
  4. stage     the weights are served here, but not announced yet.
  5. publish   {WeightsPublished, BatchTrained} in one transaction. An export, where due, is written by the same thread and
               announced by WeightsPublished of the same version once it is on disk.
Resuming takes the run over (fencing), reads its history, loads the newest checkpoint and replays the plans after it. A
replay that does not give the published bytes again takes a version number that was never used. A plan that was not
trained and cannot be read any more is given up by a BatchSkipped with its sequence number, which stays taken.
A run whose end (RunEnded) settings put further away is resumed like any other: a RunStarted behind a RunEnded takes it back.
"""

from collections.abc import Iterable
from contextlib import closing
from typing import Literal

import structlog

from claw_r1.schemas.envelopes import envelope, new_id
from claw_r1.schemas.events import BatchTrained, RunEnded
from claw_r1.trainer.config.changes import check_changes
from claw_r1.trainer.dependencies import Milestone, TrainerDependencies
from claw_r1.trainer.errors import Stopped
from claw_r1.trainer.journal.history import History
from claw_r1.trainer.plan.planner import Planner
from claw_r1.trainer.progress import NO_BATCH, USED_UP, TrainingProgress, reason_to_end, why_over
from claw_r1.trainer.resume import Resumption
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.storage.async_writer import BackgroundWriter, log_not_written
from claw_r1.trainer.storage.checkpoints import Checkpoints
from claw_r1.trainer.storage.owner import check_own
from claw_r1.trainer.storage.reports import Reports
from claw_r1.trainer.storage.sinks import opened
from claw_r1.trainer.update import Updater
from claw_r1.trainer.versions.evaluations import Evaluations
from claw_r1.trainer.versions.publication import Publisher, probe_ids
from claw_r1.weights.snapshot import Snapshots

log = structlog.get_logger()

RunEnding = Literal["finished", "stopped", "over"]
"""over: it was over before, and these settings continue nothing."""
STOPPED_S = 1.0
"""Seconds after a SIGTERM that other programs may take to write their curves."""


class TrainingRun:
    """One incarnation of one run."""

    def __init__(self, settings: TrainerSettings, dependencies: TrainerDependencies) -> None:
        self._settings = settings
        self._dependencies = dependencies
        self._progress = TrainingProgress()
        self.why_over: str | None = None
        """The reason why nothing was done, in a sentence, where the run was over."""
        self._writer = BackgroundWriter()
        self._publisher = Publisher(
            weights=dependencies.learner,
            transfer_server=dependencies.transfer_server,
            exports=settings.out_dir / "hf",
            run_id=settings.run_id,
            model_id=settings.model_id,
            epoch=new_id(),
            producer=dependencies.producer,
            exports_kept=settings.hf_kept,
            snapshots=Snapshots(dependencies.copies),
            adapter_snapshots=Snapshots(dependencies.copies),
            lora=settings.lora,
            staleness_max=settings.spec.staleness_max,
            probe_ids=probe_ids(settings.model_dir, dependencies.learner.vocabulary, settings.probe_tokens),
        )

    @property
    def version(self) -> int:
        """The version that this run published last."""
        return self._progress.version_free - 1

    @property
    def standing(self) -> dict[str, int | float | str | None]:
        """The progress of the run, for people and programs."""
        progress = self._progress
        last = progress.rewards[-1] if progress.rewards else None
        return {
            "run_id": self._settings.run_id,
            "batches": progress.batches,
            "version": self.version,
            "reward_last": last,
        }

    def run(self) -> RunEnding:
        """Runs until the run is over, or told to stop, and can then be resumed. A finished run continues if these
        settings allow more.

        Raises Fenced when another trainer takes the run over, TrainerError and LogError for what no retry cures.
        """
        checkpoints = Checkpoints(self._settings.out_dir / "checkpoints", self._settings.checkpoints_kept)
        kept = checkpoints.all()
        history = self._dependencies.journal.open(plans_after=kept[0].sequence if kept else NO_BATCH)
        self._progress.version_free = history.version_free
        self._publisher.snapshots.algorithm = history.digest_algorithm
        if history.ended is not None:
            self.why_over = why_over(history.ended, history.progress, self._settings)
            if self.why_over is not None:
                self._progress = history.progress
                self._progress.version_free = history.version_free
                self._dependencies.metrics.enter("ended")
                log.warning("run_was_over", run_id=self._settings.run_id, batches=history.ended.batches)
                return "over"
            log.info("run_continued", run_id=self._settings.run_id, ended=history.ended.reason)
        self._check_settings(history)
        check_own(self._settings.out_dir, kept[-1] if kept else None, history)
        earlier, metrics = history.batches, self._dependencies.metrics
        metrics.begin(self._settings.spec)
        metrics.resume(earlier)
        with closing(self._writer), closing(self._reports(earlier)) as reports:
            planner = Planner(self._settings, self._dependencies, self._progress)
            try:
                self._train(history, checkpoints, reports, planner)
            except Stopped:
                metrics.enter("exporting")
                self._writer.wait()
                try:
                    self._export_before_leaving()
                except OSError as error:
                    log_not_written("last version", error)
                reports.close(STOPPED_S)
                log.info("stopped", run_id=self._settings.run_id, batches=self._progress.batches)
                return "stopped"
            finally:
                planner.close()
        metrics.enter("ended")
        return "finished"

    def _reports(self, earlier: Iterable[BatchTrained]) -> Reports:
        settings = self._settings
        return Reports(settings.out_dir, earlier, opened(settings), board="tensorboard" in settings.sinks)

    def _check_settings(self, history: History) -> None:
        """Runs before this incarnation's start is recorded: it has not changed the run yet."""
        if history.started is not None:
            chosen = self._settings
            check_changes(
                history.started.config,
                chosen,
                run_id=chosen.run_id,
                may_change=chosen.MAY_CHANGE,
                allowed=chosen.allow_change,
            )

    def _train(self, history: History, checkpoints: Checkpoints, reports: Reports, planner: Planner) -> None:
        settings, dependencies, progress = self._settings, self._dependencies, self._progress
        updater = Updater(
            settings,
            dependencies,
            progress,
            publisher=self._publisher,
            checkpoints=checkpoints,
            reports=reports,
            writer=self._writer,
            incarnation=history.incarnations + 1,
        )
        planner.consume(history.settled)
        Resumption(
            settings,
            dependencies,
            progress,
            history,
            publisher=self._publisher,
            checkpoints=checkpoints,
            updater=updater,
        ).run()
        dependencies.reached(Milestone.STARTED)
        enter = dependencies.metrics.enter
        enter("reading_pool")
        planner.wait_for_pool()
        evaluations = Evaluations(settings, dependencies, progress, self._publisher, self._writer, history.evaluations)
        while (reason := reason_to_end(progress, settings)) is None:
            enter("waiting_for_groups")
            batch = planner.next_batch()
            if batch is None:
                reason = USED_UP
                break
            enter("waiting_for_evaluation")
            evaluations.look()
            enter("training")
            planner.read_ahead()
            updater.carry_out(*batch)
        enter("waiting_for_evaluation")
        evaluations.conclude_all()
        enter("exporting")
        self._end(reason)

    def _export_before_leaving(self) -> None:
        """The last version once more, with an export: a worker that starts while no trainer serves it loads it from there.

        Whoever stops the process bounds the time (`signals.py`); a kill in the middle of this leaves no half of it.
        """
        progress, publisher = self._progress, self._publisher
        if progress.version != self.version:
            log.warning("stopped_without_export", reason="the weights in memory are not yet those published last")
            return
        candidate = publisher.candidate()
        if progress.version is None or progress.digest != candidate.manifest.digest:
            log.warning("stopped_without_export", reason="the weights in memory are in the middle of a batch")
        elif publisher.exported(progress.version, candidate.manifest) is None:
            log.info("exporting_before_leaving", version=progress.version, timeout_s=self._settings.stop_timeout_s)
            export = publisher.export(progress.version, candidate)
            event = publisher.event(progress.version, candidate, export, progress.sequence_published)
            self._dependencies.journal.commit(event)

    def _end(self, reason: str) -> None:
        """The final weights once more, now with an export that outlives this process, and the end of the run."""
        self._writer.wait()
        candidate, version = self._publisher.candidate(), self._progress.named_version
        export = self._publisher.export(version, candidate)
        self._dependencies.reached(Milestone.EXPORTED)
        ended = RunEnded(
            envelope=envelope(self._dependencies.producer, run_id=self._settings.run_id),
            run_id=self._settings.run_id,
            status="finished",
            reason=reason,
            batches=self._progress.batches,
            version=version,
        )
        final = self._publisher.event(version, candidate, export, self._progress.sequence_published)
        self._dependencies.journal.commit(final, ended)
        log.info("run_ended", reason=reason, batches=ended.batches, version=version, export=str(export))
        self._dependencies.reached(Milestone.ENDED)
