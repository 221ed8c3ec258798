"""`python -m claw_r1.trainer` on two ranks with a real broker, by our launcher and by torch's."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from claw_r1.schemas.events import BatchTrained, RunEnded, WeightsPublished
from tests import children
from tests.children import HEAVY_START_S
from tests.patience import PATIENCE_S
from tests.soak import only_in_soak
from tests.trainer.pooled import RUN, group
from tests.trainer.test_app import events, settled, until, write_groups
from tests.trainer.tiny import make_model

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def start(log_settings, tmp_path):
    """Starts a command line with the config of a run; whatever still runs at the end is killed."""
    config = {
        "model_dir": str(make_model(tmp_path / "model")),
        "model_id": "tiny",
        "run_id": RUN,
        "spec": {"groups_per_batch": 2, "group_size": 4},
        "out_dir": str(tmp_path / "out"),
        "learning_rate": 1e-2,
        "zero_stage": 2,
        "batches_max": 2,
        "device": "cpu",
        "bootstrap_servers": log_settings.bootstrap_servers,
        "topic_prefix": log_settings.prefix,
        "topic_partitions": log_settings.partitions,
    }
    (tmp_path / "train.json").write_text(json.dumps(config))
    started = []

    def starter(*command):
        argv = [sys.executable, "-m", *command, "--config", str(tmp_path / "train.json")]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        started.append(children.start(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield starter
    for process in started:
        children.end(process, 0)
        process.stdout.close()
        process.stderr.close()


def test_two_ranks_stop(log_settings, start):
    """SIGTERM to the command ends all ranks with 0, and the run is not over."""
    stopped(log_settings, start)


@only_in_soak
def test_torchrun_resumes_what_the_command_began(log_settings, start):
    """The launcher of torch goes on with the same run, to its end."""
    stopped(log_settings, start)
    write_groups(log_settings, [e for n in (2, 3) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], version=1, at_us=n)])
    process = start("torch.distributed.run", "--nproc_per_node", "2", "--standalone", "-m", "claw_r1.trainer")
    assert process.wait(HEAVY_START_S) == 0, process.stderr.read()
    settled(log_settings)
    assert [e.sequence for e in events(log_settings, BatchTrained)] == [0, 1]
    assert len({e.digest for e in events(log_settings, WeightsPublished)}) == 3
    assert len(events(log_settings, RunEnded)) == 1


def stopped(log_settings, start):
    """After its first batch."""
    write_groups(log_settings, [e for n in range(2) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)])
    process = start("claw_r1.trainer", "--ranks", "2")
    until(lambda: len(events(log_settings, BatchTrained)) == 1, process)
    followers = psutil.Process(process.pid).children()
    assert len(followers) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0, process.stderr.read()
    assert not any(follower.is_running() for follower in followers)
    settled(log_settings)
    assert events(log_settings, RunEnded) == []
