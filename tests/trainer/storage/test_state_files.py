"""What stands between the engine and the disk: files in memory."""

import io
import struct

import pytest
import torch

from claw_r1.trainer.storage import state_files
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
