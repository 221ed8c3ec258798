"""vLLM's side of a weight update: load a verified copy that lies in this host's memory, on every rank of the engine.

A failure here leaves an engine of two versions or none; the supervisor never resumes such an engine but starts a new one.
"""

from dataclasses import dataclass
from typing import Any

from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from claw_r1.weights.host_copies import tensors
from claw_r1.weights.manifest import WeightsManifest


@dataclass(kw_only=True)
class ClawInitInfo(WeightTransferInitInfo):
    """Nothing: every update says all that it needs."""


@dataclass(kw_only=True)
class ClawUpdateInfo(WeightTransferUpdateInfo):
    """The manifest to load, and the flat copy of the weights (`claw_r1.weights.host_copies`)."""

    manifest: dict[str, Any]  # Any: JSON, read by Manifest.from_json
    path: str


class ClawWeightTransfer(WeightTransferEngine[ClawInitInfo, ClawUpdateInfo]):
    """Backend `claw`. Loads through vLLM's layerwise reload, so names and shapes are those of the HF checkpoint."""

    init_info_cls = ClawInitInfo
    update_info_cls = ClawUpdateInfo

    def init_transfer_engine(self, init_info: ClawInitInfo) -> None:
        """Nothing to set up."""

    _is_received = False
    """An update without weights is an adapter's, which vLLM reads by itself
    (`rollout/process/adapter_place.py`)."""

    def start_weight_update(self) -> None:
        """Nothing yet: it may be an adapter that comes."""
        self._is_received = False

    def receive_weights(self, update_info: ClawUpdateInfo) -> None:
        """Loads; the engine must be paused. Raises RuntimeError when the version lacks weights of this model, WeightsError
        when the copy is not there."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        self._is_received = True
        initialize_layerwise_reload(self.model)
        manifest = WeightsManifest.from_json(update_info.manifest)
        loaded: set[str] | None = self.model.load_weights(tensors(update_info.path, manifest))
        self._refuse_missing(loaded)

    def finish_weight_update(self) -> None:
        """Pack what was loaded as the kernels want it."""
        if not self._is_received:
            return
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        refresh_tied_head(self.model, self.model_config.hf_config)

    def shutdown(self) -> None:
        """Nothing is kept between updates."""

    def _refuse_missing(self, loaded: set[str] | None) -> None:
        if loaded is None or self.model_config.quantization is not None:
            return  # the model does not tell, or stores its parameters under other names
        expected = {name for name, _ in self.model.named_parameters()}
        if _is_tied(self.model_config.hf_config):
            expected = {name for name in expected if not name.startswith("lm_head.")}
        if missing := expected - loaded:
            raise RuntimeError(f"the manifest lacks weights of this model: {sorted(missing)[:3]}")


def _is_tied(hf_config: Any) -> bool:  # Any: a transformers config of any model
    return bool(getattr(hf_config.get_text_config(), "tie_word_embeddings", False))


def refresh_tied_head(model: Any, hf_config: Any) -> None:  # Any: vLLM models share no typed interface for heads
    """Pack a tied output head again: on the CPU it is a packed copy, and without this logits keep the old head."""
    head = getattr(model, "lm_head", None)
    if head is None or not _is_tied(hf_config) or not hasattr(head, "quant_method"):
        return
    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else model.model.embed_tokens
    if head is not embedding and head.weight.device.type == "cpu":
        head.weight = embedding.weight
        head.quant_method.process_weights_after_loading(head)
