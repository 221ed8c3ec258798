"""`claw feedback` as a process on a real broker: it says where it is, ends when asked to, and refuses in one line."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned
from claw_r1.schemas.topics import REWARDS
from tests.children import end, start
from tests.consumers.feedback.stage import seed
from tests.patience import PATIENCE_S, until

COMMAND = (sys.executable, "-m", "claw_r1.consumers.feedback")


@contextmanager
def page(settings: LogSettings, log: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The page's address, and its process."""
    flags = ["--port", "0", "--who", "ann", "--prefix", settings.prefix, "--partitions", str(settings.partitions)]
    with log.open("wb") as errors:
        process = start(
            [*COMMAND, *flags, "--bootstrap-servers", settings.bootstrap_servers], stdout=subprocess.PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        address = re.fullmatch(rb"open (http://127\.0\.0\.1:\d+)\n", process.stdout.readline())
        assert address is not None, log.read_text()
        yield address[1].decode(), process
    finally:
        end(process)


@pytest.mark.kafka
def test_a_judgement_reaches_the_real_log(log_settings: LogSettings, tmp_path: Path) -> None:
    """The conversation comes by position, the judgement is in claw.rewards when the answer is there, SIGTERM ends it with 0."""
    seed(log_settings)
    with (
        page(log_settings, tmp_path / "log") as (url, process),
        httpx.Client(base_url=f"{url}/api/v1/", timeout=30) as http,
    ):
        http.headers["x-page-token"] = http.get("session").json()["token"]
        until(lambda: not http.get("queue").json()["reading"], "the log is read")
        (item,) = http.get("queue").json()["items"]
        assert (item["group_id"], item["trajectory_id"]) == ("g", "t")
        (side,) = http.get("subject", params={"group_id": "g", "trajectory_id": "t"}).json()["sides"]
        assert [turn["content"] for turn in side["turns"]] == ["which?", "this one"]
        answer = http.post("judgements", json={"group_id": "g", "trajectory_id": "t", "thumb": True})
        assert answer.status_code == 200, answer.text
        (event,) = readable(read_topics(log_settings, [REWARDS]))
        assert isinstance(event, RewardAssigned)
        assert (event.source, event.name, event.value, [event.envelope.event_id]) == (
            "human:ann",
            "thumb",
            1.0,
            answer.json()["events"],
        )
        assert http.get("queue").json()["items"] == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.process
def test_what_it_cannot_do_is_one_line() -> None:
    """A port that is taken, a broker that is not there, an address of others without keys: exit 2, one line each."""
    (closed,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        cases = {
            f"cannot listen on 127.0.0.1:{port}": ("--port", str(port)),
            f"127.0.0.1:{closed}": (
                "--port",
                "0",
                "--bootstrap-servers",
                f"127.0.0.1:{closed}",
                "--connect-timeout-s",
                "1",
            ),
            "--keys": ("--host", "0.0.0.0"),
        }
        started = {
            words: start([*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for words, flags in cases.items()
        }
        for words, process in started.items():
            _, said = process.communicate(timeout=PATIENCE_S)
            lines = [line for line in said.splitlines() if line.startswith("feedback: ")]
            assert (process.returncode, len(lines)) == (2, 1), said
            assert words in lines[0]
            assert "Traceback" not in said
