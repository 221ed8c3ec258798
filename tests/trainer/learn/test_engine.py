"""The real DeepSpeed on a tiny Qwen3."""

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from claw_r1.trainer.config.optimizer import OptimizerSettings
from claw_r1.trainer.errors import CheckpointInvalid, ModelInvalid, SettingsInvalid, Stopped
from claw_r1.trainer.learn.engine import TrainingEngine
from claw_r1.trainer.learn.objective import Objective
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.snapshot import WeightsSnapshot
from tests.trainer.learn.tiny_engine import HOW, LOSS, SETTINGS, batch, engine, loss_of, train
from tests.trainer.tiny import make_model
from tests.weights.tensors import read

pytestmark = pytest.mark.process


def test_every_zero_stage_and_plain_torch_learn_the_same(model_dir, tmp_path):
    """Losses, gradient norms and weights of five steps agree, in one pass or in many micro-batches.

    At stage 3 no parameter is small enough to be kept whole, as DeepSpeed does below 100,000 elements.
    """
    reference, expected = plain_torch(model_dir, steps=5)
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage3_param_persistence_threshold": 0}}')
    partitioned = OptimizerSettings(deepspeed=tmp_path / "ds.json")
    for changes in (
        {},
        {"zero_stage": 2},
        {"micro_batch_tokens_max": 20},
        {"zero_stage": 2, "micro_batch_tokens_max": 20},
        {"zero_stage": 3, "micro_batch_tokens_max": 40, "optimizer": partitioned},
        {"micro_batch_tokens_max": 40, "optimizer": OptimizerSettings(gradient_checkpointing=True)},
    ):
        curve, weights = train(model_dir, replace(SETTINGS, **changes))
        assert curve == [pytest.approx(step, rel=1e-4, abs=1e-5) for step in reference], changes
        for name, tensor in weights.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=2e-5)


