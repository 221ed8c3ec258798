"""Settings of a training run, readable without torch. Precedence: flag > environment > file > default."""

from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.command_line import CommandLine, SettingsRefused
from claw_r1.runtime.monitoring.server import MetricsHost, MetricsPort
from claw_r1.trainer.config.critic import CriticSettings
from claw_r1.trainer.config.lora import LoraSettings
from claw_r1.trainer.config.objective import ObjectiveSettings
from claw_r1.trainer.config.optimizer import OptimizerSettings
from claw_r1.trainer.config.reference import ReferenceSettings
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.weights.carry.carrier_handle import Transport
from claw_r1.weights.device import Wish


class TrainerSettings(BaseSettings):
    """Environment: `CLAW_TRAINER_<FIELD>`, fields of the spec as `CLAW_TRAINER_SPEC__<FIELD>`."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_TRAINER_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        cli_shortcuts={"topic-prefix": "prefix", "topic-partitions": "partitions"},
    )
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {
        "model_dir": "the run",
        "learning_rate": "optimization",
        "critic": "critic (algorithm gae) and reference",
        "batches_max": "how long, and what stays on disk",
        "offer_host": "weights for the workers",
        "poll_interval_s": "waiting and watching",
        "bootstrap_servers": "log (Kafka)",
    }
    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({
        "run_id", "out_dir", "allow_change", "micro_batch_tokens_max", "batches_max", "batches_min", "stop_reward",
        "checkpoint_every", "checkpoints_kept", "hf_every", "hf_kept", "hf_shard_gb", "archive_dir", "archive_whole_every", "stop_timeout_s", "offer_host",
        "offer_port", "offer_advertise", "offer_transports", "probe_tokens", "linger_s", "stay_when_over", "poll_interval_s", "evaluation_wait_s",
        "evaluation_quiet_s",
        "wait_log_interval_s", "warnings_file", "sinks", "sinks_online", "sinks_project", "metrics_port", "metrics_host", "bootstrap_servers", "topic_prefix", "topic_partitions", "ranks",
        "collective_timeout_s", "layout", "optimizer.gradient_checkpointing", "objective.silent_sample",
    })  # fmt: skip
    """Settings that may differ when a run is resumed. All others change what is trained
    (`trainer/config/changes.py`)."""

    model_dir: Path
    """Hugging Face model directory of the initial weights, with config and tokenizer."""
    model_id: str = Field(min_length=1)
    """Name of the model in the log: policy versions are counted per model."""
    run_id: str = Field(min_length=1)
    """Name of the run. The same name again resumes it. It is also the transactional id, which shuts a second
    trainer out."""
    spec: BatchSpec = BatchSpec()
    """The description of a batch."""
    out_dir: Path
    """Directory of this run's checkpoints, exports, metrics.jsonl and TensorBoard files."""
    allow_change: tuple[str, ...] = ()
    """A setting that may differ from the resumed run's, such as learning_rate, spec.algorithm or spec for
    all of it: other changes are refused."""

    learning_rate: float = Field(default=1e-6, ge=0)
    """Learning rate of AdamW. With 0 everything runs and nothing is learned, which serves as a control."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of AdamW."""
    grad_clip: float = Field(default=1.0, gt=0)
    """Largest global gradient norm."""
    loss: Literal["auto", "ppo_clip", "ppo_dual_clip", "gspo", "cispo", "cross_entropy"] = "auto"
    """The loss of a batch. auto: the loss of the spec's algorithm, cross_entropy for sft and ppo_clip for all
    others."""
    norm: Literal["auto", "token_mean", "sequence_mean", "trajectory_mean", "constant"] = "auto"
    """The way in which the losses of tokens become one (docs/algorithms.md). auto: sequence_mean with loss gspo,
    constant with algorithm dr_grpo, else token_mean, the mean over the trained tokens of the batch."""
    loss_length: int = Field(default=1024, ge=1)
    """Tokens. Norm constant divides the summed losses of each trajectory by it; about the longest reply."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The importance ratio is clipped below 1 - clip_low."""
    clip_high: float = Field(default=0.28, gt=0)
    """The importance ratio is clipped above 1 + clip_high."""
    micro_batch_tokens_max: int = Field(default=16_384, ge=1)
    """Tokens of one forward pass, padding included; a longer sequence goes alone."""
    layout: Literal["auto", "rows", "tree"] = "auto"
    """The way in which sequences go through the model: one padded row each, or a tree that computes their shared
    prefixes once. auto: a tree for each batch where that saves a tenth of the tokens. The result is the same."""
    seed: int = Field(default=0, ge=0)
    """Seed of the run; every batch derives its own from it."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """Stage of DeepSpeed's ZeRO."""
    ranks: int = Field(default=1, ge=1)
    """Processes on this machine that train together; torchrun and deepspeed start their own number instead."""
    collective_timeout_s: float = Field(default=600.0, gt=0)
    """How long a rank waits for the others in the middle of a step; then the trainer ends."""
    device: Wish = "auto"
    """Processor to run on. auto: CUDA where torch sees it, unless the CPU build of vLLM is installed. The
    workers' may be another."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Number type of weights and forward pass. auto: bf16 on CUDA, else fp32."""

    objective: ObjectiveSettings = ObjectiveSettings()
    """Steps per batch, and off-policy correction."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """AdamW, its schedule and DeepSpeed."""
    lora: LoraSettings = LoraSettings()
    """Adapters in the place of the weights."""
    critic: CriticSettings = CriticSettings()
    """The critic, which algorithm gae has and no other."""
    reference: ReferenceSettings = ReferenceSettings()
    """The frozen model that the policy is held near."""

    batches_max: int = Field(default=1000, ge=1)
    """Batches after which the run ends."""
    batches_min: int = Field(default=0, ge=0)
    """Batches before `stop_reward` is looked at."""
    stop_reward: float | None = None
    """The run ends when the mean reward of its last 5 batches reaches this. Not set: it
    goes on to `batches_max`."""
    checkpoint_every: int = Field(default=1, ge=1)
    """Batches between checkpoints. Batches after the last one are trained again from the log after a crash."""
    checkpoints_kept: int = Field(default=2, ge=1)
    """Newest checkpoints that stay on disk."""
    hf_every: int = Field(default=10, ge=1)
    """Batches between exports in Hugging Face format, from which workers load when the trainer is gone."""
    hf_kept: int = Field(default=3, ge=1)
    """Newest exports that stay on disk."""
    archive_dir: Path | None = None
    """Directory in which each version is kept below the run's id, for workers that cannot reach this trainer: what
    changed since the one before it, where that is little, and the whole of every `archive_whole_every`-th. It may be
    mirrored file by file. Not set: none."""
    archive_whole_every: int = Field(default=20, ge=1)
    """Versions in a chain of patches, the whole one with them."""
    stop_timeout_s: float = Field(default=6.0, gt=0)
    """From SIGTERM to the end of the process, in any phase. The last version is exported in this time, for workers that
    start while no trainer serves it: give a large model more, but less than the sender of the signal waits (claw: 10 s)."""
    hf_shard_gb: float = Field(default=5.0, gt=0)
    """Gigabytes of one weights file of an export; a larger tensor has a file of its own."""

    offer_host: str = "127.0.0.1"
    """Address on which weights are served to workers."""
    offer_port: int = Field(default=0, ge=0, le=65535)
    """Port on which weights are served; 0 takes a free one."""
    offer_advertise: str | None = None
    """Host name by which workers reach the weights. Not set: `offer_host`."""
    offer_transports: tuple[Transport, ...] = ("http",)
    """Transports of versions to workers on other hosts that request them (`CLAW_ROLLOUT_TRANSPORTS`). nccl (where
    trainer and worker have GPUs) and gloo carry a version to all hosts at once, unencrypted, over a store on a port of
    their own; http is always there."""
    probe_tokens: int = Field(default=48, ge=0, le=1024)
    """Token ids whose log-probabilities are published with every version, so that workers can check what they
    loaded. 0: none."""
    linger_s: float = Field(default=0.0, ge=0)
    """After its end, the run serves its final weights until every live worker reports them,
    for at most this long."""
    stay_when_over: bool = False
    """A trainer whose run is over stays, with its metrics, until it is told to stop: for what starts again whatever ends, as
    Docker and a StatefulSet do. Off: it ends."""

    poll_interval_s: float = Field(default=0.1, gt=0)
    """Time between two looks for a whole batch in the pool."""
    evaluation_wait_s: float = Field(default=60.0, ge=0)
    """How long training waits, without a sign of life, for the evaluation of the version in memory by agents
    (`claw agents run --eval-every`): a call of one of its episodes is a sign. Keep it above the longest single call or tool. 0: never;
    episodes that two versions sampled are left out of the evaluation."""
    evaluation_quiet_s: float = Field(default=300.0, gt=0)
    """An evaluation without a sign of life for so long, such as a call or a reward, is concluded early: keep it above the time that
    scorers and people take."""
    wait_log_interval_s: float = Field(default=10.0, gt=0)
    """A trainer without data logs what it waits for once per this interval."""
    warnings_file: Path | None = None
    """File for warnings that need action, as a JSON list of lines, which `claw status` shows; absent while
    all is well. Not set: warnings are in the log alone. `claw up` and `claw demo` set it."""

    sinks: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ("tensorboard",)
    """Programs that get the metrics of each batch, beside metrics.jsonl (docs/runs.md). trackio and wandb
    must be installed."""
    sinks_online: bool = False
    """Let trackio and wandb reach the servers that their own variables name. Off: they write
    below `out_dir` alone."""
    sinks_project: str = Field(default="claw", min_length=1)
    """Project of the run in trackio and wandb."""

    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = "127.0.0.1"

    bootstrap_servers: str | None = None
    """host:port of one or more brokers. Not set: as CLAW_LOG_BOOTSTRAP_SERVERS or KAFKA_BOOTSTRAP_SERVERS say."""
    topic_prefix: str | None = None
    """Front of every topic name. Not set: as CLAW_LOG_PREFIX says. The log's other settings
    are CLAW_LOG_... too."""
    topic_partitions: int | None = Field(default=None, ge=1)
    """Partitions of every topic. Not set: as CLAW_LOG_PARTITIONS says."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # unused; the signature is that of pydantic-settings
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # unused
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # unused
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over initial values: `load` gives those of a file."""
        return env_settings, init_settings

    @field_validator("zero_stage", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        """Returns the number that a flag or the environment gives as text, which pydantic takes for no member of the
        Literal."""
        return int(value) if isinstance(value, str) and value.isdigit() else value

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
        if not self.has_critic and self.critic != CriticSettings():
            raise ValueError(f"critic: algorithm {self.spec.algorithm} has none; set spec.algorithm: gae or drop it")
        if self.reference.coefficient and self.reference.place == "reward" and not self.has_critic:
            raise ValueError(
                f"reference.place reward: the plan freezes the advantages of {self.spec.algorithm}, so that no reward changes "
                "them afterwards; take place: loss, or spec.algorithm: gae"
            )
        if self.loss_name == "cross_entropy" and self.objective.needs_ratio:
            raise ValueError(f"{self.objective.needs_ratio}: loss cross_entropy has no ratio to correct; drop it")
        if self.objective.minibatches > self.spec.groups_per_batch:
            raise ValueError(
                f"objective.minibatches {self.objective.minibatches}: a batch of {self.spec.groups_per_batch} groups cannot be "
                "dealt into so many parts"
            )
        if self.out_dir.resolve() == self.model_dir.resolve():
            raise ValueError("out_dir is model_dir: the initial weights would be overwritten")
        return self

    @property
    def has_critic(self) -> bool:
        """The advantages come from a critic's values."""
        return self.spec.estimator.critic

    @property
    def loss_name(self) -> str:
        """The loss that `loss` names."""
        return self.spec.estimator.loss if self.loss == "auto" else self.loss

    @property
    def norm_name(self) -> str:
        """The norm that `norm` names."""
        if self.norm != "auto":
            return self.norm
        return "sequence_mean" if self.loss_name == "gspo" else self.spec.estimator.norm

    def log_settings(self) -> LogSettings:
        """Returns the settings of the log."""
        named = {
            "bootstrap_servers": self.bootstrap_servers,
            "prefix": self.topic_prefix,
            "partitions": self.topic_partitions,
        }
        return LogSettings(**{name: value for name, value in named.items() if value is not None})  # type: ignore[arg-type]  # each fits its field


