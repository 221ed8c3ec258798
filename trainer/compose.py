"""Settings -> the learner of one rank. Everything that computes; nothing that talks to the log."""

from trainer.algorithms.losses import bound
from trainer.learn.engine import EngineSettings, TrainingEngine
from trainer.learn.learner import Learner
from trainer.learn.objective import Objective
from trainer.settings import TrainerSettings


def learner_of(settings: TrainerSettings) -> Learner:
    """Loads the model. Raises ModelInvalid, SettingsInvalid."""
    return Learner(TrainingEngine(settings.model_dir, engine_settings(settings)), objective_of(settings))


def objective_of(settings: TrainerSettings) -> Objective:
    """What the batches of a run are trained towards."""
    return Objective(
        loss=bound(settings.loss_name, clip_low=settings.clip_low, clip_high=settings.clip_high),
        norm="constant" if settings.spec.estimator.divisor == "length" else "token_mean",
        loss_length=settings.loss_length,
    )


def engine_settings(settings: TrainerSettings) -> EngineSettings:
    """The engine's part of the settings."""
    return EngineSettings(
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        grad_clip=settings.grad_clip,
        zero_stage=settings.zero_stage,
        device=settings.device,
        precision=None if settings.precision == "auto" else settings.precision,
        micro_batch_tokens_max=settings.micro_batch_tokens_max,
        layout=settings.layout,
    )
