"""Checkpoints and exports are written by a thread from copies; a full disk costs one of them and never the run."""

import errno
import multiprocessing
import signal
import threading

import pytest
from structlog.testing import capture_logs

from claw_r1.schemas.events import BatchTrained, RunEnded, WeightsPublished
from claw_r1.trainer.dependencies import Milestone
from claw_r1.trainer.run import TrainingRun
from claw_r1.trainer.storage import state_files
from claw_r1.trainer.storage.checkpoints import Checkpoints
from claw_r1.weights import checkpoint
from claw_r1.weights.manifest import TensorShape, WeightsManifest
from tests.trainer import incarnation
from tests.trainer.incarnation import settings
from tests.trainer.runs_in_memory import DEADLINE_S, events, two_batches, world_of
from tests.trainer.test_resume import exit_code
from tests.weights.tensors import read

pytestmark = pytest.mark.process
PROCESSES = multiprocessing.get_context("forkserver")
FULL = OSError(errno.ENOSPC, "No space left on device")


def manifest_of(event):
    return WeightsManifest(tuple(TensorShape(t.name, t.dtype, tuple(t.shape)) for t in event.manifest), event.digest)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_batch_is_published_while_its_checkpoint_is_written(tmp_path, model_dir, monkeypatch):
    """The disk may take its time: the next batch does not wait, the one after it does, and the end waits for all."""
    released, published = threading.Event(), []
    copy_to = state_files.MemoryFile.copy_to

    def slow(file, path):
        assert released.wait(DEADLINE_S)
        copy_to(file, path)

    def reached(milestone):
        if milestone is Milestone.PUBLISHED:
            published.append(Checkpoints(tmp_path / "checkpoints", 9).all())
            released.set()

    monkeypatch.setattr(state_files.MemoryFile, "copy_to", slow)
    chosen = settings(tmp_path, model_dir, batches_max=2)
    _, collaborators = world_of(chosen, two_batches(), reached)
    assert TrainingRun(chosen, collaborators).run() == "finished"
    assert published[0] == []
    assert published[1][0].sequence == 0
    assert [each.sequence for each in Checkpoints(tmp_path / "checkpoints", 9).all()] == [0, 1]


def test_an_export_is_on_disk_before_it_is_named(tmp_path, model_dir):
    """Each version is announced when it can be fetched, and once more when its export can be read."""
    chosen = settings(tmp_path, model_dir, batches_max=2, hf_every=1)
    log, collaborators = world_of(chosen, two_batches())
    commit = collaborators.journal.commit

    def checked(*batch):
        for event in batch:
            if isinstance(event, WeightsPublished) and event.checkpoint_uri:
                assert len(read(event.checkpoint_uri, manifest_of(event))) == len(event.manifest)
        commit(*batch)

    collaborators.journal.commit = checked
    assert TrainingRun(chosen, collaborators).run() == "finished"
    announced = [(event.version, event.checkpoint_uri is not None) for event in events(log, WeightsPublished)]
    for version in (1, 2):
        assert announced.index((version, False)) < announced.index((version, True))
    assert {event.sequence for event in events(log, WeightsPublished) if event.version == 1} == {0}


@pytest.mark.parametrize("victim", ["checkpoint", "export"])
def test_a_full_disk_costs_what_was_being_written(tmp_path, model_dir, monkeypatch, victim):
    """The run goes on, one line says what is not on disk, and nothing of it is."""
    where, name = {
        "checkpoint": (state_files.MemoryFile, "copy_to"),
        "export": (checkpoint, "_write_file"),
    }[victim]
    write, calls = getattr(where, name), []

    def full_the_second_time(*args):
        calls.append(args)
        if len(calls) == 2:
            raise FULL
        return write(*args)

    monkeypatch.setattr(where, name, full_the_second_time)
    chosen = settings(tmp_path, model_dir, batches_max=2, hf_every=1, checkpoints_kept=9)
    log, collaborators = world_of(chosen, two_batches())
    with capture_logs() as lines:
        assert TrainingRun(chosen, collaborators).run() == "finished"
    (line,) = [line for line in lines if line["event"] == "not_written"]
    assert victim in line["name"]
    assert "No space left" in line["error"]
    assert [event.version for event in events(log, BatchTrained)] == [1, 2]
    kept = [each.sequence for each in Checkpoints(tmp_path / "checkpoints", 9).all()]
    assert kept == ([0] if victim == "checkpoint" else [0, 1])
    assert [name[:8] for name in names(tmp_path / "hf")] == [
        f"{n:08d}" for n in (0, 1, 2) if victim != "export" or n != 1
    ]
    assert not any(name.startswith(".") for folder in ("checkpoints", "hf") for name in names(tmp_path / folder))


