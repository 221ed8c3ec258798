"""What the Dockerfile of infra/images says fits the code; `make images-test` builds the images and runs rooms in them."""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator

import pytest
import typer
from packaging.requirements import Requirement
from prometheus_client import CollectorRegistry
from typer.core import TyperGroup

from claw_r1.claw.cli import app
from claw_r1.claw.home import PROJECT
from claw_r1.claw.install.environment import LOCKS
from claw_r1.claw.local.ports import free_ports
from claw_r1.runtime.modules import EXTRAS
from claw_r1.runtime.monitoring.server import monitored
from tests.infra.dockerfile import COMPILING, HOST, IMAGES, TARGETS, Stage, arguments, stages
from tests.infra.settings_of import PORTS, wrong

STAGES = stages()
GIVEN = {
    "gateway": {"CLAW_GATEWAY_API_KEYS": f"agent:{'0' * 64}"},
    "trainer": {"CLAW_TRAINER_MODEL_DIR": "/m", "CLAW_TRAINER_MODEL_ID": "m", "CLAW_TRAINER_RUN_ID": "r", "CLAW_TRAINER_OUT_DIR": "/o"},
    "rollout": {"CLAW_ROLLOUT_MODEL": "/m", "CLAW_ROLLOUT_MODEL_ID": "m"},
}  # fmt: skip
"""Room -> what a deployment adds to the variables of its image, at the least."""
INSTALLS = re.compile(r"install\.sh \S+ ([\w,-]+)")
NEEDS = {
    "gateway": "gateway",
    "streams": "streams",
    "rewards": "consumers",
    "dashboard": "consumers",
    "tools": "stack",
    "trainer": "trainer",
    "rollout": "rollout-gpu",
}
"""Target -> the extra without which its command does not start; a worker on CPUs has a lock besides (`claw setup rollout`)."""


def test_each_room_has_a_target() -> None:
    """They are those that build.sh names, and each room of the metrics page is among them."""
    assert STAGES.keys() >= TARGETS
    assert PORTS.keys() <= TARGETS
    built = re.search(r"\|\| set -- (.*)", (IMAGES / "build.sh").read_text())
    assert built is not None
    assert {*built[1].split()} == TARGETS


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_it_runs_a_command_of_ours_as_nobody(target: str) -> None:
    """The command exists, the user has a number and is not root, and nothing is installed or built in the image itself."""
    stage = STAGES[target]
    user, _, group = stage.last("USER").partition(":")
    assert (user.isdecimal(), group.isdecimal()) == (True, True)
    assert "0" not in (user, group)
    assert stage.last("STOPSIGNAL") == "SIGTERM"
    assert stage.entrypoint[0] == "claw"
    assert " ".join(stage.entrypoint[1:]) in {"", *_commands()}
    assert [text for name, text in stage.lines if name == "RUN"] == [
        "mkdir -p /var/lib/claw /etc/claw && chown 10001:10001 /var/lib/claw"
    ]
    assert next(text for name, text in stage.lines if name == "COPY" and "--from=build-" in text).endswith(
        " /opt/claw /opt/claw"
    )


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_what_computes_on_gpus_can_compile(target: str) -> None:
    """Triton and torch do in a trainer and a worker, into a cache in their home; no other image has a compiler, and nobody is root."""
    stage = stages("gpu")[target]
    assert any("g++" in text for name, text in stage.lines if name == "RUN") == (target in COMPILING)
    assert stage.env.get("TORCHINDUCTOR_CACHE_DIR", "/var/lib/claw/").startswith(f"{stage.env['CLAW_HOME']}/")
    assert stage.last("USER") == STAGES[target].last("USER")


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_its_variables_and_ports_are_the_rooms(target: str) -> None:
    """With what a deployment must add, the room reads its settings; it is watched on the port that the health check asks."""
    stage = STAGES[target]
    assert wrong(target, stage.env | GIVEN.get(target, {})) == []
    ports = {int(value) for name, value in stage.env.items() if name.endswith("_PORT")}
    assert stage.ports == ports
    health = stage.last("HEALTHCHECK")
    assert health == "NONE" if target == "tools" else f'CMD ["alive", "{PORTS[target]}"]' in health
    assert target == "tools" or PORTS[target] in ports


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_its_extras_exist(target: str) -> None:
    """Each is an extra of the wheel, and the one that the command needs is among them."""
    extras = _extras(_build(STAGES[target]))
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras <= declared.keys()
    assert NEEDS.get(target, "traces") in extras
    assert EXTRAS.keys() & extras or target == "rollout"


@pytest.mark.parametrize("lock", ["cpu", "gpu"])
@pytest.mark.parametrize("python", ["3.11.9", "3.12.3"])
def test_an_image_has_the_versions_of_the_lock(lock: str, python: str) -> None:
    """What install.sh makes of a lock says one version of each package for each Python, or pip refuses all of them."""
    (line,) = [line for line in (IMAGES / "install.sh").read_text().splitlines() if line.startswith("sed ")]
    command = line.replace("/wheels/$1.txt", str(LOCKS / f"{lock}.txt")).partition(">")[0]
    said = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines()
    here = {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_machine": "x86_64",
    }
    wanted = [each for each in map(Requirement, said) if each.marker is None or each.marker.evaluate(here)]
    assert len(wanted) > 100
    assert [name for name, count in Counter(each.name for each in wanted).items() if count > 1] == []


def test_no_registry_is_named() -> None:
    """Bases are arguments whose defaults name no host; packages come from where PIP_INDEX_URL says."""
    assert {"BASE", "BUILD_BASE"} <= arguments().keys()
    assert [name for name in arguments().values() if HOST.match(name)] == []
    assert {stage.below for stage in STAGES.values()} <= {"${BASE}", "${BUILD_BASE}", *STAGES}
    texts = "".join(path.read_text() for path in IMAGES.iterdir())
    assert re.findall(r"https?://[^\s\"']+", texts) == []
    assert HOST.match("registry.example/claw")
    assert not HOST.match("apache/kafka:4.3.1")


def test_alive_says_what_the_port_says() -> None:
    """Exit 0 for a process that answers, something else where nobody listens."""
    alive = [sys.executable, IMAGES / "alive.py"]
    (port,) = free_ports(1)
    with monitored(CollectorRegistry(), "127.0.0.1", port):
        assert subprocess.run([*alive, str(port)], check=False).returncode == 0
    assert subprocess.run([*alive, "1"], capture_output=True, check=False).returncode != 0


def _extras(build: Stage) -> set[str]:
    lines = [extras for name, text in build.lines if name == "RUN" for extras in INSTALLS.findall(text)]
    return {extra for line in lines for extra in line.split(",")}


def _build(stage: Stage) -> Stage:
    source = re.search(r"--from=(\S+)", stage.last("COPY"))
    assert source is not None
    return STAGES[source[1]]


def _commands() -> Iterator[str]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        yield name
        if isinstance(command, TyperGroup):
            yield from (f"{name} {each}" for each in command.commands)
