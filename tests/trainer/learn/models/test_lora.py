"""LoRA: what is trained, what is published, and what is left as it was."""

import gc
import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.func import functional_call
from transformers import AutoModelForCausalLM, PreTrainedModel

from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.config.lora import LoraSettings
from claw_r1.trainer.config.optimizer import OptimizerSettings
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.learn.examples import LearnerBatch, column
from claw_r1.trainer.learn.model import without_weights
from claw_r1.trainer.learn.models.lora import parameters_of, target_layers
from claw_r1.trainer.learn.models.reference import FrozenModel
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.snapshot import WeightsSnapshot
from tests.soak import EVERY_ZERO_STAGE
from tests.trainer import incarnation
from tests.trainer.learn.tiny_engine import HOW, LOSS, SETTINGS, batch, engine, loss_of
from tests.trainer.tiny import VOCABULARY, make_model

pytestmark = pytest.mark.process

LORA = replace(SETTINGS, lora=LoraSettings(rank=4, alpha=8), seed=3)
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
STEPS = 3
PROBE = (3, 1, 4, 1, 5, 9, 2, 6)


@pytest.fixture
def cut(tmp_path):
    """No parameter is small enough for stage 3 to keep it whole, as DeepSpeed does below 100,000 elements."""
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage3_param_persistence_threshold": 0}}')
    return OptimizerSettings(deepspeed=tmp_path / "ds.json")


def copied(subject):
    return {name: tensor.clone() for name, tensor in subject.named_tensors()}


