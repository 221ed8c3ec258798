"""`claw status`: what the stack's manager and its trainer left for it to read."""

import json
import os
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.local.stack import TRAINER_WARNINGS, Stack, remember
from claw_r1.claw.local.status import as_text, show_status, with_engine
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.child import start
from claw_r1.runtime.processes.component import ComponentState, State
from claw_r1.runtime.processes.process_identity import ProcessId
from claw_r1.schemas.topics import BATCHES, WORKERS
from claw_r1.trainer.errors import RUN_WAS_OVER
from tests import children
from tests.claw.events import trained
from tests.claw.workers.reported import report

SAID = "skipped 20 groups in a row, the last because of too_stale: raise it"


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack whose manager is this process; its trainer left a warning."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path / "home"))
    run_dir = tmp_path / "up"
    run_dir.mkdir()
    remember(run_dir, LogSettings(bootstrap_servers="127.0.0.1:1"))
    (run_dir / TRAINER_WARNINGS).write_text(json.dumps([SAID]))
    return run_dir


def write_status(run_dir: Path, trainer: State) -> None:
    states = [ComponentState("gateway", os.getpid(), State.RUNNING, 0, None)]
    states.append(ComponentState("trainer", None, trainer, 0, None))
    manager = ProcessId.of(os.getpid())
    assert manager is not None
    components = [asdict(state) for state in states]
    (run_dir / "status.json").write_text(json.dumps({"manager": asdict(manager), "components": components}))


def test_what_the_trainer_warns_of_is_shown(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below the components, and in the JSON."""
    write_status(stack, State.RUNNING)
    assert emit(show_status(), as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"warning: trainer: {SAID}"
    emit(show_status(), as_json=True)
    assert orjson.loads(capsys.readouterr().out)["warnings"] == [SAID]


def test_a_trainer_that_is_gone_or_content_warns_of_nothing(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An old file says nothing of today."""
    write_status(stack, State.FINISHED)
    emit(show_status(), as_json=True)
    assert orjson.loads(capsys.readouterr().out)["warnings"] == []
    write_status(stack, State.RUNNING)
    (stack / TRAINER_WARNINGS).unlink()
    emit(show_status(), as_json=True)
    assert orjson.loads(capsys.readouterr().out)["warnings"] == []


def test_nothing_started_is_exit_code_1_and_names_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a home where nothing ran, a person reads how to start something, a program an empty list."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    assert emit(show_status(), as_json=False) == 1
    assert capsys.readouterr().out == "nothing was started yet: `claw demo`, or `claw up`\n"
    assert emit(show_status(), as_json=True) == 1
    assert orjson.loads(capsys.readouterr().out) == {"run_dir": None, "components": [], "warnings": [], "idle": None}


@pytest.mark.kafka
def test_who_was_idle_is_read_from_the_stacks_own_log(
    stack: Path, log_settings: LogSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the run that trained last; a log that does not answer leaves it open, and nothing is started for it."""
    write_status(stack, State.RUNNING)
    emit(show_status(), as_json=True)
    assert orjson.loads(capsys.readouterr().out)["idle"] is None
    remember(stack, log_settings)
    emit(show_status(), as_json=True)
    assert orjson.loads(capsys.readouterr().out.splitlines()[-1])["idle"]["advice"] is None
    with closing(EventProducer(log_settings)) as producer:
        for sequence in range(3):
            producer.publish_now(BATCHES, b"r", trained(sequence, 0.5, wait_s=10.0, train_s=0.0))
            time.sleep(0.01)
            seconds = {"serving": 3.0 * sequence, "idle": 1.0 * sequence, "paused": 0.0}
            producer.publish_now(WORKERS, b"w", report(seconds=seconds))
    emit(show_status(), as_json=False)
    assert "workers are what to add" in capsys.readouterr().out


def test_the_engine_is_listed_below_its_worker() -> None:
    """vLLM is a child of the worker's child; a worker that is gone has none."""
    worker = start(["sh", "-c", "sh -c 'sleep 60; :'; :"])
    states = [ComponentState(name, worker.pid, State.RUNNING, 0, None) for name in ("rollout-2", "gateway")]
    try:
        while len(listed := with_engine(states)) < 3:
            assert worker.poll() is None
            time.sleep(0.02)
    finally:
        children.end(worker)
    assert [state.component for state in listed] == ["rollout-2", "vllm-2", "gateway"]
    assert listed[1].pid not in (None, worker.pid)
    assert with_engine(states) == states


def test_a_trainer_whose_run_was_over_says_so(stack: Path) -> None:
    """Its code is no death of the stack, and `claw status` says what to look at."""
    component = Stack(run_dir=stack, bootstrap="127.0.0.1:1").trainer(stack / "trainer.yaml")
    assert (component.may_finish, component.finished_before_code) == (True, RUN_WAS_OVER)
    over, well = (ComponentState("trainer", None, State.FINISHED, 0, code) for code in (RUN_WAS_OVER, 0))
    assert "it was over before it began" in as_text([over])
    assert "over" not in as_text([well])


def test_where_a_component_tells_its_metrics_is_listed_while_it_lives() -> None:
    """For whoever follows a runbook without a Prometheus."""
    streams, trainer = (ComponentState("x", 1, state, 0, None, 7001) for state in (State.RUNNING, State.FINISHED))
    assert "http://127.0.0.1:7001/metrics" in as_text([streams])
    assert "metrics" not in as_text([trainer])


def test_a_stack_tells_its_trainer_where_to_warn(stack: Path) -> None:
    """What `claw status` reads is what the trainer's setting names."""
    component = Stack(run_dir=stack, bootstrap="127.0.0.1:1").trainer(stack / "trainer.yaml")
    assert component.env["CLAW_TRAINER_WARNINGS_FILE"] == str(stack / TRAINER_WARNINGS)
