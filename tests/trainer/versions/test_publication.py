"""What a version says of itself, so that a worker can check what it loaded."""

import hashlib
import json
import threading

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from claw_r1.rollout.fetch import manifest_of
from claw_r1.schemas.events import WeightsPublished
from claw_r1.trainer.run import TrainingRun
from claw_r1.trainer.versions.publication import probe_ids
from claw_r1.weights.archive import FromArchive
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.digests import Digest
from claw_r1.weights.host_copies import HostCopies, tensors
from claw_r1.weights.sources import FromDirectory
from tests.trainer.incarnation import SPEC, settings
from tests.trainer.runs_in_memory import events, two_batches, world_of
from tests.trainer.tiny import make_model

pytestmark = pytest.mark.process


def published(tmp_path, batches_max=2, **changes):
    model_dir = make_model(tmp_path / "tiny")
    chosen = settings(tmp_path / "out", model_dir, batches_max=batches_max, hf_every=1, hf_kept=9, **changes)
    log, collaborators = world_of(chosen, two_batches())
    TrainingRun(chosen, collaborators).run()
    return list(events(log, WeightsPublished))


def test_each_version_carries_log_probabilities_by_exactly_its_weights(tmp_path):
    """transformers says the same of the export; the ids are the same in all versions, and each says how old it may grow."""
    versions = published(tmp_path)
    assert {event.version for event in versions} == {0, 1, 2}
    assert len({event.probe_ids for event in versions}) == 1
    assert len({event.probe_logprobs for event in versions}) == 3, "weights that were trained are told apart"
    assert {event.staleness_max for event in versions} == {SPEC.staleness_max}
    ids = torch.from_numpy(np.frombuffer(versions[0].probe_ids, "<i4").astype(np.int64))
    assert len(ids) == 48
    for event in versions:
        if event.checkpoint_uri:
            model = AutoModelForCausalLM.from_pretrained(event.checkpoint_uri.removeprefix("file://"))
            with torch.no_grad():
                logprobs = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
            assert np.frombuffer(event.probe_logprobs, "<f4") == pytest.approx(logprobs.numpy(), abs=1e-5)


def test_a_version_of_adapters_can_be_had_as_its_adapter(tmp_path):
    """Base + alpha / rank * B A of the staged adapter is the version; without LoRA there is none."""
    model_dir = make_model(tmp_path / "tiny")
    chosen = settings(tmp_path / "out", model_dir, batches_max=1, hf_every=1, lora={"rank": 2, "alpha": 8})
    log, collaborators = world_of(chosen, two_batches())
    TrainingRun(chosen, collaborators).run()
    versions = {event.version: event for event in events(log, WeightsPublished) if event.checkpoint_uri}
    staged = collaborators.transfer_server.staged
    for number, event in versions.items():
        assert (event.adapter.rank, event.adapter.alpha) == (2, 8)
        assert {(number, event.digest), (number, event.adapter.digest)} <= set(staged)
        adapter = WeightsPublished(
            **{name: getattr(event, name) for name in event.__struct_fields__}
            | {"digest": event.adapter.digest, "manifest": event.adapter.manifest}
        )
        source = FromDirectory(f"{event.checkpoint_uri}/adapter")
        copy = HostCopies(tmp_path / "copies").take(manifest_of(adapter), source, Deadline(10))
        matrices = dict(tensors(copy.path, manifest_of(adapter)))
        name = "model.layers.0.self_attn.q_proj"
        a, b = (matrices[f"base_model.model.{name}.lora_{matrix}.weight"] for matrix in "AB")
        base, whole = (
            AutoModelForCausalLM.from_pretrained(path).get_submodule(name).weight
            for path in (model_dir, event.checkpoint_uri.removeprefix("file://"))
        )
        torch.testing.assert_close(whole, base + 4 * b @ a)
        assert b.any() == (number > 0)
    plain = published(tmp_path / "plain")
    assert {event.adapter for event in plain} == {None}


def test_the_loop_hashes_nothing(tmp_path, monkeypatch):
    """Of each version, with a checkpoint and an export of it: the loop's thread copies and waits, and another one hashes."""
    hashing, sha256 = [], hashlib.sha256

    class RecordingSha:
        def __init__(self, *data):
            self._sha = sha256(*data)
            self.digest, self.hexdigest = self._sha.digest, self._sha.hexdigest

        def update(self, data):
            hashing.append((threading.get_ident(), 0))
            self._sha.update(data)

    class Recording(Digest):
        def update(self, data):
            hashing.append((threading.get_ident(), len(memoryview(data).cast("B"))))
            super().update(data)

    model_dir = make_model(tmp_path / "tiny")
    chosen = settings(tmp_path / "out", model_dir, batches_max=2, hf_every=1, checkpoint_every=1)
    log, collaborators = world_of(chosen, two_batches())
    monkeypatch.setattr("hashlib.sha256", RecordingSha)
    monkeypatch.setattr("claw_r1.weights.snapshot.Digest", Recording)
    TrainingRun(chosen, collaborators).run()
    versions = {event.digest: event for event in events(log, WeightsPublished)}
    assert len(versions) == 3
    assert sum(size for _, size in hashing) >= 3 * next(iter(versions.values())).bytes_total
    assert threading.get_ident() not in {thread for thread, _ in hashing}


def test_zero_tokens_turn_the_probe_off(tmp_path):
    """Nothing is computed and nothing is published."""
    assert {(event.probe_ids, event.probe_logprobs) for event in published(tmp_path, probe_tokens=0)} == {(b"", b"")}


def test_no_special_id_is_asked_about(tmp_path):
    """None that config.json names, alone or in a list, at the top or in the part about text; all are ids of the model."""
    config = {"eos_token_id": [1, 2], "pad_token_id": None, "text_config": {"bos_token_id": 0}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert set(probe_ids(tmp_path, 8, 1000)) == {3, 4, 5, 6, 7}


def test_a_run_that_is_archived_can_be_followed_without_its_trainer(tmp_path):
    """Each version from the first on is in the archive: workers begin with that one. The last is to the bit what its export holds."""
    versions = published(tmp_path, batches_max=1, archive_dir=tmp_path / "archive")  # of whole ones two are kept
    copies, archived = HostCopies(tmp_path / "copies"), {}
    for event in versions:
        source = FromArchive(tmp_path / "archive" / event.run_id)
        archived[event.version] = copies.take(manifest_of(event), source, Deadline(30))
    assert set(archived) == {0, 1}
    newest = [event for event in versions if event.checkpoint_uri][-1]
    assert newest.version == 1
    loaded = dict(tensors(archived[1].path, manifest_of(newest)))
    model = AutoModelForCausalLM.from_pretrained(newest.checkpoint_uri.removeprefix("file://"))
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items() if name in loaded)
    assert {name for name, _ in model.named_parameters()} <= loaded.keys() | {"lm_head.weight"}
