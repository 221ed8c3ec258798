"""What a pod of each room is given is what the room reads, finds and needs; who may speak with whom is docs/security.md's table."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_r1.claw.home import PROJECT
from claw_r1.consumers.rewards.config import group_name, load
from claw_r1.consumers.rewards.subjects.of_rows import topics_of
from claw_r1.schemas.topics import Catalogue
from claw_r1.trainer.ranks.memory import ModelShape, bytes_per_rank
from claw_r1.trainer.settings import TrainerSettings
from tests.infra.dockerfile import Stage, stages
from tests.infra.kubernetes.cluster import FOLDER, OVERLAYS, ROOMS, container, mounts, of_kind, pod, variables, workload
from tests.infra.settings_of import PORTS, named, wrong
from tests.infra.test_images import GIVEN

STAGES = stages()
EVERY = pytest.mark.parametrize("room", ROOMS)
AND_TOOLS = pytest.mark.parametrize("room", [*ROOMS, "tools"])
IN_EACH = pytest.mark.parametrize("overlay", OVERLAYS)
TOLD = {"CLAW_GATEWAY_API_KEYS": GIVEN["gateway"]["CLAW_GATEWAY_API_KEYS"]}
"""What stands for a secret of which the room reads more than that it is there."""
ENDS = {
    "gateway": ("GatewaySettings.shutdown_grace_s", "GatewaySettings.shutdown_linger_s", "LogSettings.ack_timeout_ms"),
    "streams": ("StreamsSettings.session_timeout_s",), "rewards": ("RewardsSettings.stop_grace_s",), "dashboard": (),
    "trainer": ("TrainerSettings.stop_timeout_s",), "rollout": ("RolloutSettings.drain_timeout_s", "RolloutSettings.stop_timeout_s"),
}  # fmt: skip
"""Room -> the settings that say how long its end may take."""

OF_7B = ModelShape(
    parameters=7_615_616_512, layers=28, width=3584, mlp_width=18944, vocabulary=152064, queries=3584, keys=512, query_norm=False
)  # fmt: skip
"""The shape of Qwen 2.5 7B."""
PROCESS_BYTES = 12 << 30
"""What a rank takes of the host beside the copies: torch with CUDA, and the tensor that it is just copying."""


@AND_TOOLS
@IN_EACH
def test_its_variables_are_the_rooms(overlay: str, room: str) -> None:
    """With those of the image each exists and each value counts, and what the room needs is there."""
    assert wrong(room, _all(overlay, room)) == []
    assert room == "tools" or "POD_NAME" in variables(overlay, room)


@AND_TOOLS
@IN_EACH
def test_its_paths_are_mounted(overlay: str, room: str) -> None:
    """The root is read-only: each path of a setting lies in a volume, and what the room writes in one that it may write."""
    places = {path: read_only for path, _, read_only in mounts(overlay, room)}
    assert container(overlay, room)["securityContext"]["readOnlyRootFilesystem"]
    assert not places[_all(overlay, room)["CLAW_HOME"]]
    paths = {name: path for name, path in named(room, _all(overlay, room)).items() if isinstance(path, Path)}
    paths |= {name: Path(path) for name, path in _all(overlay, room).items() if name.endswith("_FILE")}
    for name, path in paths.items():
        place = max((each for each in places if path.is_relative_to(each)), key=len, default=None)
        assert place is not None, (name, path)
        reads = name.rpartition(".")[2] in ("model", "model_dir", "config") or name.endswith(("_file", "_FILE"))
        assert places[place] == reads, (name, path)


@EVERY
def test_its_ports_are_the_images(room: str) -> None:
    """What the image exposes is what the pod and its Service name; the probes ask the port for metrics."""
    ports = {each["name"]: each["containerPort"] for each in container("demo", room)["ports"]}
    assert {*ports.values()} == _stage("demo", room).ports
    assert ports["metrics"] == PORTS[room]
    if service := of_kind("demo", "Service").get(room):
        for each in service["spec"]["ports"]:
            assert ports[each["targetPort"]] == each["port"]
    probes = {
        name: container("demo", room)[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {(each["path"], each["port"]) for each in probes.values()} == {("/livez", "metrics"), ("/readyz", "metrics")}
    assert probes["readinessProbe"]["path"] == "/readyz"


@EVERY
@IN_EACH
def test_it_has_time_to_end(overlay: str, room: str) -> None:
    """Kubernetes waits longer than the room says that its end may take."""
    settings = named(room, _all(overlay, room))
    seconds = {name: float(str(settings[name])) / (1000 if name.endswith("_ms") else 1) for name in ENDS[room]}
    waits = container(overlay, room).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert pod(overlay, room)["terminationGracePeriodSeconds"] >= waits + sum(seconds.values()) + 5


@IN_EACH
def test_a_trainer_that_is_done_stays(overlay: str) -> None:
    """Its StatefulSet would start it again for ever."""
    assert named("trainer", _all(overlay, "trainer"))["TrainerSettings.stay_when_over"] is True


@AND_TOOLS
@IN_EACH
def test_it_is_nobody(overlay: str, room: str) -> None:
    """As in the image: no root, no privileges, no token of Kubernetes; trainer and workers are one user."""
    context = pod(overlay, room)["securityContext"]
    user, _, group = _stage(overlay, room).last("USER").partition(":")
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (int(user), int(group), True)
    assert pod(overlay, room)["automountServiceAccountToken"] is False
    own = container(overlay, room)["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["capabilities"]) == (False, {"drop": ["ALL"]})
    resources = container(overlay, room)["resources"]
    assert {"cpu", "memory"} <= resources["requests"].keys()
    assert "memory" in resources["limits"]
    assert room == "tools" or pod(overlay, room)["topologySpreadConstraints"]


@IN_EACH
def test_what_may_not_all_go_at_once_has_a_budget(overlay: str) -> None:
    """But the trainer and the dashboard, which are one pod each: a budget would keep a node from being emptied."""
    assert of_kind(overlay, "PodDisruptionBudget").keys() == {*ROOMS} - {"trainer", "dashboard"}


@IN_EACH
def test_memory_of_weights_fits(overlay: str) -> None:
    """/dev/shm is memory with a limit, within that of the pod; ids and addresses are the pod's own."""
    for room in ("trainer", "rollout"):
        (shm,) = [volume["emptyDir"] for path, volume, _ in mounts(overlay, room) if path == "/dev/shm"]
        assert shm["medium"] == "Memory"
        assert _gib(shm["sizeLimit"]) < _gib(container(overlay, room)["resources"]["limits"]["memory"])
    env = {each["name"]: each.get("value") for each in container(overlay, "rollout")["env"]}
    assert (env["CLAW_ROLLOUT_WORKER_ID"], env["CLAW_ROLLOUT_ADVERTISE_HOST"]) == ("$(POD_NAME)", "$(POD_IP)")
    both = variables(overlay, "trainer") | variables(overlay, "rollout")
    assert both["CLAW_TRAINER_RUN_ID"] == both["CLAW_ROLLOUT_RUN_ID"]
    assert both["CLAW_TRAINER_MODEL_ID"] == both["CLAW_ROLLOUT_MODEL_ID"]


