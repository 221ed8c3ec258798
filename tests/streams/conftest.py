"""Worker processes for the broker tests of the streams."""

import pytest

from tests.streams.pool import WorkerProcess


@pytest.fixture
def start(request, tmp_path):
    """Starts worker processes on `log_settings`, or on the settings given, and stops what is left of them."""
    started = []

    def start_one(*arguments, settings=None, **env):
        log = settings or request.getfixturevalue("log_settings")
        worker = WorkerProcess(log, tmp_path / f"worker{len(started)}.log", *arguments, **env)
        started.append(worker)
        return worker

    yield start_one
    for worker in started:
        worker.stop()