def by_hand(model_dir, matrices, scale, steps, rate=1e-2):
    """The same steps with A and B as leaves of W + s B A, one sequence at a time, and AdamW written out: (loss, norm), weights."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attention_dropout=0.0)
    frozen = {name: tensor.detach() for name, tensor in model.named_parameters()}
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in matrices.items()}
    first, second = ({name: torch.zeros_like(leaf) for name, leaf in leaves.items()} for _ in range(2))

    def weights():
        stems = {name.removesuffix(".lora_A.weight") for name in leaves if name.endswith(".lora_A.weight")}
        deltas = {stem: scale * leaves[f"{stem}.lora_B.weight"] @ leaves[f"{stem}.lora_A.weight"] for stem in stems}
        named = {f"{stem.removeprefix('base_model.model.')}.weight": delta for stem, delta in deltas.items()}
        return {name: tensor + named.get(name, 0) for name, tensor in frozen.items()}

    curve = []
    for step in range(1, steps + 1):
        rows, total = batch(step), torch.zeros(())
        for row in rows:
            ids = torch.from_numpy(row.ids).long()[None]
            logits = functional_call(model, weights(), (ids,)).logits[0, :-1]
            logprobs = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0][torch.from_numpy(row.at) - 1]
            old = torch.tensor(-3.4)
            total = total + LOSS(logprobs, old, *map(torch.from_numpy, (row.advantages, row.responses))).values.sum()
        loss = total / sum(len(row.at) for row in rows)
        gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        curve.append((float(loss.detach()), norm))
        with torch.no_grad():
            for name, leaf in leaves.items():
                gradient = gradients[name] * min(1.0, 1.0 / (norm + 1e-6))
                first[name].mul_(0.9).add_(gradient, alpha=0.1)
                second[name].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                root = (second[name] / (1 - 0.999**step)).sqrt() + 1e-8
                leaf -= rate * first[name] / (1 - 0.9**step) / root
    return curve, {name: tensor.detach() for name, tensor in weights().items()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"micro_batch_tokens_max": 20, "layout": "tree"},
        {"zero_stage": 2, "micro_batch_tokens_max": 40},
        {"zero_stage": 3, "micro_batch_tokens_max": 40},
        {"zero_stage": 3, "checkpointing": True},
    ],
    ids=["whole", "tree", "zero-2", "zero-3", "checkpointing"],
)
def test_steps_are_those_written_out_by_hand(model_dir, cut, changes):
    """Loss, gradient and merged weights of three steps agree to 1e-5; nothing else of the model moved."""
    optimizer = cut.model_copy(update={"gradient_checkpointing": "checkpointing" in changes})
    changes = {name: value for name, value in changes.items() if name != "checkpointing"}
    subject = engine(model_dir, replace(LORA, **changes, optimizer=optimizer))
    expected_curve, expected = by_hand(model_dir, subject.adapter_tensors(), 8 / 4, STEPS)
    steps = [subject.train(batch(number), **HOW) for number in range(1, STEPS + 1)]
    for step, (loss, norm) in zip(steps, expected_curve, strict=True):
        assert loss_of(step) == pytest.approx(loss, abs=1e-5)
        assert step.grad_norm == pytest.approx(norm, rel=1e-5)
    before = load_file(model_dir / "model.safetensors")
    weights = copied(subject)
    assert list(weights) == [name for name, _ in engine(model_dir).named_tensors()]
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-5)
        assert torch.equal(tensor, before[name]) is not any(f"{layer}.weight" in name for layer in LAYERS), name


def test_before_the_first_step_the_bytes_are_those_of_the_directory(tmp_path):
    """Also of a zero with a minus sign, which becomes one without where anything is added to it."""
    directory = make_model(tmp_path / "tiny")
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"][0, 0] = -0.0
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    with_adapters, without = (engine(directory, each) for each in (LORA, SETTINGS))
    digests = {WeightsManifest.of(subject.named_tensors()).digest for subject in (with_adapters, without)}
    assert len(digests) == 1


def test_the_seed_alone_decides_the_first_matrices(model_dir):
    """Whatever was drawn before; and nothing that is drawn afterwards knows of it."""
    torch.manual_seed(1)
    one = engine(model_dir, LORA).adapter_tensors()
    torch.manual_seed(2)
    expected = torch.rand(3)
    torch.manual_seed(2)
    other = engine(model_dir, LORA).adapter_tensors()
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    third = engine(model_dir, replace(LORA, seed=4)).adapter_tensors()
    drawn = [name for name in one if "lora_A" in name]
    assert len(drawn) == 2 * len(LAYERS)
    assert not any(torch.equal(one[name], third[name]) for name in drawn)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_export_is_for_any_engine_and_its_adapter_for_peft(model_dir, tmp_path, precision):
    """peft says the same by base and adapter as transformers by the merged directory; names, shapes, dtypes are the base's."""
    from peft import PeftModel

    subject = engine(model_dir, replace(LORA, precision=precision))
    for number in range(STEPS):
        subject.train(batch(number), **HOW)
    snapshot, adapter = WeightsSnapshot.of(subject.named_tensors()), subject.adapter_tensors()
    expected = subject.logprobs(PROBE)
    subject.train(batch(9), **HOW)  # what is written is held still
    subject.export(snapshot, tmp_path / "hf", adapter)
    plain = WeightsManifest.of(engine(model_dir, replace(SETTINGS, precision=precision)).named_tensors())
    assert snapshot.manifest.tensors == plain.tensors
    dtype, ids = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision], torch.tensor([PROBE])
    base = AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype)
    beside = PeftModel.from_pretrained(base, tmp_path / "hf" / "adapter", autocast_adapter_dtype=False)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=dtype)
    tolerance = 1e-5 if precision == "fp32" else 0.2
    for model in (beside, merged):
        with torch.no_grad():
            logprobs = model(ids).logits[0, :-1].float().log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        np.testing.assert_allclose(logprobs.numpy(), expected, atol=tolerance)
    of_peft = beside.merge_and_unload().state_dict()
    for name, tensor in merged.state_dict().items():
        torch.testing.assert_close(tensor, of_peft[name], rtol=0, atol=1e-5 if precision == "fp32" else 1e-2)


@EVERY_ZERO_STAGE
def test_what_comes_after_a_checkpoint_is_what_would_have_come(model_dir, tmp_path, cut, stage):
    """To the bit, from files that hold adapters alone."""
    settings = replace(LORA, zero_stage=stage, optimizer=cut)
    subject, other = engine(model_dir, settings), engine(model_dir, settings)
    subject.train(batch(0), **HOW)
    subject.save(tmp_path / "kept", {"about": 1})()
    subject.train(batch(1), **HOW)
    other.train(batch(5), **HOW)
    assert other.load(tmp_path / "kept") == {"about": 1}
    other.train(batch(1), **HOW)
    expected = copied(subject)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in other.named_tensors())
    (states,) = (tmp_path / "kept" / "state").glob("*model_states.pt")
    names = torch.load(states, weights_only=False)["module"]
    assert len(names) == 2 * 2 * len(LAYERS)
    assert all("lora_" in name for name in names)


@EVERY_ZERO_STAGE
def test_an_adapter_that_is_no_number_teaches_nothing(model_dir, cut, stage):
    """A step whose advantage is no number leaves every bit; one by a matrix with a NaN is skipped, as every loss is one."""
    subject = engine(model_dir, replace(LORA, zero_stage=stage, optimizer=cut))
    subject.train(batch(0), **HOW)
    before, poisoned = copied(subject), batch(1)
    poisoned[-1].advantages[0] = math.nan
    assert subject.train(poisoned, **HOW).skipped
    after = copied(subject)
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    [first, *_] = subject._adapter.layers
    with torch.no_grad():
        subject._adapter.matrices(first)[1].fill_(math.nan)
        if stage == 3:
            subject._adapter.matrices(first)[1].ds_tensor.fill_(math.nan)
    assert subject.train(batch(2), **HOW).skipped