@IN_EACH
def test_each_run_has_a_folder_of_its_own(overlay: str) -> None:
    """A trainer refuses the folder of another run; the id is that of the ConfigMap, which stands before the variables."""
    env = {each["name"]: each.get("value") for each in container(overlay, "trainer")["env"]}
    assert "CLAW_TRAINER_RUN_ID" in variables(overlay, "trainer").keys() - env.keys()
    assert str(env["CLAW_TRAINER_OUT_DIR"]).endswith("/$(CLAW_TRAINER_RUN_ID)")


def test_a_model_of_7b_can_be_trained() -> None:
    """Its ranks fit GPUs of 80 GB, copies of checkpoint and versions the pod's memory, and what is kept the volume."""
    read = named("trainer", _all("gpu", "trainer"))
    settings = TrainerSettings.model_construct(
        **{
            name.removeprefix("TrainerSettings."): value
            for name, value in read.items()
            if name.startswith("TrainerSettings.")
        }
    )
    resources = container("gpu", "trainer")["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == str(settings.ranks)
    rank = bytes_per_rank(
        OF_7B,
        device=settings.device,
        precision="bf16",
        stage=settings.zero_stage,
        ranks=settings.ranks,
        tokens=settings.micro_batch_tokens_max,
        checkpointing=settings.optimizer.gradient_checkpointing,
        offload=settings.optimizer.offload,
    )
    assert 1.2 * rank["total"] <= 80e9  # a measured peak is within a fifth of the formula (docs/measuring-training.md)
    version, on_host = 2 * OF_7B.parameters, settings.ranks * rank.get("optimizer_on_host", 0)
    checkpoint = version + 12 * OF_7B.parameters
    assert checkpoint + 3 * version + on_host + settings.ranks * PROCESS_BYTES <= 2**30 * _gib(
        resources["requests"]["memory"]
    )
    (home,) = [volume for path, volume, _ in mounts("gpu", "trainer") if path == "/var/lib/claw"]
    volume = 2**30 * _gib(home["persistentVolumeClaim"]["resources"]["requests"]["storage"])
    assert (settings.checkpoints_kept + 1) * checkpoint + (settings.hf_kept + 1) * version <= volume


def test_every_wire_is_closed_in_the_secure_one() -> None:
    """Each room speaks to Kafka as its own user by TLS; the doors that security.md names show certificates."""
    for room, user in {**{room: f"claw-{room}" for room in ROOMS}, "tools": "claw-operator"}.items():
        settings = named(room, _all("secure", room))
        assert settings["LogSettings.security_protocol"] == "SASL_SSL"
        assert settings["LogSettings.security_username"] == user
        assert user in of_kind("secure", "KafkaUser")
        secrets = {volume["secret"]["secretName"] for _, volume, _ in mounts("secure", room) if "secret" in volume}
        assert {user, "claw-cluster-ca-cert"} <= secrets
    listeners = of_kind("secure", "Kafka")["claw"]["spec"]["kafka"]["listeners"]
    assert [(each["tls"], each["authentication"]["type"]) for each in listeners] == [(True, "scram-sha-512")]
    servers = str(named("gateway", _all("secure", "gateway"))["LogSettings.bootstrap_servers"])
    assert servers.endswith(f":{listeners[0]['port']}")
    for room in ("gateway", "dashboard"):
        assert f"CLAW_{room.upper()}_TLS_CERTIFICATE_FILE" in variables("secure", room)
    for room in ("trainer", "rollout"):
        assert {"CLAW_WEIGHTS_TLS_CERTIFICATE_FILE", "CLAW_WEIGHTS_TLS_CA_FILE"} <= variables("secure", room).keys()


WIRES = {
    "agent → gateway": {("agents", "gateway", "http")},
    "gateway → engine": {("gateway", "rollout", "engine")},
    "worker → trainer, on another host": {("rollout", "trainer", "weights")},
    "host → host, carried (`offer_transports` gloo or nccl; off unless set)": set(),
    "person → dashboard": {("people", "dashboard", "http")},
    "monitoring → /metrics": {("monitoring", room, "metrics") for room in ROOMS},
    "everybody → Kafka": {(room, "kafka", port) for room in ROOMS for port in (9092, 9093)},
}
"""Wire of docs/security.md -> from whom, to whom, which port."""


def test_who_may_speak_with_whom_is_the_table_of_security() -> None:
    """Each wire of the page is open in the policies, those that are off unless set are not, and nothing else is; both ends say it."""
    page = (PROJECT / "docs" / "security.md").read_text().partition("## Wire by wire")[2]
    assert {
        line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if " → " in line.split(" | ")[0]
    } == WIRES.keys()
    ingress, egress = _edges("ingress"), _edges("egress")
    outside = {"agents", "people", "monitoring", "names"}
    wanted = {edge for edges in WIRES.values() for edge in edges}
    assert ingress == {edge for edge in wanted if edge[1] != "kafka"}
    assert {edge for edge in egress if edge[1] != "names"} == {edge for edge in wanted if edge[0] not in outside}
    closed = of_kind("demo", "NetworkPolicy")["closed"]["spec"]
    assert (closed["policyTypes"], closed.get("ingress"), closed.get("egress")) == (["Ingress", "Egress"], None, None)
    for room in (*ROOMS, "tools"):
        assert workload("demo", room)["spec"]["template"]["metadata"]["labels"]["claw-kafka"] == "client"


def test_what_grows_grows_within_bounds() -> None:
    """KEDA's targets are there; scorers are counted by their slots' groups, on a topic that these read; the trainer and streams stay."""
    scaled = {name: each["spec"] for name, each in of_kind("gpu", "ScaledObject").items()}
    assert scaled.keys() == {"rewards", "gateway", "rollout"}
    for name, spec in scaled.items():
        assert workload("gpu", name)["kind"] == spec["scaleTargetRef"].get("kind", "Deployment")
    reads = {
        group_name("claw", slot.name): {Catalogue().name(topic) for topic in topics_of(slot.scorer.scope)}
        for slot in load(FOLDER / "base" / "scorers.yaml")
    }
    triggers = {each["metadata"]["consumerGroup"]: each["metadata"]["topic"] for each in scaled["rewards"]["triggers"]}
    assert triggers.keys() == reads.keys()
    assert [group for group, topic in triggers.items() if topic not in reads[group]] == []
    page = (PROJECT / "docs" / "metrics.md").read_text()
    for name in ("gateway", "rollout"):
        metric = re.search(r"claw_\w+", scaled[name]["triggers"][0]["metadata"]["query"])
        assert metric is not None
        assert f"| `{metric[0]}` |" in page


@pytest.mark.parametrize("overlay", ["gpu", "secure"])
def test_an_apply_leaves_what_grew(overlay: str) -> None:
    """What KEDA scales has no number of its own, to which each apply would take it back."""
    for name, scaled in of_kind(overlay, "ScaledObject").items():
        assert "replicas" not in workload(overlay, scaled["spec"]["scaleTargetRef"]["name"])["spec"], name


def _all(overlay: str, room: str) -> dict[str, str]:
    return {
        **_stage(overlay, room).env,
        **variables(overlay, room),
        **({"CLAW_GATEWAY_API_KEYS": TOLD["CLAW_GATEWAY_API_KEYS"]} if room == "gateway" else {}),
    }


def _stage(overlay: str, room: str) -> Stage:
    return STAGES[container(overlay, room)["image"].removeprefix("claw-").partition(":")[0]]


def _gib(size: str) -> float:
    return float(size.removesuffix("Gi"))


def _edges(way: str) -> set[tuple[str, str, Any]]:
    """From whom, to whom and which port, of all policies for one way."""
    edges = set()
    for policy in of_kind("demo", "NetworkPolicy").values():
        for rule in policy["spec"].get(way, ()):
            ports = [each["port"] for each in rule["ports"]]
            peers = rule["from" if way == "ingress" else "to"]
            for own in _rooms_of(policy["spec"]["podSelector"]):
                others = [other for peer in peers for other in _peers(peer)]
                pairs = [(other, own) if way == "ingress" else (own, other) for other in others]
                edges |= {(*pair, port) for pair in pairs for port in ports}
    return edges


def _rooms_of(selector: dict[str, Any]) -> list[str]:
    labels = selector["matchLabels"]
    if labels == {"claw-kafka": "client"}:
        return [*ROOMS]
    return [labels["app.kubernetes.io/name"]]


def _peers(peer: dict[str, Any]) -> list[str]:
    names = {
        "claw-agents": "agents",
        "claw-people": "people",
        "claw-monitoring": "monitoring",
        "kubernetes.io/metadata.name": "names",
    }
    labels = {
        **peer.get("namespaceSelector", {}).get("matchLabels", {}),
        **peer.get("podSelector", {}).get("matchLabels", {}),
    }
    if labels == {"strimzi.io/name": "claw-kafka"}:
        return ["kafka"]
    (label,) = labels
    return _rooms_of({"matchLabels": labels}) if label == "app.kubernetes.io/name" else [names[label]]


def test_the_scorers_file_is_the_one_that_runs() -> None:
    assert yaml.safe_load((FOLDER / "base" / "scorers.yaml").read_text())["scorers"]