def command_line() -> CommandLine:
    """The flags of a trainer."""
    line = CommandLine("claw train", "Train a run to its end, or resume it.", TrainerSettings)
    add = line.parser.add_argument
    add("--config", type=Path, metavar="PATH", help="YAML or JSON file of settings by their names.")
    line.add_shorthand(TrainerSettings, "spec.preset", "A starting point of the batch spec (docs/batches.md).")
    add(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="A setting by its name, as a flag. Repeatable."
    )
    add("--json", action="store_true", help="One JSON object on stdout: the answer, or the run's final state.")
    instead = line.parser.add_argument_group("instead of a run that agents feed").add_mutually_exclusive_group()
    instead.add_argument(
        "--dry-run", action="store_true", help="Print resolved settings, the next batch and bytes per rank."
    )
    instead.add_argument(
        "--replay-batch",
        type=int,
        metavar="N",
        help="Train planned batch N again and print every number; keep nothing.",
    )
    instead.add_argument(
        "--offline",
        metavar="pool|PATH",
        help="Train on what is in the pool, or in an exported dataset, until it is used up.",
    )
    # deepspeed's launcher appends it to what it starts; the environment says the same.
    add("--local_rank", type=int, help=SUPPRESS)
    return line


def read(arguments: Sequence[str] | None) -> tuple[TrainerSettings, Namespace]:
    """Settings and flags of `command_line` (None: this process's). Raises SettingsInvalid in one line."""
    line = command_line()
    flags = line.parse(arguments)
    try:
        line.assign(flags, flags.set)
        return line.read(TrainerSettings, flags, **(_contents(flags.config) if flags.config else {})), flags
    except SettingsRefused as error:
        raise SettingsInvalid(f"{flags.config}: {error}" if flags.config else str(error)) from error


def load(arguments: Sequence[str] | None) -> TrainerSettings:
    """The settings of a command line, as `read` gives them."""
    return read(arguments)[0]


def _contents(path: Path) -> dict[str, Any]:  # Any: values of any field
    try:
        contents = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:  # of a date that is none; of brackets
        raise SettingsInvalid(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(contents, dict):
        raise SettingsInvalid(f"{path}: not a mapping of settings")
    return contents
