"""`claw up`: worker and trainer of one stack have one model, one run, one log."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.settings import UpSettings
from claw_r1.claw.local.stack import Stack
from claw_r1.claw.local.status_file import write_status
from claw_r1.claw.local.up import components, places_of, run_up, summary_when_up, trainer_settings
from claw_r1.eventlog.locks import take_lock
from claw_r1.runtime.processes.component import Component, ComponentState, State


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory called `model` that looks like a model."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(
        '{"model_type": "qwen3", "num_attention_heads": 16, "num_key_value_heads": 8}'
    )
    (directory / "model.safetensors").touch()
    (directory / "chat_template.jinja").touch()
    return directory


def settings_of(tmp_path: Path, model: Path, **trainer: Any) -> UpSettings:
    """`--model model --config trainer.yaml`, as docs/own-environment.md has it."""
    fields = {"model_dir": str(model), "model_id": "mine", "run_id": "my-run", "out_dir": str(tmp_path / "out")}
    config = tmp_path / "trainer.yaml"
    config.write_text(yaml.safe_dump({**fields, **trainer}))
    return UpSettings(model=model, config=config, port=0)


def rooms(tmp_path: Path, settings: UpSettings) -> list[Component]:
    """What `claw up` starts beside gateway and streams."""
    stack = Stack(run_dir=tmp_path, bootstrap="127.0.0.1:9092", partitions=8)
    return components(settings, trainer_settings(settings), stack, places_of(settings))


def test_the_worker_follows_the_model_and_the_run_that_are_trained(tmp_path: Path, model: Path) -> None:
    """The id is the trainer's, whatever the directory is called: a worker of another id would never be trained."""
    worker, trainer = rooms(tmp_path, settings_of(tmp_path, model))
    flags = dict(pairwise(worker.argv))
    assert (worker.name, trainer.name) == ("rollout", "trainer")
    assert (flags["--model-id"], flags["--served-name"], flags["--run-id"]) == ("mine", "mine", "my-run")


def test_a_worker_without_a_trainer_is_called_like_its_directory(tmp_path: Path, model: Path) -> None:
    """It follows whoever publishes that model."""
    (worker,) = rooms(tmp_path, UpSettings(model=model, port=0))
    flags = dict(pairwise(worker.argv))
    assert flags["--model-id"] == "model"
    assert "--run-id" not in flags


def test_several_workers_have_names_ids_logs_and_cores_of_their_own(tmp_path: Path, model: Path) -> None:
    """Each is a component; one that was drained is not started again."""
    workers = rooms(tmp_path, UpSettings(model=model, port=0, workers=3, tp=2))
    assert [worker.name for worker in workers] == ["rollout-1", "rollout-2", "rollout-3"]
    for flag in ("--worker-id", "--log-file"):
        assert len({dict(pairwise(worker.argv))[flag] for worker in workers}) == 3
    assert {worker.env["CLAW_ROLLOUT_TENSOR_PARALLEL"] for worker in workers} == {"2"}
    assert all(worker.may_finish for worker in workers)
    assert {(worker.budget.restarts_max, worker.budget.window_s) for worker in workers} == {(3, 600)}, "docs/fleet.md"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"model": None, "workers": 2}, "without --model none is started"),
        ({"tp": 3}, "--tp 3: .* num_attention_heads 16"),
        ({"tp": 16}, "--tp 16: .* num_key_value_heads 8"),
        ({"device": "gpu"}, "device gpu: it is one of auto, cpu, cuda"),
        ({"device": "cpu", "gpus": "0"}, "would leave the GPUs alone"),
    ],
)
def test_workers_that_could_not_run_start_nothing(model: Path, wrong: dict[str, Any], says: str) -> None:
    """One line, before a broker is started."""
    with pytest.raises(CannotRun, match=says) as refused:
        run_up(UpSettings(**{"model": model, "port": 0, **wrong}), foreground=True)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "says"), [("model.safetensors", r"no \*.safetensors"), ("chat_template.jinja", "no chat template")]
)
def test_a_model_that_no_worker_could_serve_starts_nothing(model: Path, name: str, says: str) -> None:
    """Rather than three restarts and a trainer that waits for ever."""
    (model / name).unlink()
    with pytest.raises(CannotRun, match=says):
        run_up(UpSettings(model=model, port=0), foreground=True)


