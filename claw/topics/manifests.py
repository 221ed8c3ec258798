"""The catalogue as resources of Strimzi, Kafka's operator on Kubernetes: what
`claw topics manifests` prints. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby

import yaml

from claw_r1.eventlog.grants import ROLES, Grant, grants
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import LARGEST_RECORD_BYTES, Catalogue, Topic, insync_of

API = "kafka.strimzi.io/v1"
KINDS = ("Kafka", "KafkaNodePool", "KafkaTopic", "KafkaUser")
CLUSTER = "claw"
"""Name of the Kafka cluster, which topics and users name."""
MAY_CONNECT = (
    {"podSelector": {"matchLabels": {"claw-kafka": "client"}}},
    {"namespaceSelector": {"matchLabels": {"claw-keda": "true"}}},
)
"""Pods of the namespace with this label, and the namespace of who counts the
scorers' lag."""
LISTENER = {
    "name": "plain",
    "port": 9092,
    "type": "internal",
    "tls": False,
    "networkPolicyPeers": [*MAY_CONNECT],
}
CONFIG: dict[str, object] = {
    "auto.create.topics.enable": False,
    "unclean.leader.election.enable": False,
    "message.max.bytes": LARGEST_RECORD_BYTES,
    "log.retention.ms": -1,
}
METRICS = {"type": "strimziMetricsReporter"}
"""Strimzi's other type would need a ConfigMap with rules."""
COPIED = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
IN_SYNC = ("min.insync.replicas", "transaction.state.log.min.isr")
VOLUME = {
    "id": 0,
    "type": "persistent-claim",
    "size": "100Gi",
    "kraftMetadata": "shared",
    "deleteClaim": False,
}
RESOURCES = {
    "requests": {"cpu": "1", "memory": "4Gi"},
    "limits": {"memory": "4Gi"},
}


def manifests(catalogues: Sequence[Catalogue], users: str) -> Iterator[JsonDict]:
    """Yields the cluster and its nodes by the first catalogue, each topic of any, and a user of each role
    whose name is `users` and the role's. Strimzi takes from a user whatever its resource does not name, so
    that of several catalogues it has the grants of all."""
    yield _resource("Kafka", CLUSTER, kafka_spec(catalogues[0]))
    yield _resource("KafkaNodePool", "brokers", pool_spec(catalogues[0]))
    topics = {each.name(topic): topic_spec(each, topic) for each in catalogues for topic in each}
    for name, spec in topics.items():
        yield _resource("KafkaTopic", _object_name(name), spec)
    for role in ROLES:
        needed = chain.from_iterable(grants(each, role) for each in catalogues)
        spec = user_spec([*dict.fromkeys(needed)])
        yield _resource("KafkaUser", f"{users}{role}", spec)


def as_yaml(resources: list[JsonDict]) -> str:
    """Returns them as `kubectl apply -f -` reads them."""
    text: str = yaml.safe_dump_all(resources, sort_keys=False, width=120)
    return text


def kafka_spec(catalogue: Catalogue) -> JsonDict:
    """The cluster: in clear within its namespace, for pods with the label of clients alone. Its brokers and the lag of
    its groups can be scraped."""
    copies = catalogue.replication
    config = CONFIG | dict.fromkeys(COPIED, copies)
    config |= dict.fromkeys(IN_SYNC, insync_of(copies))
    return {
        "kafka": {"listeners": [LISTENER], "config": config, "metricsConfig": METRICS},
        "entityOperator": {"topicOperator": {}, "userOperator": {}},
        "kafkaExporter": {},
    }


def pool_spec(catalogue: Catalogue) -> JsonDict:
    """The nodes, one for each copy; every one is broker and controller."""
    return {
        "replicas": catalogue.replication,
        "roles": ["controller", "broker"],
        "storage": {"type": "jbod", "volumes": [VOLUME]},
        "resources": RESOURCES,
    }


def topic_spec(catalogue: Catalogue, topic: Topic) -> JsonDict:
    return {
        "topicName": catalogue.name(topic),
        "partitions": catalogue.partitions,
        "replicas": catalogue.replication,
        "config": catalogue.settings(topic),
    }


def user_spec(needed: list[Grant]) -> JsonDict:
    """A user with a password that the operator makes, and its grants."""
    access = [_rule(list(same)) for _, same in groupby(sorted(needed, key=_place), key=_place)]
    return {
        "authentication": {"type": "scram-sha-512"},
        "authorization": {"type": "simple", "acls": access},
    }


def _place(grant: Grant) -> tuple[str, str, bool]:
    return grant.resource, grant.name, grant.prefixed


def _rule(same: list[Grant]) -> JsonDict:
    """The operations of one place."""
    operations = [_strimzi_operation(each.operation) for each in same]
    resource = _strimzi_resource(*_place(same[0]))
    return {"resource": resource, "operations": operations}


def _strimzi_resource(kind: str, name: str, prefixed: bool) -> JsonDict:
    pattern = "prefix" if prefixed else "literal"
    word = kind.replace("_id", "Id")
    return {"type": word, "name": name, "patternType": pattern}


def _strimzi_operation(name: str) -> str:
    return name.title().replace("_", "")


def _object_name(topic: str) -> str:
    """Topics may have letters that Kubernetes' names have not."""
    return re.sub(r"[^a-z0-9.-]", "-", topic.lower()).strip(".-")


def _resource(kind: str, name: str, spec: Mapping[str, object]) -> JsonDict:
    of_cluster = {"labels": {"strimzi.io/cluster": CLUSTER}}
    labels = {} if kind == "Kafka" else of_cluster
    metadata = {"name": name, **labels}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": dict(spec)}
