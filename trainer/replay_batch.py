"""`claw train --replay-batch N`: one planned batch again, from the facts that its plan names. Every number, nothing kept.

Invariant: the log, the checkpoints and whoever trains the run meanwhile see nothing of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from threading import Event
from typing import Any

import numpy as np
import structlog
from msgspec import to_builtins

from claw_r1.datapool.runs import PublishedVersion
from claw_r1.datapool.view.planned_rows import FactSource
from claw_r1.schemas.json_values import JsonDict
from claw_r1.trainer.config.changes import changes_since
from claw_r1.trainer.dependencies import PolicyLearner
from claw_r1.trainer.errors import SettingsInvalid, Stopped
from claw_r1.trainer.journal.history import History
from claw_r1.trainer.learn.examples import Example
from claw_r1.trainer.plan.chat_template import ChatTemplate
from claw_r1.trainer.plan.learner_batch import learner_batch
from claw_r1.trainer.plan.plan_metrics import plan_metrics
from claw_r1.trainer.plan.training_batch import TrainingBatch, read
from claw_r1.trainer.progress import NO_BATCH
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.storage.checkpoints import Checkpoint, Checkpoints, load_newest
from claw_r1.weights.manifest import WeightsManifest

log = structlog.get_logger()


def replay(
    settings: TrainerSettings,
    sequence: int,
    *,
    history: History,
    facts: FactSource,
    learner: PolicyLearner,
    stop: Event | None = None,
) -> JsonDict:
    """Load the weights before the batch, train it, and say everything about it.

    history: with every plan. Without a checkpoint before the batch those before it are trained again from the initial
    weights. Raises SettingsInvalid, FactUnreadable, and Stopped once `stop` is set.
    """

    def go_on() -> None:
        if stop is not None and stop.is_set():
            raise Stopped("asked to stop before the batch was replayed")

    render = ChatTemplate(settings.model_dir)
    start = _loaded_before(_checkpoints_before(sequence, settings, history), learner)
    before = [n for n in range(start + 1, sequence) if n not in history.given_up]
    for earlier in before:
        learner.train(learner_batch(read(history.plans[earlier], facts, learner.vocabulary, render)), go_on)
        log.info("batch_replayed", batch=earlier)
    digest_before = WeightsManifest.of(learner.named_tensors(), history.digest_algorithm).digest
    batch = read(history.plans[sequence], facts, learner.vocabulary, render)
    examined = learner.examined(learner_batch(batch))
    metrics = {**plan_metrics(batch.plan), **learner.train(learner_batch(batch), go_on)}
    digest = WeightsManifest.of(learner.named_tensors(), history.digest_algorithm).digest
    return {
        "run_id": settings.run_id,
        "batch": sequence,
        "settings_changed": changes_since(history.started.config, settings) if history.started else {},
        "checkpoint": None if start == NO_BATCH else start,
        "trained_before": before,
        "weights_before": _recognised(digest_before, history.published.get(batch.plan.version)),
        "weights_after": _recognised(digest, _version_made(sequence, history)),
        "metrics": jsonable(metrics),
        **_compared(metrics, sequence, history),
        "plan": jsonable(to_builtins(batch.plan)),
        "examples": _examples(batch, examined),
    }


def check_planned(sequence: int, history: History, run_id: str) -> None:
    """Raises SettingsInvalid. Before a model is loaded."""
    if sequence in history.given_up:
        raise SettingsInvalid(
            f"--replay-batch {sequence}: run {run_id} gave this batch up, its plan cannot be read any more"
        )
    if not 0 <= sequence < history.sequence_free:
        planned = (
            f"its batches are 0 to {history.sequence_free - 1}" if history.sequence_free else "it has planned none"
        )
        raise SettingsInvalid(f"--replay-batch {sequence}: run {run_id} never planned it; {planned}")


def _checkpoints_before(sequence: int, settings: TrainerSettings, history: History) -> list[Checkpoint]:
    """The oldest first."""
    kept = Checkpoints(settings.out_dir / "checkpoints", settings.checkpoints_kept).all()
    return [each for each in kept if each.sequence < sequence and each.sequence not in history.given_up]


def _loaded_before(usable: Sequence[Checkpoint], learner: PolicyLearner) -> int:
    """The last batch in the weights that were loaded. A running trainer may delete a checkpoint at any moment."""
    loaded, _damages = load_newest(usable, lambda checkpoint: learner.load(checkpoint.path))
    if loaded is None and usable:
        raise SettingsInvalid(
            "no checkpoint before the batch can be loaded; name an out_dir without any to begin at batch 0"
        )
    return NO_BATCH if loaded is None else loaded.sequence


def _version_made(sequence: int, history: History) -> PublishedVersion | None:
    trained = history.trained.get(sequence)
    return None if trained is None else history.published.get(trained.version)


def _recognised(digest: str, version: PublishedVersion | None) -> JsonDict:
    published = None if version is None else version.digest
    return {"digest": digest, "published": published, "same": None if published is None else digest == published}


def _compared(metrics: Mapping[str, float], sequence: int, history: History) -> JsonDict:
    """The metrics as they were published, and [published, now] of those that differ; times aside."""
    trained = history.trained.get(sequence)
    if trained is None:
        return {"published": None, "differ": {}}
    names = [name for name in trained.metrics if name in metrics and trained.metrics[name] != metrics[name]]
    return {
        "published": dict(trained.metrics),
        "differ": {name: jsonable([trained.metrics[name], metrics[name]]) for name in sorted(names)},
    }


def _examples(batch: TrainingBatch, examined: Sequence[Example]) -> list[JsonDict]:
    """Returns the trained examples, per row: token ids, and everything about its trained tokens."""
    return [
        {
            "trajectory": row.trajectory,
            "call_ids": list(row.call_ids),
            **{
                field.name: jsonable(vector.tolist())
                for field in fields(example)
                if isinstance(vector := getattr(example, field.name), np.ndarray)
            },
        }
        for row, example in zip(batch.rows, examined, strict=True)
    ]


def jsonable(value: Any) -> Any:  # JSON, but for numbers that are not finite
    """The same with "nan", "inf" and "-inf" as words: JSON has no such numbers, and they are searched for."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: jsonable(item) for name, item in value.items()}
    return [jsonable(item) for item in value] if isinstance(value, (list, tuple)) else value