def plain_torch(model_dir, steps):
    """The same five steps without DeepSpeed and without our batching: one sequence at a time."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attention_dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    curve = []
    for step in range(steps):
        subject = batch(step)
        total, tokens = torch.zeros(()), sum(len(each.at) for each in subject)
        for each in subject:
            ids = torch.from_numpy(each.ids).long()[None]
            logprobs = model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
            trained = logprobs[torch.from_numpy(each.at) - 1]
            total = (
                total
                + LOSS(
                    trained, torch.tensor(-3.4), *map(torch.from_numpy, (each.advantages, each.responses))
                ).values.sum()
            )
        optimizer.zero_grad()
        (total / tokens).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curve.append((total.item() / tokens, norm.item()))
    return curve, {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("stage", [0, 2])
def test_bf16_weights_are_published_as_they_are(model_dir, tmp_path, stage):
    """In bf16 the step works, the manifest says bfloat16, and the export holds the same bytes."""
    subject = engine(model_dir, replace(SETTINGS, precision="bf16", zero_stage=stage))
    step = subject.train(batch(0), **HOW)
    assert loss_of(step) == pytest.approx(plain_torch(model_dir, steps=1)[0][0][0], rel=0.02)
    manifest = WeightsManifest.of(subject.named_tensors())
    assert {spec.dtype for spec in manifest.tensors} == {"bfloat16"}
    subject.export(WeightsSnapshot.of(subject.named_tensors()), tmp_path / "hf", {})
    assert len(read(str(tmp_path / "hf"), manifest)) == len(manifest.tensors)


def test_the_gradient_is_that_of_the_scales(model_dir):
    """Norm `constant`: half the gradient for twice the constant."""
    by_length = [Objective(loss=LOSS, norm="constant", loss_length=length) for length in (5, 10)]
    norms = [engine(model_dir).train(each.scaled(batch(0), 8), **HOW).grad_norm for each in by_length]
    assert norms[1] == pytest.approx(norms[0] / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        ({"zero_optimization": {"overlap_comm": "sometimes"}}, "overlap_comm"),
        ({"sparse_attention": {"mode": "nonsense"}}, "sparse_attention"),
    ],
)
def test_what_deepspeed_refuses_is_one_line(model_dir, tmp_path, theirs, says):
    """It checks its file by itself and raises what it likes; a person wrote the file, and reads no traceback."""
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(theirs))
    settings = replace(SETTINGS, zero_stage=2, optimizer=OptimizerSettings(deepspeed=file))
    with pytest.raises(SettingsInvalid, match=r"optimizer\.deepspeed: DeepSpeed refuses .*ds\.json: \w+: ") as refused:
        engine(model_dir, settings)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_offloaded_optimizer_trains(model_dir, tmp_path):
    """As docs/optimization.md has it: the same weights as without."""
    file = tmp_path / "ds.json"
    offload = {"offload_optimizer": {"device": "cpu"}}
    file.write_text(json.dumps({"zero_optimization": offload, "zero_force_ds_cpu_optimizer": False}))
    plain = replace(SETTINGS, zero_stage=2)
    _, weights = train(model_dir, replace(plain, optimizer=OptimizerSettings(deepspeed=file)), steps=2)
    _, expected = train(model_dir, plain, steps=2)
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor)


@pytest.mark.parametrize("stage", [0, 2])
def test_a_loaded_checkpoint_goes_on_bit_for_bit(model_dir, tmp_path, stage):
    """Save, fresh engine, load: the next steps give the very bytes of the uninterrupted run.

    The state is written to disk only after two more steps: what was saved is a copy.
    """
    settings = replace(SETTINGS, zero_stage=stage)
    subject = engine(model_dir, settings)
    for step in range(2):
        subject.train(batch(step), **HOW)
    write = subject.save(tmp_path, {"note": 7})
    at_save = WeightsManifest.of(subject.named_tensors())
    for step in range(2, 4):
        subject.train(batch(step), **HOW)
    write()
    expected = WeightsManifest.of(subject.named_tensors())
    fresh = engine(model_dir, settings)
    assert fresh.load(tmp_path) == {"note": 7}
    assert WeightsManifest.of(fresh.named_tensors()) == at_save
    for step in range(2, 4):
        fresh.train(batch(step), **HOW)
    assert WeightsManifest.of(fresh.named_tensors()) == expected


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_trainer_and_engine_agree_on_logprobs(model_dir, temperature):
    """Behaviour logprobs of the same weights, one sequence at a time at its temperature: a gap of rounding only."""
    subject = batch(0, temperature)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attention_dropout=0.0).eval()
    for each in subject:
        ids = torch.from_numpy(each.ids).long()[None]
        with torch.no_grad():
            scored = (model(ids).logits[0, :-1] / temperature).log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        each.behaviour[:] = scored.numpy()[each.at - 1]
    totals = engine(model_dir).train(subject, **HOW).totals
    assert totals.gap[0] == totals.means()["trained_tokens"]
    assert totals.gap[1] < 1e-5
    assert abs(totals.means()["kl_k1"]) < 1e-5


def test_a_wrong_temperature_shows_as_a_gap(model_dir):
    """The gap is no decoration: rows that claim another temperature do not agree."""
    assert engine(model_dir).train(batch(0), **HOW).totals.gap[1] > 0.1


def test_learning_rate_0_changes_no_byte(model_dir):
    """The control trains everything and learns nothing."""
    subject = engine(model_dir, replace(SETTINGS, learning_rate=0.0))
    before = WeightsManifest.of(subject.named_tensors())
    assert subject.train(batch(0), **HOW).grad_norm > 0
    assert WeightsManifest.of(subject.named_tensors()) == before


@pytest.mark.parametrize("tied", [True, False])
def test_an_export_is_the_model_with_these_weights(tmp_path, tied):
    """It loads in transformers, has the published digest, and carries the tokenizer files along."""
    source = make_model(tmp_path / "source", tied=tied)
    subject = engine(source)
    subject.train(batch(0), **HOW)
    subject.export(WeightsSnapshot.of(subject.named_tensors()), tmp_path / "hf" / "1", {})
    manifest = WeightsManifest.of(subject.named_tensors())
    expected = {name: tensor.clone() for name, tensor in subject.named_tensors()}
    assert ("lm_head.weight" in expected) is not tied
    assert read(str(tmp_path / "hf" / "1"), manifest).keys() == expected.keys()
    loaded = dict(AutoModelForCausalLM.from_pretrained(tmp_path / "hf" / "1", dtype=torch.float32).named_parameters())
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())
    assert (tmp_path / "hf" / "1" / "tokenizer.json").read_text() == '{"stand-in": true}'
    assert [path.name for path in (tmp_path / "hf").iterdir()] == ["1"]


def test_an_abandoned_step_raises_before_the_next_micro_batch(model_dir):
    """Somebody who wants to stop does not wait for the whole batch."""
    passed = []

    def stop_at_third():
        passed.append(1)
        if len(passed) == 3:
            raise Stopped("asked to stop")

    subject = engine(model_dir, replace(SETTINGS, micro_batch_tokens_max=10))
    with pytest.raises(Stopped):
        subject.train(batch(0), **HOW, before_micro_batch=stop_at_third)
    assert len(passed) == 3


def test_what_is_no_model_is_refused_in_one_line(tmp_path):
    """No directory, no config, no weights, broken weights: one line each, no traceback of a library."""
    (tmp_path / "empty").mkdir()
    broken = make_model(tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"nothing")
    for directory in (tmp_path / "none", tmp_path / "empty", broken):
        with pytest.raises(ModelInvalid, match=str(directory)) as refused:
            TrainingEngine(directory, SETTINGS)
        assert "\n" not in str(refused.value)


def test_a_directory_without_checkpoint_is_refused(model_dir, tmp_path):
    """A damaged checkpoint is an error, not a silent fresh start."""
    subject = engine(model_dir)
    with pytest.raises(CheckpointInvalid):
        subject.load(tmp_path)


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_no_file_of_a_checkpoint_is_made_before_the_writer_runs(model_dir, tmp_path, stage):
    """A full disk then fails in one place; what failed while ranks wait for each other would leave some of them waiting."""
    write = engine(model_dir, replace(SETTINGS, zero_stage=stage)).save(tmp_path / "checkpoint", {})
    assert not (tmp_path / "checkpoint").exists()
    write()
    names = {path.name.removesuffix(".sha256") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()}
    assert names
    assert all(name.endswith("_states.pt") for name in names)


@pytest.mark.parametrize("stage", [0, 2])
def test_settings_that_were_allowed_to_change_are_used_after_a_load(model_dir, tmp_path, stage):
    """A checkpoint brings the optimizer's numbers; the weight decay and clip of the settings win."""
    before = engine(model_dir, replace(SETTINGS, zero_stage=stage))
    before.train(batch(0), **HOW)
    before.save(tmp_path, {})()
    changed = replace(SETTINGS, zero_stage=stage, weight_decay=0.9, grad_clip=1e-6)
    after, same = engine(model_dir, changed), engine(model_dir, replace(SETTINGS, zero_stage=stage))
    for each in (after, same):
        each.load(tmp_path)
        each.train(batch(1), **HOW)
    sizes = [sum(float(tensor.abs().sum()) for _, tensor in each.named_tensors()) for each in (after, same)]
    assert sizes[0] < sizes[1]
    (group,) = after._model._engine.optimizer.param_groups[:1]
    assert group["weight_decay"] == 0.9
