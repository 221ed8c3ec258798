"""Settings -> the learner of one rank. Everything that computes; nothing that talks to the log."""

from dataclasses import replace

from claw_r1.trainer.algorithms.corrections import CorrectionBounds
from claw_r1.trainer.algorithms.divergence import DIVERGENCES
from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.config.objective import ObjectiveSettings
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.learn.learner import Learner, Pace
from claw_r1.trainer.learn.models.critic import Critic
from claw_r1.trainer.learn.models.reference import FrozenModel, Reference
from claw_r1.trainer.learn.objective import Objective
from claw_r1.trainer.settings import TrainerSettings


def learner_of(settings: TrainerSettings) -> Learner:
    """Loads the model. Raises ModelInvalid, SettingsInvalid."""
    policy = TrainingEngine(settings.model_dir, engine_settings(settings))
    return Learner(
        policy,
        objective_of(settings),
        pace_of(settings),
        reference=reference_of(settings, policy),
        critic=critic_of(settings, policy),
    )


def critic_of(settings: TrainerSettings, policy: TrainingEngine) -> Critic | None:
    """A critic, where the spec's algorithm has one. Raises ModelInvalid."""
    if not settings.has_critic:
        return None
    own = settings.critic
    rate = 10 * settings.learning_rate if own.learning_rate is None else own.learning_rate
    stepping = replace(policy.stepping, learning_rate=rate, weight_decay=own.weight_decay, grad_clip=own.grad_clip)
    return Critic(
        own.model_dir or settings.model_dir,
        own,
        stepping,
        device=policy.device,
        vocabulary=policy.vocabulary,
        micro_batch_tokens_max=settings.micro_batch_tokens_max,
        layout=settings.layout,
    )


def reference_of(settings: TrainerSettings, policy: TrainingEngine) -> Reference | None:
    """The frozen model, where a coefficient asks for one.

    With adapters no second model is loaded. Raises ModelInvalid.
    """
    own = settings.reference
    if not own.coefficient:
        return None
    if settings.lora.rank and own.model_dir is None:
        return Reference(policy.base_logprobs, own)
    frozen = FrozenModel(
        own.model_dir or settings.model_dir,
        "model_dir" if own.model_dir is None else "reference.model_dir",
        device=policy.device,
        precision=policy.precision,
        vocabulary=policy.vocabulary,
        micro_batch_tokens_max=settings.micro_batch_tokens_max,
        layout=settings.layout,
    )
    return Reference(frozen.logprobs, own)


def pace_of(settings: TrainerSettings) -> Pace:
    """Returns the number of steps that a batch gives, and the course of their learning rate."""
    objective, optimizer = settings.objective, settings.optimizer
    return Pace(
        mini_batches=objective.minibatches,
        epochs=objective.epochs,
        schedule=optimizer.schedule,
        warmup_steps=optimizer.warmup_steps,
        steps_max=(optimizer.decay_batches or 1) * objective.minibatches * objective.epochs,
        floor=optimizer.floor,
    )


def objective_of(settings: TrainerSettings) -> Objective:
    """Returns the objective that the batches of a run are trained towards."""
    return Objective(
        loss=bound(settings.loss_name, clip_low=settings.clip_low, clip_high=settings.clip_high),
        norm=settings.norm_name,
        loss_length=settings.loss_length,
        correction=settings.objective.correction,
        bounds=bounds_of(settings.objective),
        entropy_bonus=settings.objective.entropy_bonus,
        silent_sample=settings.objective.silent_sample,
        divergence=DIVERGENCES[settings.reference.kl_name] if settings.reference.in_loss else None,
        kl_coefficient=settings.reference.coefficient,
    )


def bounds_of(objective: ObjectiveSettings) -> CorrectionBounds:
    """Returns the numbers that corrections and masks are held to."""
    return CorrectionBounds(
        cap=objective.correction_cap,
        low=objective.icepop_low,
        high=objective.icepop_high,
        mask=objective.mask,
        negatives=objective.stale_negatives,
    )


def engine_settings(settings: TrainerSettings) -> EngineSettings:
    """The engine's part of the settings."""
    return EngineSettings(
        learning_rate=settings.lora.rate(settings.learning_rate),
        weight_decay=settings.weight_decay,
        grad_clip=settings.grad_clip,
        zero_stage=settings.zero_stage,
        device=settings.device,
        precision=None if settings.precision == "auto" else settings.precision,
        micro_batch_tokens_max=settings.micro_batch_tokens_max,
        optimizer=settings.optimizer,
        export_shard_bytes_max=int(settings.hf_shard_gb * 1e9),
        layout=settings.layout,
        lora=settings.lora,
        seed=settings.seed,
    )
