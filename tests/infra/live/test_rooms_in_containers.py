"""`make images-test`: rooms in containers of our images; capture runs from a client to the pool, on a Kafka of our image."""

import json
import os
import re
import urllib.request
from pathlib import Path

import pytest

from claw_r1.claw.home import PROJECT
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import describe_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.api_keys import new_key
from tests.gateway.engine import ScriptedEngine
from tests.gateway.speaking import CHAT
from tests.infra.dockerfile import COMPILING
from tests.infra.live.containers import TARGETS, Engine, Room
from tests.patience import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        "CLAW_IMAGES_TEST" not in os.environ, reason="`make images-test` asks for it: it downloads and builds"
    ),
]
GATEWAY_MB = 250


def test_sizes(images: Engine) -> None:
    """The gateway's is no larger than promised; each is printed."""
    for target in TARGETS:
        bytes_ = int(images.do("image", "inspect", "--format", "{{.Size}}", images.image(target)))
        print(f"claw-{target}: {bytes_ / 1e6:.0f} MB")
        assert target != "gateway" or bytes_ / 1e6 <= GATEWAY_MB


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_can_be_built_or_installed_in_it(images: Engine, target: str) -> None:
    """No compiler (but on GPUs, where Triton needs one), no pip, no root, and no file that its user could change but in its home."""
    compilers = "" if os.environ.get("LOCK") == "gpu" and target in COMPILING else "gcc cc"
    look = f"id -u; for each in {compilers} make pip pip3 git; do command -v $each; done; find / -xdev -writable -not -type l 2>/dev/null | grep -vE '^/(proc|sys|dev|tmp|run|var/lib/(claw|kafka)|var/tmp)' || true"
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


@pytest.mark.parametrize("target", [each for each in TARGETS if each in ALONE])
def test_it_becomes_ready_alone(images: Engine, target: str, log_settings: LogSettings, tmp_path: Path) -> None:
    """From the container's start to /readyz, and what it holds in memory then; both are printed. SIGTERM ends it with exit code 0."""
    scorers = tmp_path / "rewards.yaml"
    scorers.write_text((PROJECT / "infra" / "compose" / "rewards" / "rewards.yaml").read_text())
    scorers.chmod(0o644)
    with Room(images, target, log_settings, tmp_path, ALONE[target]).given(scorers, "/etc/claw/rewards.yaml") as room:
        room.await_ready()
        with urllib.request.urlopen(f"http://127.0.0.1:{room.port}/metrics", timeout=10) as reply:
            (resident,) = re.findall(r"^process_resident_memory_bytes (\S+)$", reply.read().decode(), re.MULTILINE)
        print(f"claw-{target}: ready after {room.ready_s:.1f} s, {float(resident) / 1e6:.0f} MB resident")
        room.stop()


def test_a_call_is_captured_and_folded(images: Engine, log_settings: LogSettings, tmp_path: Path) -> None:
    """A client calls the gateway's container; the call is a fact in Kafka, the streams' container makes a step of it, and both end in
    time when they are told to, with exit code 0."""
    key, entry = new_key("operator")
    (port,) = free_ports(1)
    with ScriptedEngine() as scripted:
        ours = {
            "CLAW_GATEWAY_PORT": str(port),
            "CLAW_GATEWAY_API_KEYS": entry,
            "CLAW_GATEWAY_UPSTREAMS": scripted.url,
        }
        with (
            Room(images, "gateway", log_settings, tmp_path, ours) as gateway,
            Room(images, "streams", log_settings, tmp_path, {}) as streams,
        ):
            for room in (gateway, streams):
                room.await_ready()
                room.run("alive", str(room.port))
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/t1/g1/v1/{CHAT.end}", json.dumps(CHAT.ask).encode()
            )
            asked.add_header("authorization", f"Bearer {key}")
            with urllib.request.urlopen(asked, timeout=60) as reply:
                assert reply.status == 200
            until(lambda: _records(log_settings, "datapool.steps"), "a step in the pool")
            assert _records(log_settings, "calls")
            for room in (gateway, streams):
                room.stop()


def test_compose_finds_the_kafka_of_our_image_healthy(images: Engine, broker: str) -> None:
    """The program by which Compose asks answers where Apache's own image has it."""
    ask = "/opt/kafka/bin/kafka-broker-api-versions.sh"
    flags = ("--rm", "--network", "host", *images.run_flags, "--entrypoint", ask)
    assert "Produce(0)" in images.do("run", *flags, images.image("kafka"), "--bootstrap-server", broker)


def _records(log: LogSettings, topic: str) -> int:
    return next(state.records for state in describe_topics(log) if state.name == f"{log.prefix}.{topic}")