def learner(folder, model_dir, **changes):
    reference = {"coefficient": 0.5}
    return learner_of(incarnation.settings(folder, model_dir, device="cpu", reference=reference, **changes))


def models_alive():
    gc.collect()
    kinds = [type(each) for each in gc.get_objects() if isinstance(each, PreTrainedModel)]
    return sum(kind.__name__.endswith("ForCausalLM") for kind in kinds)


@EVERY_ZERO_STAGE
def test_the_reference_is_the_policy_without_its_adapters(model_dir, tmp_path, stage):
    """Its numbers are those of the directory's model after steps that moved the policy, and no second model is there."""
    before = models_alive()
    subject = learner(tmp_path, model_dir, lora={"rank": 4}, zero_stage=stage)
    assert models_alive() == before + 1
    examples = batch(1)
    for number in range(2):
        subject.train(LearnerBatch(batch(number), 0, number, (1,) * 8))
    how = {"device": torch.device("cpu"), "precision": "fp32", "vocabulary": VOCABULARY, "micro_batch_tokens_max": 99}
    expected = FrozenModel(model_dir, "model_dir", **how).logprobs(examples)
    examined = subject.examined(LearnerBatch(examples, 0, 0, (1,) * 8))
    np.testing.assert_allclose(column(examined, "reference"), expected, atol=1e-5)
    assert np.abs(column(examined, "proximal") - expected).max() > 1e-2
    assert not subject.train(LearnerBatch(batch(7), 0, 7, (1,) * 8))["step_skipped"]


def test_a_reference_of_another_directory_is_loaded(model_dir, tmp_path):
    """As without LoRA."""
    other = make_model(tmp_path / "other", seed=5)
    before = models_alive()
    subject = learner_of(
        incarnation.settings(
            tmp_path, model_dir, lora={"rank": 4}, reference={"coefficient": 0.5, "model_dir": other}, device="cpu"
        )
    )
    assert models_alive() == before + 2
    assert subject.examined(LearnerBatch(batch(1), 0, 0, (1,) * 8))


def test_targets_are_ends_of_names(model_dir):
    """On a model without weights, too; the head is never one of them, and what matches nothing is named."""
    shell = without_weights(model_dir)
    assert len(target_layers(shell, ["all-linear"])) == 2 * len(LAYERS)
    assert target_layers(shell, ["1.self_attn.q_proj", "v_proj"]) == [
        "model.layers.0.self_attn.v_proj",
        "model.layers.1.self_attn.q_proj",
        "model.layers.1.self_attn.v_proj",
    ]
    assert parameters_of(shell, LoraSettings(rank=4, targets=("q_proj",))) == (2, 2 * 4 * (32 + 32))
    for target in ("lm_head", "q_prj", "proj", "q_norm"):
        with pytest.raises(
            SettingsInvalid, match=rf"of type qwen3 ends with {target}, .* there are: down_proj, .*v_proj$"
        ):
            target_layers(shell, ["k_proj", target])


def test_only_the_targets_get_adapters(model_dir, tmp_path):
    """And the adapter's config names them."""
    subject = engine(model_dir, replace(LORA, lora=LoraSettings(rank=2, targets=("q_proj",))))
    subject.train(batch(0), **HOW)
    subject.export(WeightsSnapshot.of(subject.named_tensors()), tmp_path / "hf", subject.adapter_tensors())
    with safe_open(tmp_path / "hf" / "adapter" / "adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
    assert names == sorted(
        f"base_model.model.model.layers.{layer}.self_attn.q_proj.{matrix}.weight"
        for layer in (0, 1)
        for matrix in ("lora_A", "lora_B")
    )
    config = json.loads((tmp_path / "hf" / "adapter" / "adapter_config.json").read_text())
    assert config["target_modules"] == [f"model.layers.{layer}.self_attn.q_proj" for layer in (0, 1)]
    assert (config["r"], config["lora_alpha"]) == (2, 32)


def test_without_a_rank_nobody_imports_peft(model_dir, monkeypatch):
    """It may be missing; a rank asks for it."""
    monkeypatch.setitem(sys.modules, "peft", None)
    assert not engine(model_dir).adapter_tensors()
    with pytest.raises(ModuleNotFoundError, match="peft"):
        engine(model_dir, LORA)
