"""Directories of checkpoints: whole or not there."""

import shutil

import pytest

from claw_r1.trainer.storage.checkpoints import Checkpoints


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
