"""`python -m claw_r1.trainer` on a real broker, with real offers: the composition as it runs in production."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack

import pytest

from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.events import BatchAssembled, BatchTrained, RunEnded, RunStarted, WeightsPublished
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import BATCHES, GROUPS, STEPS, TRAJECTORIES, WEIGHTS
from claw_r1.trainer.__main__ import _leave, main
from claw_r1.trainer.app import _metrics
from claw_r1.trainer.errors import RUN_WAS_OVER
from claw_r1.trainer.journal.journal import transactional_id
from claw_r1.weights.host_copies import HostCopies
from claw_r1.weights.sources import FromTrainer
from tests import children, patience
from tests.children import HEAVY_START_S
from tests.patience import LOOK_EVERY_S, PATIENCE_S
from tests.trainer import incarnation
from tests.trainer.pooled import RUN, group, rows_of
from tests.trainer.storage.test_async_writer import manifest_of
from tests.trainer.test_resume import PROCESSES, exit_code
from tests.trainer.tiny import make_model
from tests.weights.tensors import take

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def write_groups(settings, history):
    """Facts as the gateway writes them, rows as the streams write them."""
    producer, pool = EventProducer(settings), TransactionalProducer(settings, "streams-test")
    pool.open()
    topics = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}

    def append(item):
        return producer.produce(item).result(10)

    rows = list(rows_of(history, append))
    pool.commit(
        [
            Outgoing(
                topic=topics[name], key=key, value=value, partition=partition_of(group_key(g), settings.partitions)
            )
            for g, name, key, value in rows
        ]
    )
    pool.close()
    producer.close()


def events(settings, kind):
    with LogReader(settings, [BATCHES, WEIGHTS]) as reader:
        made = [record.event() for record in reader.read_to_end()]
    return [event for event in made if isinstance(event, kind)]


def until(holds, process):
    """A patience.until that fails at once when the trainer ends."""

    def alive():
        assert process.poll() is None, process.stderr.read()
        time.sleep(LOOK_EVERY_S)

    return patience.until(holds, step=alive, patience_s=HEAVY_START_S)


def settled(settings):
    """Kafka writes the marks of a transaction after it answered; whoever opens the same id waits for them."""
    producer = TransactionalProducer(settings, transactional_id(settings, RUN))
    producer.open()
    producer.close()


@pytest.fixture
def start(log_settings, tmp_path):
    """Starts the trainer; whatever still runs at the end is killed."""
    config = {
        "model_dir": str(make_model(tmp_path / "model")),
        "model_id": "tiny",
        "run_id": RUN,
        "spec": {"groups_per_batch": 2, "group_size": 4},
        "out_dir": str(tmp_path / "out"),
        "learning_rate": 1e-2,
        "batches_max": 2,
        "linger_s": 20,
        "bootstrap_servers": log_settings.bootstrap_servers,
        "topic_prefix": log_settings.prefix,
        "topic_partitions": log_settings.partitions,
    }
    (tmp_path / "train.json").write_text(json.dumps(config))
    started = []

    def starter(generation=1, port=0):
        command = [sys.executable, "-m", "claw_r1.trainer", "--config", str(tmp_path / "train.json")]
        env = {**os.environ, "CLAW_LOG_GENERATION": str(generation), "CLAW_TRAINER_METRICS_PORT": str(port)}
        started.append(children.start(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield starter
    for process in started:
        children.end(process, 0)
        process.stdout.close()
        process.stderr.close()


def test_train_serve_stop_and_resume(log_settings, start, tmp_path):
    """A batch is trained and its weights are had by the offer; SIGTERM ends in time; the next start finishes the run, with
    the groups of the pool's next generation when it was cut over to that."""
    history = [e for n in range(2) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)]
    write_groups(log_settings, history)
    (port,) = free_ports(1)
    process = start(port=port)
    published = until(lambda: len(found := events(log_settings, WeightsPublished)) == 2 and found, process)
    assert [event.version for event in published] == [0, 1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S) as ready:
        assert json.load(ready) == {"ready": True, "reason": None}
    manifest = manifest_of(published[1])
    source = FromTrainer(published[1].offer_url, RUN, 1, worker_id="w", connect_timeout_s=5)
    take(HostCopies(tmp_path / "copies"), manifest, source).close()  # raises unless the bytes are those of the digest
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    settled(log_settings)
    assert events(log_settings, RunEnded) == []

    second = log_settings.model_copy(update={"generation": 2})
    create_topics(second)
    write_groups(second, [e for n in (2, 3) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], version=1, at_us=n)])
    process = start(generation=2)
    assert process.wait(HEAVY_START_S) == 0, process.stderr.read()
    assert process.stdout.read() == ""
    settled(log_settings)
    assert [e.sequence for e in events(log_settings, BatchTrained)] == [0, 1]
    assert [e.sequence for e in events(log_settings, BatchAssembled)] == [0, 1]
    assert [e.incarnation for e in events(log_settings, RunStarted)] == [1, 2]
    assert [e.batches for e in events(log_settings, RunEnded)] == [2]
    over = answer_of(tmp_path)
    assert (over.returncode, json.loads(over.stdout)["ending"]) == (RUN_WAS_OVER, "over")
    assert over.stderr.splitlines()[-1].startswith(f"trainer: run {RUN} is over after 2 batches")
    assert [e.batches for e in events(log_settings, RunEnded)] == [2]
    assert len((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()) == 2
    assert list((tmp_path / "out" / "tensorboard").iterdir())
    replayed = answer_of(tmp_path, "--replay-batch", "1")
    assert replayed.returncode == 0, replayed.stderr
    answer = json.loads(replayed.stdout)
    assert (answer["checkpoint"], answer["weights_after"]["same"], answer["differ"]) == (0, True, {})


def answer_of(tmp_path, *arguments):
    """A command of the same settings, at its end: in a fork of a process that has torch loaded already."""
    argv, said = (
        ["--config", str(tmp_path / "train.json"), "--json", *arguments],
        (tmp_path / "stdout", tmp_path / "stderr"),
    )
    code = exit_code(PROCESSES.Process(target=command, args=(argv, said)))
    return subprocess.CompletedProcess(argv, code, *(path.read_text() for path in said))


def command(argv, said):
    """What `python -m claw_r1.trainer` does."""
    for descriptor, path in enumerate(said, start=1):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), descriptor)
    _leave(main(argv))


