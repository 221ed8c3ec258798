"""Settings of a rollout worker, read once; environment variables CLAW_ROLLOUT_<FIELD>."""

from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from weights.device import Wish, resolved


class RolloutSettings(BaseSettings):
    """One vLLM server and the supervisor that keeps it alive and current."""

    model_config = SettingsConfigDict(env_prefix="CLAW_ROLLOUT_", frozen=True)

    model: Path
    """HF model directory to start from; its weights have the label base/0."""
    model_id: str
    """Whose weights to follow in claw.weights."""
    worker_id: str
    """Key of this worker's reports; stable over restarts."""
    run_id: str | None = None
    """Follow this run only; None follows whichever run published last."""
    served_name: str = "policy"
    """Name under which the engine serves the model."""
    host: str = "127.0.0.1"
    """Interface on which vLLM listens."""
    port: int = Field(default=0, ge=0, le=65535)
    """0: a free port, kept over restarts of vLLM."""
    advertise_host: str | None = None
    """Host in the reported url; None: the same as `host`."""

    device: Wish = "auto"
    """auto: CUDA where torch sees it, unless the CPU build of vLLM is installed. The trainer's must be the same."""
    dtype: str | None = None
    """None: float32 on the CPU, the model's own on CUDA."""
    max_model_len: int | None = Field(default=None, ge=16)
    """Tokens of prompt and reply together; None: what the model allows and the KV cache holds."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Replies sampled at the same time; more wait in vLLM's queue."""
    kv_cache_bytes: str | None = "256M"
    """Size of the KV cache as vLLM takes it; None: vLLM decides."""
    tool_call_parser: str | None = "hermes"
    """vLLM's parser of tool calls; None: tools are not parsed."""
    threads: int = Field(default=1, ge=1)
    """OpenMP threads on the CPU."""
    extra_args: tuple[str, ...] = ()
    """More arguments for vLLM, last."""
    log_file: Path | None = None
    """Where vLLM's output goes; None: to this process's stderr."""

    start_timeout_s: float = Field(default=300, gt=0)
    """From spawn to the first healthy answer."""
    stop_timeout_s: float = Field(default=5, gt=0)
    """From SIGTERM to SIGKILL."""
    drain_timeout_s: float = Field(default=2, ge=0)
    """How long running replies may go on after SIGTERM."""
    health_interval_s: float = Field(default=1, gt=0)
    health_timeout_s: float = Field(default=30, gt=0)
    """An engine that answers no question for this long is restarted; longer than its longest step."""
    report_interval_s: float = Field(default=2, gt=0)
    restarts_max: int = Field(default=5, ge=0)
    """Restarts of vLLM within `restart_window_s`; one more and the worker gives up."""
    restart_window_s: float = Field(default=600, gt=0)

    offer_timeout_s: float = Field(default=5, gt=0)
    """For the trainer's answer to GET /offer."""
    control_timeout_s: float = Field(default=15, gt=0)
    """For pause, start, finish, resume and label, each."""
    load_timeout_s: float = Field(default=60, gt=0)
    """For reading a checkpoint; on top of the rendezvous' own timeout for a transfer."""
    retry_interval_s: float = Field(default=2, gt=0)
    """Between attempts to get a version that could not be had."""

    @model_validator(mode="after")
    def _deadlines_fit(self) -> Self:
        if self.health_timeout_s < self.health_interval_s:
            raise ValueError("health_timeout_s is shorter than health_interval_s: every check would be the last")
        return self

    @cached_property
    def runs_on_cpu(self) -> bool:
        """Resolved `device`, without importing torch."""
        return resolved(self.device) == "cpu"
