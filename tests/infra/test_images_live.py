"""`make images-test`: the images built from Debian's packages alone, and rooms in them: capture runs from a client to the pool."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from claw_r1.claw.home import PROJECT
from claw_r1.claw.local.ports import free_ports
from claw_r1.claw.local.stack import answers
from claw_r1.eventlog.kafka.admin import describe_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.api_keys import new_key
from tests.debian import unpacked
from tests.gateway.engine import ScriptedEngine
from tests.gateway.speaking import CHAT
from tests.infra.dockerfile import IMAGES
from tests.patience import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        "CLAW_IMAGES_TEST" not in os.environ, reason="`make images-test` asks for it: it downloads and builds"
    ),
]
GATEWAY_MB = 250
TARGETS = os.environ.get("CLAW_IMAGES_TEST", "").replace("run", "").split()
"""The targets to build, besides gateway and streams."""
AS_IN_A_CLUSTER = (
    "--network",
    "host",
    "--read-only",
    "--tmpfs",
    "/tmp",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
)


@dataclass(frozen=True)
class Engine:
    """What builds and what runs, with flags that each needs here."""

    build: str
    run: str
    build_flags: str = ""
    run_flags: tuple[str, ...] = ()
    registry: str = ""

    def image(self, target: str) -> str:
        return f"{self.registry}claw-{target}:test"

    def do(self, *arguments: str | Path) -> str:
        done = subprocess.run([self.run, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()


@pytest.fixture(scope="module")
def engine() -> Engine:
    """docker where its daemon answers, else podman and buildah: those of the machine, or Debian's, unpacked."""
    if shutil.which("docker") and not subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        return Engine("docker", "docker", "--network host")
    try:
        folder = Path(shutil.which("podman") or unpacked("engine.sh")).parent
    except FileNotFoundError as error:
        pytest.skip(f"no container engine answers, and none is to be had ({error})")
    certificates = "--volume /etc/ssl/certs:/etc/ssl/certs:ro"  # whom this machine trusts, its mirrors among them
    limits = (
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=1000:1000",
        "--no-healthcheck",
    )  # no more than ours, and no systemd
    return Engine(
        str(folder / "buildah"), str(folder / "podman"), f"-q --network host {certificates}", limits, "localhost/"
    )


@pytest.fixture(scope="module")
def images(engine: Engine) -> Engine:
    """The targets that were asked for, built on bases of Debian's packages."""
    tools = f"{Path(engine.build).parent}:{os.environ['PATH']}"
    if shutil.which("mmdebstrap", path=tools) is None:
        pytest.skip("no mmdebstrap, which makes the bases")
    bases = {"BASE": "claw-base", "BUILD_BASE": "claw-build-base"}
    common = {**os.environ, "PATH": tools, "CLAW_ENGINE": engine.build, "PYTHON": sys.executable}
    if not all(_exists(engine, name) for name in bases.values()):
        subprocess.run([IMAGES / "debian_base.sh"], env=common | bases, check=True)
    ours = {name: f"{engine.registry}{base}" for name, base in bases.items()}
    build = common | ours | {"CLAW_BUILD_FLAGS": engine.build_flags, "CLAW_TAG": "test"}
    subprocess.run([IMAGES / "build.sh", "gateway", "streams", *TARGETS], env=build, check=True)
    return engine


def test_sizes(images: Engine) -> None:
    """The gateway's is no larger than promised; each is printed."""
    for target in ("gateway", "streams", *TARGETS):
        bytes_ = int(images.do("image", "inspect", "--format", "{{.Size}}", images.image(target)))
        print(f"claw-{target}: {bytes_ / 1e6:.0f} MB")
        assert target != "gateway" or bytes_ / 1e6 <= GATEWAY_MB


@pytest.mark.parametrize("target", ["gateway", "streams", *TARGETS])
def test_nothing_can_be_built_or_installed_in_it(images: Engine, target: str) -> None:
    """No compiler, no pip, no root, and no file that its user could change but in its home."""
    look = "id -u; for each in gcc cc make pip pip3 git; do command -v $each; done; find / -xdev -writable -not -type l 2>/dev/null | grep -vE '^/(proc|sys|dev|tmp|run|var/lib/claw|var/tmp)' || true"
    said = images.do(
        "run", "--rm", "--network", "none", *images.run_flags, "--entrypoint", "sh", images.image(target), "-c", look
    )
    assert [
        line
        for line in said.splitlines()
        if not line.startswith(("/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/var/lock", "/var/tmp"))
    ] == ["10001"]


ALONE = {
    "gateway": {"CLAW_GATEWAY_API_KEYS": new_key("operator")[1], "CLAW_GATEWAY_PORT": "0", "CLAW_GATEWAY_UPSTREAMS": "http://127.0.0.1:9"},
    "streams": {}, "rewards": {}, "dashboard": {"CLAW_DASHBOARD_PORT": "0"},
}  # fmt: skip
"""Target -> what it is told when it is alone with Kafka."""


