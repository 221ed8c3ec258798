"""Settings of a training run, readable without torch. Precedence: flag > environment > file > default."""

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from datapool.batch.spec import BatchSpec, first_problem
from eventlog.settings import LogSettings
from trainer.errors import SettingsInvalid
from weights.device import Wish


class TrainerSettings(BaseSettings):
    """Environment: `CLAW_TRAINER_<FIELD>`, fields of the spec as `CLAW_TRAINER_SPEC__<FIELD>`."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_TRAINER_", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    model_dir: Path
    """HF-format directory of the initial weights, with config and tokenizer."""
    model_id: str = Field(min_length=1)
    """The model as the project knows it: the scope of versions."""
    run_id: str = Field(min_length=1)
    """Names the run; the same id again resumes it. Also the transactional.id that fences a second trainer off."""
    spec: BatchSpec = BatchSpec()
    """What a batch is made of."""
    out_dir: Path
    """Checkpoints, HF exports, metrics.jsonl and TensorBoard files of this run."""

    learning_rate: float = Field(default=1e-6, ge=0)
    """Of AdamW; 0 is the control: everything runs, nothing is learned."""
    weight_decay: float = Field(default=0.0, ge=0)
    grad_clip: float = Field(default=1.0, gt=0)
    """Largest global gradient norm."""
    loss: Literal["auto", "ppo_clip", "ppo_dual_clip", "cross_entropy"] = "auto"
    """auto: the loss of the spec's algorithm, which is cross_entropy for sft and ppo_clip for all others."""
    loss_length: int = Field(default=1024, ge=1)
    """Tokens. Algorithm dr_grpo divides the summed losses of each trajectory by this constant, about the longest reply, as
    its paper does; all others take the mean over the trained tokens of the batch."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The ratio counts down to 1 - clip_low."""
    clip_high: float = Field(default=0.28, gt=0)
    """The ratio counts up to 1 + clip_high."""
    micro_batch_tokens_max: int = Field(default=16_384, ge=1)
    """Padded tokens of one forward pass; a longer sequence goes alone."""
    seed: int = Field(default=0, ge=0)
    zero_stage: Literal[0, 1, 2, 3] = 0
    """Of DeepSpeed's ZeRO."""
    device: Wish = "auto"
    """auto: CUDA where torch sees it, unless the CPU build of vLLM is installed. The workers' must be the same."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of weights and forward pass; auto: bf16 on CUDA, else fp32."""

    batches_max: int = Field(default=1000, ge=1)
    batches_min: int = Field(default=0, ge=0)
    """Batches before stop_reward is looked at."""
    stop_reward: float | None = None
    """Stop when the mean reward of the last 5 batches reaches it; None: go on to batches_max."""
    checkpoint_every: int = Field(default=1, ge=1)
    """Batches between checkpoints. Batches after the last one are trained again from the log after a crash."""
    checkpoints_kept: int = Field(default=2, ge=1)
    hf_every: int = Field(default=10, ge=1)
    """Batches between exports in HF format, which serve workers when the trainer is gone."""
    hf_kept: int = Field(default=3, ge=1)
    """The newest exports that stay on disk."""
    linger_s: float = Field(default=0.0, ge=0)
    """After the end, serve the final weights until every live worker reports them, at most this long."""

    offer_host: str = "127.0.0.1"
    """Interface that serves weights to workers."""
    offer_port: int = Field(default=0, ge=0, le=65535)
    """0: any free port."""
    offer_advertise: str | None = None
    """Host name that workers reach it by, where that is not offer_host."""
    offer_timeout_s: float = Field(default=30.0, gt=0)
    """How long one send to one worker may take."""
    poll_interval_s: float = Field(default=0.1, gt=0)
    """How often the pool is asked for a whole batch."""
    wait_log_interval_s: float = Field(default=10.0, gt=0)
    """How often a trainer without data says what it waits for."""
    warnings_file: Path | None = None
    """Where it leaves what a person should do something about, as a JSON list of lines, for `claw status`; `claw up` and
    `claw demo` name one. Not there while all is well. None: warnings are in the log alone."""

    bootstrap_servers: str | None = None
    """Broker; None: as eventlog's settings say."""
    topic_prefix: str | None = None
    """Front of the topic names; None: as eventlog's settings say."""
    topic_partitions: int | None = Field(default=None, ge=1)
    """Partitions of each topic; None: as eventlog's settings say."""

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        if self.batches_min > self.batches_max:
            raise ValueError(f"batches_min {self.batches_min} is above batches_max {self.batches_max}")
        if self.batches_min and self.stop_reward is None:
            raise ValueError("batches_min without stop_reward means nothing; set stop_reward or drop it")
        if self.spec.estimator.loss == "cross_entropy" and self.loss not in ("auto", "cross_entropy"):
            raise ValueError(
                f"loss {self.loss} needs advantages, and algorithm {self.spec.algorithm} has none; drop it"
            )
        if self.out_dir.resolve() == self.model_dir.resolve():
            raise ValueError("out_dir is model_dir: the initial weights would be overwritten")
        return self

    @property
    def loss_name(self) -> str:
        """What `loss` comes to."""
        return self.spec.estimator.loss if self.loss == "auto" else self.loss

    def loss_divisor(self, trajectories: int) -> int | None:
        """What the losses of a batch of so many trajectories are divided by; None: the number of its trained tokens."""
        return trajectories * self.loss_length if self.spec.estimator.divisor == "length" else None

    def log_settings(self) -> LogSettings:
        """Where the log is."""
        named = {
            "bootstrap_servers": self.bootstrap_servers,
            "prefix": self.topic_prefix,
            "partitions": self.topic_partitions,
        }
        return LogSettings(**{name: value for name, value in named.items() if value is not None})  # type: ignore[arg-type]  # each fits its field


def load(path: Path, flags: dict[str, Any]) -> TrainerSettings:  # Any: values of any field
    """Settings from a YAML or JSON file under the environment under `flags`. Raises SettingsInvalid in one line."""
    try:
        written = yaml.safe_load(path.read_text()) or {}
        if not isinstance(written, dict):
            raise SettingsInvalid(f"{path}: not a mapping of settings")
        environment = EnvSettingsSource(TrainerSettings)()
        return TrainerSettings(**_merged(_merged(written, environment), flags))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        raise SettingsInvalid(f"{path}: {first_problem(error)}") from error


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` wins, mappings field by field."""
    both = {
        key: _merged(under[key], over[key]) for key in under.keys() & over.keys() if _are_maps(under[key], over[key])
    }
    return {**under, **over, **both}


def _are_maps(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)
