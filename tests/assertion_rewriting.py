"""Assertions that pytest rewrites, shared out. The processes of `make test` begin at the same moment and collect the same files: in a
fresh clone, where nothing is kept yet, each of them would rewrite them all."""

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_share(config: pytest.Config, folder: Path) -> None:
    """Keeps the rewritten bytecode of this process's share of the tests in `folder` where pytest looks for it; alone, it has none to
    share."""
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(folder.rglob("test_*.py"))[number % count :: count]:
        keep(path, config)


def keep(path: Path, config: pytest.Config) -> None:
    """Rewrites a file, unless that was done before; a folder that cannot be written is pytest's to bear."""
    folder = rewrite.get_cache_dir(path)
    pyc = folder / (path.stem + rewrite.PYC_TAIL)
    if rewrite.try_makedirs(folder) and rewrite._read_pyc(path, pyc) is None:
        source_hash, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, pyc)