@pytest.mark.parametrize("target", [each for each in ("gateway", "streams", *TARGETS) if each in ALONE])
def test_it_becomes_ready_alone(images: Engine, target: str, log_settings: LogSettings, tmp_path: Path) -> None:
    """From the container's start to /readyz, and what it holds in memory then; both are printed. SIGTERM ends it with exit code 0."""
    (port,) = free_ports(1)
    scorers = tmp_path / "rewards.yaml"
    scorers.write_text((PROJECT / "infra" / "compose" / "rewards.yaml").read_text())
    scorers.chmod(0o644)
    began_s = time.monotonic()
    ours = {f"CLAW_{target.upper()}_METRICS_PORT": str(port), **ALONE[target]}
    with Container(images, target, log_settings, tmp_path, ours, "-v", f"{scorers}:/etc/claw/rewards.yaml:ro") as name:
        until(answers(f"http://127.0.0.1:{port}/readyz"), f"readyz of {target}")
        ready_s = time.monotonic() - began_s
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            (resident,) = re.findall(r"^process_resident_memory_bytes (\S+)$", reply.read().decode(), re.MULTILINE)
        print(f"claw-{target}: ready after {ready_s:.1f} s, {float(resident) / 1e6:.0f} MB resident")
        images.do("stop", "-t", "45", name)
        assert images.do("inspect", "--format", "{{.State.ExitCode}}", name) == "0"


def test_a_call_is_captured_and_folded(images: Engine, log_settings: LogSettings, tmp_path: Path) -> None:
    """A client calls the gateway's container; the call is a fact in Kafka, the streams' container makes a step of it, and both end in
    time when they are told to, with exit code 0."""
    key, entry = new_key("operator")
    port, *watched = free_ports(3)
    with ScriptedEngine() as scripted:
        ours = {
            "CLAW_GATEWAY_PORT": str(port),
            "CLAW_GATEWAY_API_KEYS": entry,
            "CLAW_GATEWAY_UPSTREAMS": scripted.url,
            "CLAW_GATEWAY_METRICS_PORT": str(watched[0]),
        }
        with (
            Container(images, "gateway", log_settings, tmp_path, ours) as gateway,
            Container(
                images, "streams", log_settings, tmp_path, {"CLAW_STREAMS_METRICS_PORT": str(watched[1])}
            ) as streams,
        ):
            for each in watched:
                until(answers(f"http://127.0.0.1:{each}/readyz"), f"readyz of {each}")
            for name, each in ((gateway, watched[0]), (streams, watched[1])):
                images.do("exec", name, "alive", str(each))
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/t1/g1/v1/{CHAT.end}", json.dumps(CHAT.ask).encode()
            )
            asked.add_header("authorization", f"Bearer {key}")
            with urllib.request.urlopen(asked, timeout=60) as reply:
                assert reply.status == 200
            until(lambda: _records(log_settings, "datapool.steps"), "a step in the pool")
            assert _records(log_settings, "calls")
            for name in (gateway, streams):
                images.do("stop", "-t", "45", name)
                assert images.do("inspect", "--format", "{{.State.ExitCode}}", name) == "0"


class Container:
    """A room's container while the block lasts."""

    def __init__(
        self, engine: Engine, target: str, log: LogSettings, folder: Path, env: dict[str, str], *more: str
    ) -> None:
        self._engine, self._name = engine, f"claw-test-{target}-{log.prefix}"
        home = folder / target
        home.mkdir()
        os.chown(home, 10001, 10001)
        log_env = {
            "KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers,
            "CLAW_LOG_PREFIX": log.prefix,
            "CLAW_LOG_PARTITIONS": str(log.partitions),
        }
        variables = [word for name, value in {**log_env, **env}.items() for word in ("-e", f"{name}={value}")]
        mount = ("-v", f"{home}:/var/lib/claw")
        self._argv = [
            "run",
            "-d",
            "--name",
            self._name,
            *AS_IN_A_CLUSTER,
            *engine.run_flags,
            *mount,
            *more,
            *variables,
            engine.image(target),
        ]

    def __enter__(self) -> str:
        self._engine.do(*self._argv)
        return self._name

    def __exit__(self, *_: object) -> None:
        logs = subprocess.run([self._engine.run, "logs", self._name], capture_output=True, text=True, check=False)
        print(logs.stdout[-2000:], logs.stderr[-2000:])
        self._engine.do("rm", "-f", self._name)


def _records(log: LogSettings, topic: str) -> int:
    return next(state.records for state in describe_topics(log) if state.name == f"{log.prefix}.{topic}")


def _exists(engine: Engine, name: str) -> bool:
    return not subprocess.run(
        [engine.run, "image", "inspect", f"{engine.registry}{name}"], capture_output=True, check=False
    ).returncode
