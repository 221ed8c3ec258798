"""Settings of a reward server, read once; environment variables CLAW_REWARD_SERVER_<FIELD>."""

from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.weights.device import Wish, resolved

PORT = 8202


class RewardServerSettings(BaseSettings):
    """One vLLM with one reward model."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_REWARD_SERVER_", env_parse_none_str="None", frozen=True, use_attribute_docstrings=True
    )
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {
        "model": "what it serves, and where",
        "device": "vLLM",
        "start_timeout_s": "start and end",
    }

    model: Path
    """Directory of a sequence-classification or process-reward model in Hugging Face's format."""
    task: Literal["auto", "classify", "token_classify"] = "auto"
    """The form of the model's result: `classify` a row of logits per conversation (/classify), `token_classify` one per
    token (/pooling). auto: as its architecture says."""
    served_name: str = "reward"
    """Name under which the model is served."""
    host: str = "127.0.0.1"
    """Address on which it listens."""
    port: int = Field(default=PORT, ge=0, le=65535)
    """Port; 0 takes a free one."""

    device: Wish = "auto"
    """Processor to run on. auto: CUDA where torch sees it, unless the CPU build of vLLM is installed."""
    dtype: str | None = None
    """Number type of the weights. Not set: float32 on the CPU, the model's own on CUDA."""
    max_model_len: int | None = Field(default=None, ge=16)
    """Tokens of the longest conversation. Not set: what the model allows and the KV cache holds."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Conversations in one batch of the engine."""
    gpu_memory_share: float = Field(default=0.3, gt=0, le=1)
    """Share of a GPU's memory that vLLM may take: a reward model mostly has neighbours."""
    kv_cache_bytes: str | None = None
    """Size of the KV cache, as vLLM takes it. Not set: what `gpu_memory_share` leaves on a GPU; 128M on the CPU."""
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

    @cached_property
    def runs_on_cpu(self) -> bool:
        """Resolved `device`, without importing torch."""
        return resolved(self.device) == "cpu"
