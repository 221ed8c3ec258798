"""Hosts on one machine: each a network namespace with an address, a wire to a switch and a /dev/shm of its own.

They share the disk, as hosts with shared storage do. Needs root and a kernel that lets it make them.
"""

import os
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import children

NETWORK = "10.77.0"
OWN_MEMORY = ("sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh")
"""Runs what follows with an empty /dev/shm: files in memory are no way from one host to another."""


def ip(*arguments: str) -> str:
    """The answer of `ip`. Raises CalledProcessError."""
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True, timeout=20).stdout


class Switch:
    """The wires of all hosts meet here, in a namespace of its own: nothing of this machine's own network is touched."""

    def __init__(self) -> None:
        """Skips the test where no namespace can be made."""
        self.name = f"claw-{uuid.uuid4().hex[:6]}"
        self.hosts: list[Host] = []
        try:
            ip("netns", "add", self.name)
            ip("-n", self.name, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.name, "link", "set", "bridge", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            pytest.skip(f"network namespaces cannot be made here: {error}")

    def host(self, name: str) -> "Host":
        """A new host, with the next address."""
        host = Host(self.name, name, len(self.hosts) + 11)
        self.hosts.append(host)
        return host

    def close(self) -> None:
        """Ends all that runs on the hosts, and removes them."""
        for host in self.hosts:
            host.die()
            ip("netns", "del", host.space)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False, timeout=20)


class Host:
    """A machine of its own, as far as its network goes."""

    def __init__(self, switch: str, name: str, number: int) -> None:
        self.name, self.switch, self.space = name, switch, f"{switch}-{name}"
        self.address, self._wire = f"{NETWORK}.{number}", f"w{number}"
        self._processes: list[subprocess.Popen[Any]] = []
        ip("netns", "add", self.space)
        ip("-n", switch, "link", "add", self._wire, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        ip("-n", switch, "link", "set", self._wire, "master", "bridge", "up")
        ip("-n", self.space, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.space, "link", "set", device, "up")

    def start(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> "subprocess.Popen[Any]":
        """A process on this host; what it says goes to `log`."""
        with log.open("ab") as output:
            process = children.start(self._here(argv), env={**os.environ, **env}, stdout=output, stderr=output)
        self._processes.append(process)
        return process

    def run(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float = 120) -> str:
        """What a command says on this host. Fails with its words where it does not succeed."""
        done = subprocess.run(
            self._here(argv), env={**os.environ, **env}, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout

    def cut(self) -> None:
        """Nothing passes its wire; connections stand, and nobody is told."""
        ip("-n", self.switch, "link", "set", self._wire, "down")

    def join(self) -> None:
        """What was cut passes again."""
        ip("-n", self.switch, "link", "set", self._wire, "up")

    def slow(self) -> None:
        """From now on its wire brings it 32 kB a second."""
        queue = ["tc", "-n", self.switch, "qdisc", "add", "dev", self._wire, "root"]
        shape = ("tbf", "rate", "256kbit", "burst", "32kb", "latency", "400ms")
        subprocess.run([*queue, *shape], check=True, timeout=20)

    def die(self) -> None:
        """All its processes at once, as by its power; its disk stays."""
        for pid in ip("netns", "pids", self.space).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._processes:
            children.end(process, 0)
        self._processes.clear()

    def _here(self, argv: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.space, *OWN_MEMORY, *argv]