def test_a_last_export_that_cannot_be_written_leaves_the_run_open(tmp_path, model_dir, monkeypatch):
    """The run ends with the disk's own words and no RunEnded; started again with room, it only ends."""
    write, calls = checkpoint._write_file, []

    def full_at_the_end(*args):
        calls.append(args)
        if len(calls) > 1:
            raise FULL
        return write(*args)

    chosen = settings(tmp_path, model_dir, batches_max=2, hf_every=100)
    log, collaborators = world_of(chosen, two_batches())
    monkeypatch.setattr(checkpoint, "_write_file", full_at_the_end)
    with pytest.raises(OSError, match="No space left"):
        TrainingRun(chosen, collaborators).run()
    monkeypatch.undo()
    assert events(log, RunEnded) == []
    assert [name[:8] for name in names(tmp_path / "hf")] == ["00000000"]
    assert TrainingRun(chosen, world_of(chosen, two_batches(), log=log)[1]).run() == "finished"
    assert [event.version for event in events(log, BatchTrained)] == [1, 2]
    assert [event.version for event in events(log, RunEnded)] == [2]


def test_a_bug_of_the_thread_is_no_full_disk(tmp_path, model_dir, monkeypatch):
    """Whatever is no OSError ends the run."""

    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(state_files.MemoryFile, "copy_to", broken)
    chosen = settings(tmp_path, model_dir, batches_max=2)
    with pytest.raises(ZeroDivisionError):
        TrainingRun(chosen, world_of(chosen, two_batches())[1]).run()
    assert names(tmp_path / "checkpoints") == []


@pytest.mark.slow
def test_a_file_may_not_grow_beyond_the_limit_of_its_process(tmp_path, model_dir):
    """RLIMIT_FSIZE below the size of a checkpoint, the kernel's own: the run ends as if it had none, and quickly."""
    chosen = settings(tmp_path / "out", model_dir, batches_max=2)
    process = PROCESSES.Process(target=incarnation.live, args=(chosen, tmp_path / "log", None, 120_000))
    assert exit_code(process) == 0
    transactions = incarnation.committed(tmp_path / "log")
    assert [type(event) for event in transactions[-1]] == [WeightsPublished, RunEnded]
    assert names(tmp_path / "out" / "checkpoints") == []


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_file_leaves_no_checkpoint(tmp_path, model_dir):
    """Half a checkpoint has no name of one; the next life clears it away and trains the batch again."""
    chosen = settings(tmp_path / "out", model_dir, batches_max=3)
    first = PROCESSES.Process(target=incarnation.live, args=(chosen, tmp_path / "log", ("half a file", 2)))
    assert exit_code(first) == -signal.SIGKILL
    (half,) = [name for name in names(tmp_path / "out" / "checkpoints") if name.startswith(".")]
    assert half.startswith(".00000001-1.")
    assert exit_code(PROCESSES.Process(target=incarnation.live, args=(chosen, tmp_path / "log", None))) == 0
    trained = [
        event for batch in incarnation.committed(tmp_path / "log") for event in batch if isinstance(event, BatchTrained)
    ]
    assert [(event.sequence, event.version) for event in trained] == [(0, 1), (1, 2), (2, 3)]
    # Batch 1 is kept again unless it was published before the kill.
    assert names(tmp_path / "out" / "checkpoints") in (["00000000-1", "00000002-2"], ["00000001-2", "00000002-2"])


def test_an_export_that_a_kill_took_is_written_by_the_next_life(tmp_path, model_dir, monkeypatch):
    """Its version was published without it: whoever resumes at that version writes it and announces it."""
    write, calls = checkpoint._write_file, []

    def killed(*args):
        calls.append(args)
        if len(calls) == 2:
            raise FULL  # nothing of it is left, as after a kill
        return write(*args)

    chosen, stop = settings(tmp_path, model_dir, batches_max=2, hf_every=1), threading.Event()
    published = []

    def reached(milestone):
        if milestone is Milestone.PUBLISHED:
            published.append(milestone)
            stop.set()

    monkeypatch.setattr(checkpoint, "_write_file", killed)
    monkeypatch.setattr(TrainingRun, "_export_before_leaving", lambda _: None)
    log, collaborators = world_of(chosen, two_batches(), reached, stop)
    assert TrainingRun(chosen, collaborators).run() == "stopped"
    assert [event.checkpoint_uri for event in events(log, WeightsPublished) if event.version == 1] == [None]
    assert TrainingRun(chosen, world_of(chosen, two_batches(), log=log)[1]).run() == "finished"
    (named,) = [event for event in events(log, WeightsPublished) if event.version == 1 and event.checkpoint_uri]
    assert len(read(named.checkpoint_uri, manifest_of(named))) == len(named.manifest)