@pytest.mark.parametrize(
    ("trainer", "says"),
    [
        ({"topic_prefix": "other"}, "topic_prefix other of --config is not that of this stack, claw"),
        ({"bootstrap_servers": "kafka:9092"}, "bootstrap_servers kafka:9092"),
        ({"topic_partitions": 3}, "topic_partitions 3"),
    ],
)
def test_a_trainer_on_another_log_is_refused(tmp_path: Path, model: Path, trainer: dict[str, Any], says: str) -> None:
    """It would wait for groups that are written elsewhere."""
    with pytest.raises(CannotRun, match=says):
        rooms(tmp_path, settings_of(tmp_path, model, **trainer))


@pytest.mark.parametrize(
    ("trainer", "says"),
    [
        ({"model_dir": "another"}, "model_dir another is no directory"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"typo": 1}, "typo"),
        ({"offer_host": "0.0.0.0"}, "set CLAW_WEIGHTS_SECRET"),
    ],
)
def test_settings_that_no_trainer_starts_with_start_nothing(
    tmp_path: Path, model: Path, trainer: dict[str, Any], says: str
) -> None:
    """What the trainer would refuse is said before a broker is started, in one line."""
    with pytest.raises(CannotRun, match=says) as refused:
        run_up(settings_of(tmp_path, model, **trainer), foreground=True)
    assert "\n" not in str(refused.value)


def test_two_directories_are_a_contradiction(tmp_path: Path, model: Path) -> None:
    """The same directory by another path is none."""
    (tmp_path / "copy").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "copy" / name).write_bytes((model / name).read_bytes())
    (tmp_path / "link").symlink_to(model)
    with pytest.raises(CannotRun, match=r"--model .*/model is not model_dir .*/copy"):
        rooms(tmp_path, settings_of(tmp_path, model, model_dir=str(tmp_path / "copy")))
    assert len(rooms(tmp_path, settings_of(tmp_path, model, model_dir=str(tmp_path / "link")))) == 2


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a home's stack, with what a manager wrote there; a stack that starts all the same finds no broker."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    (folder := tmp_path / "up").mkdir()
    for name in ("status.json", "manager.log"):
        (folder / name).write_text("of another")
    return folder


@pytest.mark.parametrize("trainer", [State.RUNNING, State.FINISHED, State.STARTING])
def test_a_component_that_has_done_its_work_is_not_waited_for(run_dir: Path, trainer: State) -> None:
    """A trainer whose run was over ends at once. The line with the addresses is printed, whatever was logged after it."""
    summary = "broker 127.0.0.1:9092, gateway http://127.0.0.1:40123, logs x"
    write_status(
        run_dir, [ComponentState("gateway", 1, State.RUNNING, 0, None), ComponentState("trainer", 1, trainer, 0, 3)]
    )
    (run_dir / "manager.log").write_text('{"event": "broker_ready"}\n')
    assert summary_when_up(run_dir, os.getpid()) is None, "there is more to start"
    (run_dir / "manager.log").write_text(f'{{"event": "broker_ready"}}\n{summary}\n{{"event": "restarted"}}\n')
    assert summary_when_up(run_dir, os.getpid()) == (None if trainer is State.STARTING else summary)
    assert summary_when_up(run_dir, os.getpid() + 1) is None, "another stack's"


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Another `claw up` has it."""
    descriptor = take_lock(lock)
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("lock", "foreground"), [("manager.lock", True), ("starting.lock", False)])
def test_two_that_start_at_once_are_one_stack(run_dir: Path, lock: str, foreground: bool) -> None:
    """The status names one manager: whoever came second would write over the first one's, which nothing could stop then."""
    with held(run_dir / lock), pytest.raises(CannotRun, match="another `claw up` starts in"):
        run_up(UpSettings(port=0), foreground=foreground)
    assert {path.name: path.read_text() for path in run_dir.iterdir() if path.suffix != ".lock"} == {
        "status.json": "of another",
        "manager.log": "of another",
    }


@pytest.mark.process
def test_a_manager_that_came_second_ends_its_start(run_dir: Path) -> None:
    """The first one starts in a terminal's foreground, of which nobody who detaches knows before."""
    with held(run_dir / "manager.lock"), pytest.raises(CannotRun, match=r"^another `claw up` starts in"):
        run_up(UpSettings(port=0), foreground=False)
    assert (run_dir / "status.json").read_text() == "of another"
