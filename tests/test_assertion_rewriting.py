"""Rewritten tests are where pytest looks for them, each by one of the processes."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.assertion import rewrite

from tests.assertion_rewriting import rewrite_share

FAILS = "def test_one():\n    left = {number}\n    assert left == 0\n"
PROCESSES, FILES = 3, 7


def kept(folder: Path) -> dict[str, int]:
    """Files of bytecode, each with what tells it from one that took its place."""
    return {path.name: path.stat().st_ino for path in folder.rglob(f"*{rewrite.PYC_TAIL}")}


@pytest.mark.process
def test_each_file_is_rewritten_by_one_process_and_by_pytest_no_more(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All shares together are all files; who collects them afterwards takes what is kept, and it says why an assertion fails."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for number in range(FILES):
        (tmp_path / f"test_{number}.py").write_text(FAILS.format(number=number))
    so_far = 0
    for number in range(PROCESSES):
        worker = {"workerid": f"gw{number}", "workercount": PROCESSES}
        rewrite_share(
            SimpleNamespace(workerinput=worker, stash=pytestconfig.stash, getini=pytestconfig.getini), tmp_path
        )  # type: ignore[arg-type]  # as much of a config as is asked
        assert so_far < len(kept(tmp_path)) < so_far + FILES
        so_far = len(kept(tmp_path))
    before = kept(tmp_path)
    assert len(before) == FILES
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120).stdout
    assert f"{FILES - 1} failed, 1 passed" in said
    assert "assert 6 == 0" in said
    assert kept(tmp_path) == before
