"""What every process writes to stderr."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claw_r1.runtime import logs

pytestmark = pytest.mark.process

CODE = """
import structlog
from claw_r1.runtime.logs import log_to_stderr
log_to_stderr()
log = structlog.get_logger()
log.debug("hidden")
secret_prompt = "do not show"
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broken", count=3)
print("result")
"""


def test_a_log_line_is_json_and_a_traceback_shows_no_locals() -> None:
    """stdout has the result alone; stderr one JSON object per event, without what variables held."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "result\n"
    event = json.loads(done.stderr)
    assert (event["event"], event["level"], event["count"]) == ("broken", "error", 3)
    assert "ZeroDivisionError" in event["exception"]
    assert "do not show" not in done.stderr


BEGIN = """
import logging, os, sys, threading, warnings
import structlog
from claw_r1.runtime.logs import drain_logs, dropped_lines, log_to_stderr
log_to_stderr()
logging.basicConfig()
log = structlog.get_logger()
"""
MUCH = (
    BEGIN
    + """
for number in range(8_000):
    log.warning("line", number=number, padding="x" * 100)
    if number % 3 == 0:
        logging.getLogger("other").warning("line %d", number)
        print("line", number, file=sys.stderr)
        warnings.warn(f"line {number}")
print("dropped", dropped_lines(), flush=True)
"""
)


@contextmanager
def process(code: str, stderr: int = subprocess.PIPE) -> Iterator["subprocess.Popen[str]"]:
    """One that ends with the test."""
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate(timeout=10)


def test_nobody_has_to_read() -> None:
    """With a full pipe every kind of line is dropped, and counted, and the process goes on to its end."""
    with process(MUCH) as running:
        assert running.wait(30) == 0
        assert running.stdout is not None
        word, count = running.stdout.read().split()
        assert word == "dropped"
        assert 1_000 < int(count) < 16_000


@pytest.mark.parametrize("how", ["pipe", "socket", "closed"])
def test_a_reader_that_left_stops_nothing(how: str) -> None:
    """A pipe or a socket without a reader, and no stderr at all."""
    if how == "socket":
        ours, other = socket.socketpair()
        ours.close()
        with process(MUCH, other.fileno()) as running, other:
            assert running.wait(30) == 0
        return
    if how == "closed":
        done = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, MUCH], timeout=60)
        assert done.returncode == 0
        return
    read, write = os.pipe()
    os.close(read)
    with process(MUCH, write) as running:
        os.close(write)
        assert running.wait(30) == 0
        assert running.stdout is not None
        assert int(running.stdout.read().split()[1]) >= 8_000


SLOWLY = (
    BEGIN
    + """
for number in range(20_000):
    log.warning("line", number=number, padding="x" * 100)
print("full", flush=True)
sys.stdin.readline()
log.warning("line", number=-1)
print(dropped_lines(), flush=True)
"""
)


def test_what_was_dropped_is_said_as_soon_as_somebody_reads() -> None:
    """Lines come whole and in order; a line says how many are missing, and it is right."""
    with process(SLOWLY) as running:
        assert running.stderr is not None
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline() == "full\n"
        lines = [json.loads(running.stderr.readline()) for _ in range(4000)]  # so that there is room again
        running.stdin.write("\n")
        running.stdin.flush()
        lines += [json.loads(line) for line in running.stderr]
        dropped = int(running.stdout.read())
        assert running.wait(10) == 0
    *numbered, notice, last = lines
    assert [line["number"] for line in numbered] == list(range(len(numbered)))
    assert (last["number"], notice["event"]) == (-1, "log_lines_dropped")
    assert notice["dropped"] == dropped == 20_000 - len(numbered)


LAST = """
log.warning("x" * 200_000)
log.error("the last")
"""


@pytest.mark.parametrize("end", ["", "drain_logs(); os._exit(3)", "1 / 0"])
def test_the_last_lines_of_a_process_are_written(end: str) -> None:
    """More than a pipe holds, and then the end: of an interpreter, by a traceback, or without either."""
    done = subprocess.run([sys.executable, "-c", BEGIN + LAST + end], capture_output=True, text=True, timeout=30)
    lines = done.stderr.splitlines()
    assert json.loads(lines[1])["event"] == "the last"
    assert ("ZeroDivisionError" in lines[-1]) is (end == "1 / 0")


def test_a_full_disk_stops_nothing() -> None:
    """What cannot be written is dropped."""
    with Path("/dev/full").open("wb") as full, process(MUCH, full.fileno()) as running:
        assert running.wait(30) == 0
        assert running.stdout is not None
        assert int(running.stdout.read().split()[1]) >= 8_000


FORKED = (
    BEGIN
    + """
log.warning("x" * 2_000_000)
log.warning("Y" * 500_000)
if os.fork() == 0:
    log.warning("child")
    drain_logs(10)
    os._exit(0)
os.wait()
"""
)


def test_a_forked_process_writes_its_own_lines_only() -> None:
    """What waits is written by the parent, once."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert done.stderr.count("child") == 1
    assert done.stderr.count('"event": "log_lines_dropped"') == 1
    assert done.stderr.count("Y") == 500_000


SHARED = (
    BEGIN
    + """
for number in range(1_500):
    log.warning("line", number=number, padding="x" * 200)
drain_logs(20)
"""
)


def test_processes_that_share_a_pipe_do_not_tear_each_others_lines() -> None:
    """As the workers of a fleet do: what waits for room is written line by line, too."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as lines, process(SHARED, write) as one, process(SHARED, write) as other:
        os.close(write)
        for running in (one, other):
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(2)  # the pipe is full
        numbers = [json.loads(line)["number"] for line in lines]
    assert sorted(numbers) == sorted([*range(1_500), *range(1_500)])


def test_what_logs_in_the_middle_of_a_line_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer that the collector runs, or a signal handler: each line is written once."""
    read, write = os.pipe()
    lines, really, said = logs._Lines(write), os.write, [b"second\n"]

    def interrupted(descriptor: int, data: bytes) -> int:
        written = really(descriptor, data)
        if said:
            lines.write(said.pop())
        return written

    monkeypatch.setattr(os, "write", interrupted)
    lines.write(b"first\n")
    lines.write(b"third\n")
    assert os.read(read, 100) == b"first\nsecond\nthird\n"
    os.close(read)
    os.close(write)


def test_the_last_lines_are_written_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 starts none once the interpreter ends."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    read, write = os.pipe()
    os.set_blocking(read, False)
    lines, taken = logs._Lines(write), 0
    lines.write(b"x" * 200_000)
    while taken < 200_000:
        taken += len(os.read(read, 200_000))  # raises where nothing more comes
        lines.drain(0.02)
    os.close(read)
    os.close(write)
