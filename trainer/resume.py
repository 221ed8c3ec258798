"""Resuming a run: from its history and its newest checkpoint to weights that have a version and are served to workers.

Invariant: what this does a second time, after a crash in the middle of it, ends in the same state.
"""

from typing import Any

import structlog

from claw_r1.datapool.batch.plan import groups_of
from claw_r1.datapool.errors import FactUnreadable
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import BatchAssembled, BatchSkipped, RunStarted
from claw_r1.trainer.dependencies import TrainerDependencies
from claw_r1.trainer.errors import BatchLost, CheckpointForeign, CheckpointInvalid
from claw_r1.trainer.journal.history import History
from claw_r1.trainer.plan.training_batch import read
from claw_r1.trainer.progress import TrainingProgress
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.storage.checkpoints import Checkpoint, Checkpoints, load_newest
from claw_r1.trainer.storage.directories import clear_partial
from claw_r1.trainer.update import Updater
from claw_r1.trainer.versions.publication import Publisher
from claw_r1.weights.manifest import WeightsManifest

log = structlog.get_logger()

DAMAGED = ".damaged"
"""Suffix of the name of a checkpoint that could not be loaded: it no longer counts, and is kept for diagnosis."""


class Resumption:
    """One use: `run` brings `progress`, the engine and the log to the end of `history`."""

    def __init__(
        self,
        settings: TrainerSettings,
        dependencies: TrainerDependencies,
        progress: TrainingProgress,
        history: History,
        *,
        publisher: Publisher,
        checkpoints: Checkpoints,
        updater: Updater,
    ) -> None:
        self._settings = settings
        self._dependencies = dependencies
        self._progress = progress
        self._history = history
        self._publisher = publisher
        self._checkpoints = checkpoints
        self._updater = updater

    def run(self) -> None:
        """Raises CheckpointInvalid, BatchLost, Stopped, Fenced."""
        self._checkpoints.clear_partial()
        clear_partial(self._publisher.exports)
        self._progress.given_up |= self._history.given_up
        usable = [each for each in self._checkpoints.all() if each.sequence not in self._history.given_up]
        if usable:
            self._dependencies.journal.commit(self._started())
            self._load_newest(usable)
        else:
            self._begin_with_initial_weights()
        self._replay_plans()
        if self._history.incarnations:
            self._announce()
        log.info("weights_served", version=self._progress.version, url=self._dependencies.transfer_server.url)

    def _begin_with_initial_weights(self) -> None:
        """The start of the run and its version 0 are one transaction: a run that has started has weights."""
        candidate, published = self._publisher.candidate(), self._history.published.get(0)
        if published is not None and published.digest != candidate.manifest.digest:
            raise CheckpointInvalid(
                f"model_dir or precision is not the one that run {self._settings.run_id} began with"
            )
        export = self._publisher.export(0, candidate)
        self._publisher.stage(0, candidate)
        first = [] if published is not None else [self._publisher.event(0, candidate, export, None)]
        self._dependencies.journal.commit(self._started(), *first)
        self._progress.version, self._progress.digest = 0, candidate.manifest.digest
        self._progress.version_free = max(1, self._history.version_free)
        if published is None:  # else what is announced in the end is archived
            self._updater.archive(0, candidate)

    def _load_newest(self, usable: list[Checkpoint]) -> None:
        """Loads the newest of the checkpoints that can be loaded; newer ones are set aside under another name.

        Only once another one was loaded: what keeps all of them from being loaded is no fault of theirs.
        """
        loaded, damages = load_newest(usable, self._load, fatal=CheckpointForeign)
        if loaded is not None:
            for path in damages:
                path.rename(path.with_name(path.name + DAMAGED))
            return
        names = ", ".join(path.name for path in damages)
        raise CheckpointInvalid(
            f"no checkpoint of run {self._settings.run_id} can be loaded ({names}). Put one back, or move these away: "
            f"then all {self._history.sequence_free} batches are trained again from the initial weights. The newest: "
            f"{next(iter(damages.values()))}"
        )

    def _load(self, checkpoint: Checkpoint) -> None:
        """The engine as it was after a batch; that batch published, if its trainer died before it could be."""
        state = self._dependencies.learner.load(checkpoint.path)
        candidate = self._publisher.candidate()
        _check(checkpoint, state, candidate.manifest, self._settings.run_id)
        self._progress.sequence = checkpoint.sequence
        self._progress.rewards, self._progress.skipped = [], []
        self._progress.without_advantage = 0
        for trained in self._history.trained_before(checkpoint.sequence):
            self._progress.count(trained.sequence, trained.metrics)
        log.info("checkpoint_loaded", batch=checkpoint.sequence, path=str(checkpoint.path))
        if checkpoint.sequence in self._history.trained:
            self._recognise(checkpoint.sequence, candidate.manifest)
        else:
            self._updater.publish(state["metrics"], candidate, checkpoint.path)

    def _replay_plans(self) -> None:
        """Every batch after those in the weights. A run whose checkpoints are all useless rereads its history."""
        first, plans = self._progress.sequence + 1, self._history.plans
        if first <= self._history.plans_after:
            plans = self._dependencies.journal.history().plans
        for sequence in range(first, self._history.sequence_free):
            if sequence not in self._progress.given_up:
                self._replay(plans[sequence])

    def _replay(self, plan: BatchAssembled) -> None:
        """Train batches planned after the checkpoint, from the facts; publish unpublished ones."""
        published = plan.sequence in self._history.trained
        try:
            dependencies = self._dependencies
            batch = read(plan, dependencies.facts, dependencies.learner.vocabulary, dependencies.render)
        except FactUnreadable as unreadable:
            if published:
                raise BatchLost(_lost(plan, unreadable, self._history)) from unreadable
            self._give_up(plan, unreadable)
            return
        log.info("batch_replayed", batch=plan.sequence, published=published)
        if published:
            self._updater.train(batch)
            self._recognise(plan.sequence, self._publisher.candidate().manifest)
        else:
            self._updater.carry_out(batch, waited_s=0.0)

    def _give_up(self, plan: BatchAssembled, unreadable: FactUnreadable) -> None:
        """Say that a batch in no weights will never be in any: its number stays taken, its groups' capacity returns."""
        log.warning("batch_given_up", batch=plan.sequence, reason=unreadable.reason, error=str(unreadable))
        self._dependencies.journal.commit(
            BatchSkipped(
                envelope=envelope(self._dependencies.producer, run_id=self._settings.run_id),
                run_id=self._settings.run_id,
                group_ids=groups_of(plan),
                reason=f"plan_unreadable: {unreadable.reason}",
                sequence=plan.sequence,
            )
        )
        self._progress.given_up.add(plan.sequence)

    def _recognise(self, sequence: int, manifest: WeightsManifest) -> None:
        """The version that a trained batch made, if the weights in memory have its bytes; else they have none yet."""
        trained = self._history.trained[sequence]
        same = self._history.published[trained.version].digest == manifest.digest
        if not same:
            log.warning("replay_gave_other_bytes", batch=sequence, version=trained.version)
        if trained.critic_digest and trained.critic_digest != self._dependencies.learner.hashed_critic():
            log.warning("replay_gave_another_critic", batch=sequence, version=trained.version)
        self._progress.version, self._progress.digest = (trained.version, manifest.digest) if same else (None, "")
        self._progress.count(sequence, trained.metrics)

    def _announce(self) -> None:
        """Publish the weights as served here, under this epoch. Bytes without a version take a number that was never used."""
        progress, publisher = self._progress, self._publisher
        candidate = publisher.candidate()
        if progress.version is None:
            progress.version, progress.version_free = progress.version_free, progress.version_free + 1
            progress.digest = candidate.manifest.digest
        publisher.stage(progress.version, candidate)
        export = publisher.exported(progress.version, candidate.manifest)
        sequence = progress.sequence_published
        self._dependencies.journal.commit(publisher.event(progress.version, candidate, export, sequence))
        self._updater.archive(progress.version, candidate)
        if export is None:  # or it died with the trainer before
            self._updater.export_if_due(progress.version, candidate, sequence)

    def _started(self) -> RunStarted:
        settings = self._settings
        return RunStarted(
            envelope=envelope(self._dependencies.producer, run_id=settings.run_id),
            run_id=settings.run_id,
            model_id=settings.model_id,
            incarnation=self._history.incarnations + 1,
            config=settings.model_dump_json(),
            group_size=settings.spec.group_size,
            groups_per_batch=settings.spec.groups_per_batch,
            staleness_max=settings.spec.staleness_max,
            facts_prefix=settings.log_settings().prefix,
        )


def _lost(plan: BatchAssembled, unreadable: FactUnreadable, history: History) -> str:
    """Describes what to do about a batch that published weights hold, and that no replay can give again."""
    exported = history.exported
    version, export = (exported.version, exported.checkpoint_uri) if exported else (0, "model_dir")
    return (
        f"batch {plan.sequence} is in published weights but in no checkpoint, and cannot be trained again ({unreadable}). "
        f"Put back its checkpoint or its facts, or begin another run_id with these weights (version {version}) as "
        f"model_dir: {export}"
    )


def _check(
    checkpoint: Checkpoint,
    state: dict[str, Any],  # Any: JSON values
    manifest: WeightsManifest,
    run_id: str,
) -> None:
    """Raises CheckpointInvalid unless the checkpoint is of this run, and whole."""
    name = checkpoint.path.name
    if state["run_id"] != run_id:
        raise CheckpointForeign(f"checkpoint {name} is of run {state['run_id']}; give run {run_id} another out_dir")
    if checkpoint.weights_digest != manifest.digest:
        raise CheckpointInvalid(f"checkpoint {name} holds other weights than it was written with")
