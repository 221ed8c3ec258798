"""What stands between the engine and the disk: files in memory, directories that are whole or not there."""

import io
import shutil
import struct

import pytest
import torch

from claw_r1.trainer.storage import state_files
from claw_r1.trainer.storage.checkpoints import Checkpoints
from claw_r1.trainer.storage.state_files import StateFiles, damage


def state(number):
    flat = torch.full((1000,), float(number))
    return {"flat": flat, "view": flat[10:20], "step": number, "nested": [torch.arange(3), {"empty": torch.empty(0)}]}


def test_a_file_in_memory_is_the_file_that_torch_writes(tmp_path, monkeypatch):
    """In chunks smaller than a tensor: the same bytes, checksums aside, and what shares memory shares it when loaded."""
    monkeypatch.setattr(state_files, "CHUNK_BYTES", 1000)
    files, subject = StateFiles(), state(1)
    write = files.copied(lambda: files.save(subject, str(tmp_path / "deep" / "state.pt")))
    subject["flat"].zero_()
    write()
    loaded = torch.load(tmp_path / "deep" / "state.pt", weights_only=True)
    assert loaded["step"] == 1
    assert torch.equal(loaded["flat"], torch.ones(1000))
    loaded["flat"][10] = 7
    assert loaded["view"][0] == 7
    with torch.utils.serialization.config.patch("save.compute_crc32", False):
        torch.save(state(1), plain := io.BytesIO())
    assert (tmp_path / "deep" / "state.pt").stat().st_size == len(plain.getvalue())


def test_memory_of_a_state_is_used_again_once_it_is_written(tmp_path, monkeypatch):
    """Two states at a time have memory of their own; the third lives where the first did."""
    monkeypatch.setattr(state_files, "CHUNK_BYTES", 1000)
    files = StateFiles()
    places = []
    chunk = files._memory.chunk
    monkeypatch.setattr(files._memory, "chunk", lambda: places.append(chunk()) or places[-1])
    first = files.copied(lambda: files.save(state(1), str(tmp_path / "1.pt")))
    used = {each.data_ptr() for each in places}
    second = files.copied(lambda: files.save(state(2), str(tmp_path / "2.pt")))
    assert not used & {each.data_ptr() for each in places[len(used) :]}
    first()
    count = len(places)
    files.copied(lambda: files.save(state(3), str(tmp_path / "3.pt")))
    assert {each.data_ptr() for each in places[count:]} <= used
    second()
    assert torch.load(tmp_path / "2.pt", weights_only=True)["flat"][0] == 2


def test_a_save_that_failed_leaves_nothing_to_the_next(tmp_path):
    """A file of it would stand in a checkpoint of another batch."""
    files = StateFiles()

    def fails():
        files.save(state(1), str(tmp_path / "old.pt"))
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        files.copied(fails)
    files.copied(lambda: files.save(state(2), str(tmp_path / "new.pt")))()
    assert {path.name for path in tmp_path.iterdir()} == {"new.pt", "new.pt.sha256"}


def test_a_file_that_is_not_what_was_written_is_damaged(tmp_path, monkeypatch):
    """Whatever was changed in it, or in its digest; it reads as well as ever."""
    monkeypatch.setattr(state_files, "CHUNK_BYTES", 1000)
    files, path = StateFiles(), tmp_path / "state.pt"
    write = files.copied(lambda: files.save(state(1), str(path)))
    write()
    assert damage(path) == ""
    whole = path.read_bytes()
    path.write_bytes(whole.replace(struct.pack("<f", 1.0), struct.pack("<f", 1.5), 1))
    assert torch.load(path, weights_only=True)["step"] == 1
    assert damage(path) == f"{path} holds other bytes than were written"
    path.write_bytes(whole)
    (tmp_path / "state.pt.sha256").unlink()
    assert "state.pt cannot be checked" in damage(path)


def test_a_checkpoint_has_a_name_when_it_is_whole(tmp_path):
    """While it is written, and when writing fails, there is none; a newer one removes those that are too old."""
    checkpoints = Checkpoints(tmp_path, kept=2)

    def finish(sequence, write):
        return checkpoints.begin(checkpoints.path(sequence, 1), lambda partial: lambda: write(partial))

    def fails(partial):
        (partial / "half").write_text("half")
        raise OSError("No space left on device")

    for sequence in range(3):
        end = finish(sequence, lambda partial: (partial / "all").write_text("all"))
        assert sequence not in {each.sequence for each in checkpoints.all()}
        end()
    with pytest.raises(OSError, match="No space"):
        finish(3, fails)()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001-1", "00000002-1"]


def test_a_directory_that_was_cleared_away_meanwhile_gets_no_name(tmp_path):
    """A fenced trainer writes on while its successor clears up: what it makes anew is not the whole, and deletes nothing."""
    checkpoints = Checkpoints(tmp_path, kept=1)
    checkpoints.begin(checkpoints.path(9, 1), lambda partial: lambda: (partial / "a").write_text("9"))()

    def save(partial):
        (partial / "first").write_text("10")

        def write():
            checkpoints.clear_partial()
            partial.mkdir(parents=True)
            (partial / "second").write_text("10")

        return write

    with pytest.raises(FileNotFoundError, match="was removed"):
        checkpoints.begin(checkpoints.path(10, 1), save)()
    assert [each.sequence for each in checkpoints.all()] == [9]


def test_what_goes_away_never_looks_whole(tmp_path, monkeypatch):
    """A kill in the middle of deleting an old checkpoint leaves nothing under a checkpoint's name."""
    checkpoints, removed, rmtree = Checkpoints(tmp_path, kept=1), [], shutil.rmtree
    monkeypatch.setattr("shutil.rmtree", lambda path, **how: (removed.append(path.name), rmtree(path, **how)))
    for sequence in (1, 2):
        checkpoints.begin(checkpoints.path(sequence, 1), lambda partial: lambda: (partial / "a").write_text("x"))()
    assert ".00000001-1.removed" in removed
    assert all(name.startswith(".") for name in removed)
