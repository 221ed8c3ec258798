"""The sequence of an update, with an engine and sources that are told how to fail."""

from collections.abc import Mapping
from functools import partial

import pytest

from rollout.errors import EngineLost, SourceFailed
from rollout.sync import OpenSource, Source, from_checkpoint, sync
from rollout.transfer_client import source_of
from schemas.envelopes import envelope
from schemas.events import TensorSpec, WeightsPublished
from weights.manifest import WeightsManifest
from weights.rendezvous import Rendezvous, Transfer

TARGET = WeightsPublished(
    envelope=envelope("test"),
    model_id="m",
    run_id="run",
    version=7,
    digest="d",
    bytes_total=4,
    manifest=(TensorSpec(name="t", dtype="float32", shape=(1,)),),
    checkpoint_uri="/ckpt",
)
UPDATE = ["pause", "start", "update", "finish run/7", "resume"]
RECOVERY = ["pause", "start", "update", "start", "finish None", "resume"]


class Engine:
    """Notes each step; fails at the named ones."""

    def __init__(self, *failing: str) -> None:
        self.steps: list[str] = []
        self.updates: list[Mapping[str, object]] = []
        self._failing = list(failing)

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name.split()[0] in self._failing:
            self._failing.remove(name.split()[0])
            raise SourceFailed(name) if name == "update" else EngineLost(name)

    async def pause(self) -> None:
        self._step("pause")

    async def start(self) -> None:
        self._step("start")

    async def update(self, update_info: Mapping[str, object], timeout_s: float) -> None:
        self.updates.append(update_info)
        self._step("update")

    async def finish(self, label: str | None = None) -> None:
        self._step(f"finish {label}")

    async def resume(self) -> None:
        self._step("resume")


def opening(source: Source | SourceFailed | None) -> OpenSource:
    async def open_source(target: WeightsPublished) -> Source | None:
        if isinstance(source, SourceFailed):
            raise source
        return source

    return open_source


TRANSFER = Source("transfer", {"rendezvous": {}}, 1.0)


async def test_an_update_labels_before_it_resumes() -> None:
    """The label changes while the engine is paused, so no token gets the wrong one."""
    engine = Engine()
    loaded = await sync(engine, TARGET, [opening(TRANSFER)])
    assert engine.steps == UPDATE
    assert loaded.source == "transfer"
    assert engine.updates[0]["manifest"] == {
        "digest": "d",
        "tensors": [{"name": "t", "dtype": "float32", "shape": [1]}],
    }


async def test_a_failed_transfer_puts_the_old_weights_back_and_tries_the_next_source() -> None:
    """After a failed transfer the engine goes on unchanged, and the checkpoint is loaded."""
    engine = Engine("update")
    loaded = await sync(engine, TARGET, [opening(TRANSFER), partial(from_checkpoint, 1.0)])
    assert engine.steps == RECOVERY + UPDATE
    assert loaded.source == "checkpoint"


async def test_a_source_that_cannot_be_opened_never_pauses_the_engine() -> None:
    """When no source opens, the engine is not touched, and every reason is told."""
    engine = Engine()
    with pytest.raises(SourceFailed, match=r"gone.*busy"):
        await sync(engine, TARGET, [opening(SourceFailed("gone")), opening(None), opening(SourceFailed("busy"))])
    assert engine.steps == []


@pytest.mark.parametrize("step", ["pause", "start", "finish", "resume"])
async def test_any_other_failure_gives_the_engine_up(step: str) -> None:
    """A step that never fails and does leaves an unknown engine: no other source is tried."""
    engine = Engine(step)
    with pytest.raises(EngineLost):
        await sync(engine, TARGET, [opening(TRANSFER), partial(from_checkpoint, 1.0)])
    assert engine.steps[-1].split()[0] == step


async def test_a_recovery_that_fails_gives_the_engine_up() -> None:
    """Weights that loading left half way are never served."""
    engine = Engine("update", "finish")
    with pytest.raises(EngineLost):
        await sync(engine, TARGET, [opening(TRANSFER)])
    assert "resume" not in engine.steps


@pytest.mark.parametrize(("run_id", "version", "digest"), [("other", 7, "d"), ("run", 8, "d"), ("run", 7, "e")])
def test_a_transfer_of_something_else_is_refused(run_id: str, version: int, digest: str) -> None:
    """Only the version that was published, with the bytes that were published, is loaded under its label."""
    transfer = Transfer(run_id, version, WeightsManifest((), digest), Rendezvous("h", 1, "p", 1.0, 16))
    with pytest.raises(SourceFailed, match="the trainer sends"):
        source_of(transfer, TARGET, 1.0)
