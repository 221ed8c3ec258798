"""DeepSpeed's configuration: the user's file under our settings, and what it may not say."""

import json

import pytest

from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.learn.deepspeed_config import config_of


def config(tmp_path, theirs, **changes):
    path = tmp_path / "ds.json"
    path.write_text(theirs if isinstance(theirs, str) else json.dumps(theirs))
    return config_of(**{"zero_stage": 2, "precision": "bf16", "grad_clip": 1.0, "file": path, **changes})


def test_what_the_file_adds_stays_and_what_both_say_must_agree(tmp_path):
    """Also deep inside; "auto", as files for transformers have it, is what the settings say."""
    theirs = {
        "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": "auto"},
        "bf16": {"enabled": "auto"},
        "gradient_clipping": 1.0,
        "fp16": {"enabled": False},
        "wall_clock_breakdown": True,
        "steps_per_print": 5,
    }
    merged = config(tmp_path, theirs)
    assert merged["zero_optimization"] == {"stage": 2, "overlap_comm": True}
    assert (merged["wall_clock_breakdown"], merged["steps_per_print"]) == (True, 5)
    assert merged["bf16"] == {"enabled": True, "check_grad_overflow": True}
    assert merged["data_types"] == {"grad_accum_dtype": "fp32"}


@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        ({"zero_optimization": {"stage": 3}}, "zero_optimization.stage: 3, and setting zero_stage makes it 2"),
        ({"gradient_clipping": 0.5}, "gradient_clipping: 0.5, and setting grad_clip makes it 1.0"),
        ({"bf16": {"enabled": False}}, "bf16.enabled: false, and setting precision makes it true"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps: 4, and the trainer needs 1: leave it out"),
        (
            {"data_types": {"grad_accum_dtype": "bf16"}},
            'grad_accum_dtype: "bf16", and setting precision makes it "fp32"',
        ),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
            '"zero_force_ds_cpu_optimizer": false in it, too',
        ),
        ({"optimizer": {"type": "Adam"}}, "learning_rate, weight_decay and optimizer"),
        ({"scheduler": {"type": "WarmupLR"}}, "optimizer.schedule"),
        ({"fp16": {"enabled": True}}, "precision is fp32 or bf16"),
        ({"train_batch_size": 64}, "made of groups"),
        ([1], "no JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_a_contradiction_is_named(tmp_path, theirs, named):
    """One line, with the file and the key."""
    with pytest.raises(SettingsInvalid, match=r"ds\.json") as refused:
        config(tmp_path, theirs)
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_offload_that_deepspeed_takes_is_taken(tmp_path):
    """With the key that lets it have the optimizer of torch; one to nowhere is none."""
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    merged = config(tmp_path, {"zero_optimization": zero, "zero_force_ds_cpu_optimizer": False})
    assert merged["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    config(tmp_path, {"zero_optimization": {"offload_optimizer": {"device": "none"}}})


def test_before_torch_says_what_auto_means_nothing_is_refused_for_it(tmp_path):
    """The engine looks again, with the precision that it has."""
    assert "bf16" not in config_of(zero_stage=0, precision="auto", grad_clip=1.0)
    config(tmp_path, {"bf16": {"enabled": True}}, precision="auto")
    with pytest.raises(SettingsInvalid, match=r"bf16\.enabled: true"):
        config(tmp_path, {"bf16": {"enabled": True}}, precision="fp32")
