"""vLLM's side of a weight update: everything is received and verified before the first old weight is touched.

So an update that fails on the way (trainer dead, deadline, wrong bytes) leaves exactly the old weights, and
start + finish with nothing received puts them back. Only a failure while loading mixes weights; then `finish`
refuses for ever, and the supervisor starts a new engine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from weights import checkpoint
from weights.manifest import WeightsManifest
from weights.receive import receive
from weights.rendezvous import Rendezvous


@dataclass(kw_only=True)
class ClawInitInfo(WeightTransferInitInfo):
    """Nothing: every update brings a rendezvous of its own."""


@dataclass(kw_only=True)
class ClawUpdateInfo(WeightTransferUpdateInfo):
    """What to load (`manifest`) and from where: exactly one of a rendezvous and a checkpoint."""

    manifest: dict[str, Any]  # Any: JSON, read by Manifest.from_json
    rendezvous: dict[str, Any] | None = None  # Any: JSON, fields of Rendezvous
    checkpoint_uri: str | None = None


class ClawWeightTransfer(WeightTransferEngine[ClawInitInfo, ClawUpdateInfo]):
    """Backend `claw`. Loads through vLLM's layerwise reload, so names and shapes are those of the HF checkpoint."""

    init_info_cls = ClawInitInfo
    update_info_cls = ClawUpdateInfo

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: vLLM's signature, passed on
        super().__init__(*args, **kwargs)
        if self.parallel_config.world_size != 1:
            raise ValueError("the claw weight backend serves one device per worker; start more workers instead")
        self._mixed = False

    def init_transfer_engine(self, init_info: ClawInitInfo) -> None:
        """Nothing to set up."""

    def start_weight_update(self) -> None:
        """Put the layers on the meta device; the engine must be paused."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: ClawUpdateInfo) -> None:
        """Blocks the engine until all tensors are there, or raises a WeightsError."""
        tensors = list(_tensors(update_info, self.device))
        self._mixed = True
        loaded: set[str] | None = self.model.load_weights(tensors)
        self._refuse_missing(loaded)
        self._mixed = False

    def finish_weight_update(self) -> None:
        """Layers that received nothing get their old weights back. Raises RuntimeError when weights are mixed."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        if self._mixed:
            raise RuntimeError("loading failed half way: this engine holds weights of two versions")
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


def _tensors(update: ClawUpdateInfo, device: torch.device) -> Iterator[tuple[str, torch.Tensor]]:
    manifest = WeightsManifest.from_json(update.manifest)
    if update.rendezvous is not None:
        return receive(Rendezvous(**update.rendezvous), manifest, device)
    if update.checkpoint_uri is not None:
        return checkpoint.read(update.checkpoint_uri, manifest)
    raise ValueError("neither a rendezvous nor a checkpoint")


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