def test_what_is_in_the_pool_is_looked_at_trained_and_replayed_without_agents(log_settings, start, tmp_path):
    """A dry run names the batch that comes next; offline training takes it whoever sampled it, and leaves the log alone."""
    write_groups(log_settings, [e for n in range(2) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)])
    dry = json.loads(answer_of(tmp_path, "--dry-run").stdout)
    assert dry["batch"]["chosen"] == ["g0", "g1"]
    assert dry["bytes_per_rank"]["policy"]["total"] > 0
    done = answer_of(tmp_path, "--offline", "pool", "--set", "run_id=another")
    assert done.returncode == 0, done.stderr
    standing = json.loads(done.stdout)
    assert (standing["ending"], standing["run_id"], standing["batches"], standing["version"]) == (
        "finished",
        "another",
        1,
        1,
    )
    assert events(log_settings, RunStarted) == events(log_settings, WeightsPublished) == []


@pytest.mark.parametrize(
    ("phase", "stay", "stays"), [("ended", True, True), ("ended", False, False), ("exporting", True, False)]
)
def test_a_run_that_is_over_stays_where_it_would_be_started_again(tmp_path, phase, stay, stays):
    """With its metrics, until it is told to stop; not where it was stopped before its end."""
    stop, resources = threading.Event(), ExitStack()
    chosen = incarnation.settings(tmp_path, make_model(tmp_path / "model"), stay_when_over=stay)
    _metrics(chosen, resources, stop).enter(phase)
    leaving = threading.Thread(target=resources.close)
    leaving.start()
    leaving.join(0.5 if stays else PATIENCE_S)
    assert leaving.is_alive() == stays
    stop.set()
    leaving.join(PATIENCE_S)
    assert not leaving.is_alive()


def test_a_trainer_whose_run_was_taken_over_stops_with_one_line(log_settings, start):
    """Somebody else opens the run's transactional id: the next commit of the first is refused, and it exits with 2."""
    process = start()
    until(lambda: events(log_settings, RunStarted), process)
    settled(log_settings)  # which opens the run's id
    write_groups(log_settings, [e for n in range(2) for e in group(f"g{n}", [0.0, 1.0, 1.0, 0.0], at_us=n)])
    assert process.wait(HEAVY_START_S) == 2
    assert "taken over by another trainer" in process.stderr.read().splitlines()[-1]
    assert events(log_settings, BatchAssembled) == []
