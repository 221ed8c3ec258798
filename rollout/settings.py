"""Settings of a rollout worker, read once; environment variables CLAW_ROLLOUT_<FIELD>."""

from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.runtime.monitoring.server import MetricsHost, MetricsPort
from claw_r1.weights.carry.carrier_handle import Transport
from claw_r1.weights.device import Wish, resolved

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The bounds of a rank that vLLM knows."""


class RolloutSettings(BaseSettings):
    """One vLLM server and the supervisor that keeps it alive and current."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_ROLLOUT_", env_parse_none_str="None", frozen=True, use_attribute_docstrings=True
    )
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {
        "model": "model and address",
        "device": "vLLM",
        "start_timeout_s": "supervision",
        "transports": "weights",
    }

    model: Path
    """Hugging Face model directory to start from. Its weights have the label base/0."""
    model_id: str
    """Model whose published weights this worker follows."""
    worker_id: str = ""
    """Unique name of this worker in its reports. Not set: worker-<host name>-<lowest free number>."""
    run_id: str | None = None
    """Training run to follow. Not set: whichever run published last."""
    served_name: str = "policy"
    """Name under which the engine serves the model."""
    host: str = "127.0.0.1"
    """Address on which vLLM listens."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port of vLLM; 0 takes a free one and keeps it over restarts of vLLM."""
    advertise_host: str | None = None
    """Host in the URL that is reported to gateways. Not set: `host`."""

    device: Wish = "auto"
    """Processor to run on. auto: CUDA where torch sees it, unless the CPU build of vLLM is installed."""
    dtype: str | None = None
    """Number type of the weights. Not set: float32 on the CPU, the model's own on CUDA."""
    max_model_len: int | None = Field(default=None, ge=16)
    """Tokens of prompt and reply together. Not set: as many as the model and the KV cache allow."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Replies sampled at the same time; more wait in vLLM's queue."""
    tensor_parallel: int = Field(default=1, ge=1)
    """Processes that share the model, each with a GPU of its own (or a core); it must divide the model's heads."""
    gpu_memory_share: float = Field(default=0.9, gt=0, le=1)
    """Share of a GPU's memory that vLLM may take, weights and KV cache together. With a trainer
    on the same GPU: 0.45."""
    kv_cache_bytes: str | None = None
    """Size of the KV cache, as vLLM takes it. Not set: what `gpu_memory_share` leaves on a GPU; 256M on the CPU."""
    lora_rank_max: int = Field(default=0, ge=0, le=LORA_RANKS[-1])
    """Largest rank of a LoRA adapter. Above 0 vLLM takes versions only as adapters of `model` (docs/lora.md). 0: whole
    versions."""
    tool_call_parser: str | None = "hermes"
    """vLLM's parser of tool calls; with None, tools are not parsed."""
    threads: int = Field(default=1, ge=1)
    """OpenMP threads on the CPU."""
    extra_args: tuple[str, ...] = ()
    """More arguments for vLLM, placed last, as a JSON list of texts."""
    log_file: Path | None = None
    """File for vLLM's output. Not set: it goes to stderr."""

    start_timeout_s: float = Field(default=3600, gt=0)
    """From the start of vLLM to its first healthy answer, however busy it is."""
    start_quiet_s: float = Field(default=300, gt=0)
    """A start that used no processor and wrote no log for this long is given up."""
    stop_timeout_s: float = Field(default=5, gt=0)
    """From SIGTERM to SIGKILL."""
    drain_timeout_s: float = Field(default=60, ge=0)
    """How long running replies may go on after SIGTERM, while new calls go elsewhere. A
    second SIGTERM ends them."""
    health_interval_s: float = Field(default=1, gt=0)
    """Time between two health checks of the engine."""
    health_timeout_s: float = Field(default=30, gt=0)
    """An engine that answers no health check for this long is restarted, unless loading. Keep it
    above its longest step."""
    report_interval_s: float = Field(default=2, gt=0)
    """Time between two reports of this worker to the log."""
    restarts_max: int = Field(default=5, ge=0)
    """Restarts of vLLM within `restart_window_s`. At one more, the worker gives up."""
    restart_window_s: float = Field(default=600, gt=0)
    """Time over which restarts are counted."""

    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = "127.0.0.1"

    transports: tuple[Transport, ...] = ("http",)
    """Ways by which versions may come from a trainer on another host, the best first; the trainer must offer them, too
    (`offer_transports`). nccl, where both have GPUs, and gloo carry a version to all hosts at once; http serves
    whenever they do not."""
    carry_timeout_s: float = Field(default=60, gt=0)
    """How long a version may take by nccl or gloo, plus time for its size; then http is used."""
    offer_timeout_s: float = Field(default=5, gt=0)
    """How long the trainer may take to begin its answer to a request for weights."""
    fetch_timeout_s: float = Field(default=30, gt=0)
    """How long a version may take to reach this host's memory, plus time for its size. The
    engine samples meanwhile."""
    fetch_mb_per_s: float = Field(default=20, gt=0)
    """Rate at which it must arrive: each MB adds its share to `fetch_timeout_s`."""
    copies_dir: Path | None = None
    """Directory for the copy of the weights that this host's workers share. Not set: in /dev/shm where it has room,
    else among temporary files. A trainer on this host is found only there."""
    archive_dir: Path | None = None
    """Directory, or mirror of one, into which a trainer writes its versions (its `archive_dir`): a worker that cannot reach the trainer
    reads them there. Not set: from exports."""
    control_timeout_s: float = Field(default=15, gt=0)
    """How long the engine may take for each of pause, start, finish, resume and setting the label."""
    load_timeout_s: float = Field(default=60, gt=0)
    """How long the paused engine may take to load a version from memory."""
    probe_timeout_s: float = Field(default=30, gt=0)
    """How long a busy engine may take to score the probe of a version it loaded; then it stays unchecked."""
    probe_gap_max: float | None = Field(default=None, gt=0)
    """Largest difference of a log-probability of the probe from the trainer's. At a larger one the engine is started again.
    Not set: 0.001 where both compute in float32, else 0.5."""
    retry_interval_s: float = Field(default=2, gt=0)
    """Time between two attempts to fetch a version that failed."""

    @model_validator(mode="after")
    def _deadlines_fit(self) -> Self:
        if self.health_timeout_s < self.health_interval_s:
            raise ValueError("health_timeout_s is shorter than health_interval_s: every check would be the last")
        return self

    @cached_property
    def runs_on_cpu(self) -> bool:
        """Resolved `device`, without importing torch."""
        return resolved(self.device) == "cpu"
