"""Where a worker gets a version from."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from claw_r1.rollout.errors import SourceFailed
from claw_r1.rollout.fetch import fetch
from claw_r1.rollout.settings import RolloutSettings
from tests.rollout.scripted import Trainer

NAME = "base_model.model.layers.0.up.lora_A.weight"


async def test_an_export_has_the_adapter_where_the_trainer_is_gone(tmp_path: Path) -> None:
    """Below the directory that the event names; other bytes under its name are refused."""
    settings = RolloutSettings(model=tmp_path, model_id="m", copies_dir=tmp_path / "copies", lora_rank_max=4)
    trainer = Trainer()
    event = trainer.publish(3, rank=4)
    trainer.transfer.close()
    (tmp_path / "adapter").mkdir()
    event = type(event)(
        **{**{name: getattr(event, name) for name in event.__struct_fields__}, "checkpoint_uri": str(tmp_path)}
    )
    save_file({NAME: torch.full((4, 3), 3.0)}, tmp_path / "adapter" / "adapter_model.safetensors")
    fetched = await fetch(settings, event)
    assert (fetched.source, fetched.manifest.bytes_total) == ("checkpoint", 48)
    fetched.copy.close()
    save_file({NAME: torch.full((4, 3), 4.0)}, tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(SourceFailed, match="digest"):
        await fetch(settings, event)
