"""Each object is what Kubernetes, Strimzi and KEDA take, and Kafka's are the catalogue's."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from claw_r1.claw.topics.manifests import KINDS, as_yaml, manifests
from claw_r1.eventlog.grants import ROLES, grants
from claw_r1.schemas.topics import Catalogue
from tests.infra.dockerfile import HOST, TARGETS
from tests.infra.kubernetes.cluster import FOLDER, OVERLAYS, objects, of_kind
from tests.infra.schemas.find import schema

GENERATED = {
    "Kafka": "base/kafka.yaml", "KafkaNodePool": "base/pool.yaml", "KafkaTopic": "base/topics.yaml", "KafkaUser": "overlays/secure/users.yaml",
}  # fmt: skip
CATALOGUE = Catalogue(partitions=32, replication=3)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_object_is_of_its_schema(overlay: str) -> None:
    """No field is unknown, none is missing, none has a value of another kind."""
    assert [problem for each in objects(overlay) for problem in _problems(each)] == []


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("StatefulSet", "replicsa"),
        ("Kafka", "kafak"),
        ("KafkaTopic", "partitons"),
        ("KafkaUser", "acls"),
        ("ScaledObject", "triggres"),
        ("NetworkPolicy", "ingres"),
    ],
)
def test_a_field_that_is_misspelt_is_seen(kind: str, field: str) -> None:
    """The schemas are closed: nothing that a cluster would drop in silence passes."""
    first = next(iter(of_kind("secure", kind).values()))
    assert _problems(first) == []
    assert _problems({**first, "spec": {**first["spec"], field: 1}}) != []


@pytest.mark.parametrize("kind", KINDS)
def test_kafkas_files_are_the_catalogues(kind: str) -> None:
    """`claw topics manifests --kind KIND --partitions 32 --replication 3` writes them again."""
    ours = [each for each in manifests([CATALOGUE], "claw-") if each["kind"] == kind]
    assert (FOLDER / GENERATED[kind]).read_text().rstrip() == as_yaml(ours).rstrip()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_topics_are_as_the_rooms_expect(overlay: str) -> None:
    """The partitions and copies of each topic are those that every room is told, and there are as many brokers."""
    (log,) = [each["data"] for name, each in of_kind(overlay, "ConfigMap").items() if name.startswith("claw-log-")]
    partitions, replication = int(log["CLAW_LOG_PARTITIONS"]), int(log["CLAW_LOG_REPLICATION"])
    topics = {each["spec"]["topicName"]: each["spec"] for each in of_kind(overlay, "KafkaTopic").values()}
    catalogue = Catalogue(partitions=partitions, replication=replication)
    assert topics.keys() == {catalogue.name(topic) for topic in catalogue}
    assert {(each["partitions"], each["replicas"]) for each in topics.values()} == {(partitions, replication)}
    for topic in catalogue:
        assert topics[catalogue.name(topic)]["config"] == catalogue.settings(topic)
    assert of_kind(overlay, "KafkaNodePool")["brokers"]["spec"]["replicas"] == replication
    config = of_kind(overlay, "Kafka")["claw"]["spec"]["kafka"]["config"]
    assert {value for name, value in config.items() if "replication" in name} == {replication}
    for scaled in of_kind(overlay, "ScaledObject").values():
        if scaled["spec"]["triggers"][0]["type"] == "kafka":
            assert scaled["spec"]["maxReplicaCount"] == partitions


def test_users_have_what_their_role_needs_and_nothing_else() -> None:
    """Each grant of `claw topics acls` is in the user's list, by Strimzi's words, and no other."""
    users = of_kind("secure", "KafkaUser")
    assert users.keys() == {f"claw-{role}" for role in ROLES}
    for role in ROLES:
        lines = users[f"claw-{role}"]["spec"]["authorization"]["acls"]
        held = [
            (
                line["resource"]["type"].lower(),
                line["resource"]["name"],
                line["resource"]["patternType"],
                operation.lower(),
            )
            for line in lines
            for operation in line["operations"]
        ]
        needed = [
            (
                each.resource.replace("_", ""),
                each.name,
                "prefix" if each.prefixed else "literal",
                each.operation.replace("_", ""),
            )
            for each in grants(CATALOGUE, role)
        ]
        assert sorted(held) == sorted(needed)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_images_are_targets_without_a_registry(overlay: str) -> None:
    for each in objects(overlay):
        for holder in each.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            name = holder["image"].partition(":")[0]
            assert name.removeprefix("claw-") in TARGETS
            assert not HOST.match(holder["image"])


def _problems(each: dict[str, Any]) -> list[str]:
    group, _, version = each["apiVersion"].rpartition("/")
    if group == "kafka.strimzi.io":
        found, definitions = schema("strimzi")[each["kind"]], {}
    elif group == "keda.sh":
        found, definitions = schema("keda")[each["kind"]], {}
    else:
        kind = "-".join(part for part in (each["kind"].lower(), group.partition(".")[0], version) if part)
        found, definitions = schema("kubernetes")["kinds"][kind], schema("kubernetes")["definitions"]
    validator = jsonschema.Draft202012Validator({**found, "definitions": definitions} if definitions else found)
    return [
        f"{each['kind']} {each['metadata']['name']}: {error.json_path} {error.message[:200]}"
        for error in validator.iter_errors(json.loads(json.dumps(each, default=str)))
    ]


def test_every_file_is_of_a_kustomization() -> None:
    """A file that none names is of no effect."""
    for folder in {path.parent for path in FOLDER.rglob("kustomization.yaml")}:
        said = (folder / "kustomization.yaml").read_text()
        others = [path.name for path in folder.glob("*.yaml") if path.name != "kustomization.yaml"]
        assert [name for name in others if name not in said] == []
        assert yaml.safe_load(said)["kind"] in ("Kustomization", "Component")
