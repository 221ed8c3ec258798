"""The schema registry as Kafka's tools ask it: their requests with what each needs, and Confluent's own deserializer."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema

from claw_r1.claw.show.registry import server
from claw_r1.runtime.tls.doors import DoorTls
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.avro_files import current_ids, schema_ids, self_contained, wire_schema, written_schema
from claw_r1.schemas.codec import as_dict
from claw_r1.schemas.events import EVENT_TYPES
from claw_r1.schemas.registry import Registry
from claw_r1.schemas.topics import TOPICS, Catalogue
from tests.gateway.house import House
from tests.patience import until
from tests.schemas.examples import event, golden

CAPTURED = current_ids()["claw.CallCaptured"]
WEIGHTS = current_ids()["claw.WeightsPublished"]
V = "/subjects/claw.calls-claw.CallCaptured/versions"
KEY, ENTRY = new_key("operator")
TYPE = "application/vnd.schemaregistry.v1+json"


def as_clients_send(name: str) -> bytes:
    """A look-up's body with the schema as Java's parser writes it back: with docs, in its own order, names written in full."""
    schema = self_contained(f"claw.{name}")
    return json.dumps({"schema": json.dumps(schema, sort_keys=True, indent=2), "schemaType": "AVRO"}).encode()


# (who asks, method, path, body, status, what the answer must hold)
REQUESTS: list[tuple[str, str, str, bytes | None, int, Any]] = [
    ("ClickHouse, Flink", "GET", f"/schemas/ids/{CAPTURED}", None, 200, {"schema"}),
    ("Java clients", "GET", f"/schemas/ids/{CAPTURED}?fetchMaxId=false&subject=claw.calls-value", None, 200, {"schema"}),
    ("Java clients", "GET", f"/schemas/ids/{CAPTURED}?fetchMaxId=true", None, 200, {"maxId": max(schema_ids())}),
    ("a future writer's id", "GET", "/schemas/ids/2000000000?fetchMaxId=false", None, 404, {"error_code": 40403}),
    ("an id of 64 bits", "GET", "/schemas/ids/99999999999", None, 404, {"error_code": 404}),
    ("no id", "GET", "/schemas/ids/x", None, 404, {"error_code": 404}),
    ("franz-go", "GET", f"/schemas/ids/{CAPTURED}/schema", None, 200, {"type": "record", "name": "CallCaptured"}),
    ("Console", "GET", f"/schemas/ids/{CAPTURED}/subjects", None, 200, ["claw.calls-claw.CallCaptured"]),
    ("Console", "GET", f"/schemas/ids/{WEIGHTS}/versions?deleted=true", None, 200, [{"subject": "claw.weights-value"}]),
    ("Console", "GET", "/schemas/types", None, 200, ["AVRO"]),
    ("Console", "GET", "/subjects?deleted=true", None, 200, ["claw.keys-value"]),
    ("Console", "GET", "/subjects?deletedOnly=true", None, 200, []),
    ("ksqlDB", "GET", "/subjects?subjectPrefix=:*:claw.w", None, 200, ["claw.weights-value"]),
    ("Console", "GET", "/schemas?latestOnly=true", None, 200, [{"id": CAPTURED, "subject": "claw.calls-claw.CallCaptured"}]),
    ("Console", "GET", f"{V}?deleted=true", None, 200, []),
    ("Console", "GET", f"{V}/latest", None, 200, {"id": CAPTURED, "schema": None, "version": None}),
    ("Java clients", "GET", f"{V}/-1", None, 200, {"id": CAPTURED}),
    ("curl", "GET", f"{V}/latest/schema", None, 200, {"name": "CallCaptured"}),
    ("Console", "GET", f"{V}/latest/referencedby", None, 200, []),
    ("nobody's version", "GET", f"{V}/999", None, 404, {"error_code": 40402}),
    ("no version", "GET", f"{V}/0", None, 422, {"error_code": 42202}),
    ("no version", "GET", f"{V}/newest", None, 422, {"error_code": 42202}),
    ("nobody's subject", "GET", "/subjects/x/versions", None, 404, {"error_code": 40401}),
    ("nobody's subject", "POST", "/subjects/x", as_clients_send("CallCaptured"), 404, {"error_code": 40401}),
    # AvroConverter asks for the version of what it has read, by the subject of its strategy.
    ("Connect", "POST", "/subjects/claw.calls-claw.CallCaptured?normalize=false&deleted=true", as_clients_send("CallCaptured"), 200, {"id": CAPTURED}),
    ("Connect", "POST", "/subjects/claw.weights-claw.WeightsPublished?deleted=true", as_clients_send("WeightsPublished"), 200, {"id": WEIGHTS, "subject": "claw.weights-value"}),
    ("Connect", "POST", "/subjects/claw.weights-value", as_clients_send("CallCaptured"), 404, {"error_code": 40403}),
    ("junk", "POST", "/subjects/claw.weights-value", b"[" * 100_000, 422, {"error_code": 42201}),
    ("junk", "POST", "/subjects/claw.weights-value", b'{"schema": "{}"}', 422, {"error_code": 42201}),
    ("junk", "POST", "/subjects/claw.weights-value", b'{"schema": 5}', 422, {"error_code": 42201}),
    ("Protobuf", "POST", "/subjects/claw.weights-value", b'{"schema": "x", "schemaType": "PROTOBUF"}', 422, {"error_code": 42201}),
    ("a producer", "POST", V, as_clients_send("CallCaptured"), 422, {"error_code": 42205}),
    ("an operator", "DELETE", f"{V}/1", None, 422, {"error_code": 42205}),
    ("an operator", "PUT", "/config", b'{"compatibility": "NONE"}', 422, {"error_code": 42205}),
    ("Console", "GET", "/config", None, 200, {"compatibilityLevel": "FULL_TRANSITIVE"}),
    ("Console", "GET", "/config/claw.weights-value?defaultToGlobal=true", None, 200, {"compatibilityLevel": "FULL_TRANSITIVE"}),
    ("Console", "GET", "/config/x", None, 404, {"error_code": 40401}),
    ("Console", "GET", "/mode", None, 200, {"mode": "READONLY"}),
    ("Console", "GET", "/mode/claw.weights-value", None, 200, {"mode": "READONLY"}),
    ("Console", "GET", "/contexts", None, 200, ["."]),
    ("CI", "POST", "/compatibility/subjects/claw.weights-value/versions/latest", as_clients_send("WeightsPublished"), 200, {"is_compatible": True}),
    ("CI", "POST", "/compatibility/subjects/claw.weights-value/versions/latest?verbose=true", as_clients_send("KeyRecorded"), 422, {"error_code": 42205}),
    ("a probe", "GET", "/", None, 200, {}),
    ("nobody", "GET", "/clusters", None, 404, {"error_code": 404}),
]  # fmt: skip


@pytest.fixture(scope="module")
def alone() -> Iterator[str]:
    """URL of what `claw registry` serves."""
    running, listener = server("127.0.0.1", 0, Catalogue(), DoorTls())
    thread = threading.Thread(target=running.run, args=([listener],), daemon=True)
    thread.start()
    until(lambda: running.started)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    running.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def mounted() -> Iterator[str]:
    """URL of the registry of a gateway that wants keys."""
    with House(api_keys=ENTRY) as house:
        yield f"{house.url}/registry"


def ask(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, {"x-api-key": KEY, "content-type": TYPE, **named}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, dict(refusal.headers), refusal.read()


def holds(answer: Any, needed: Any) -> bool:
    """Whether JSON has what a tool needs of it: these fields (None: whatever their value), these elements among others."""
    if isinstance(needed, set):
        return needed <= answer.keys()
    if isinstance(needed, dict):
        return all(name in answer and value in (None, answer[name]) for name, value in needed.items())
    if isinstance(needed, list):
        return isinstance(answer, list) and all(any(holds(one, each) for one in answer) for each in needed)
    return bool(answer == needed)


@pytest.mark.parametrize("place", ["alone", "mounted"])
@pytest.mark.parametrize(("who", "method", "path", "body", "status", "needed"), REQUESTS)
def test_tools_get_what_they_need(
    request: pytest.FixtureRequest, place: str, who: str, method: str, path: str, body: bytes | None, status: int, needed: Any
) -> None:  # fmt: skip
    """The same from the gateway as from the registry alone, as Confluent's content type; a refusal says why."""
    code, headers, content = ask(request.getfixturevalue(place) + path, method, body)
    answer = json.loads(content)
    assert (code, headers["content-type"]) == (status, TYPE), answer
    assert holds(answer, needed), answer
    if needed == [] and "deletedOnly" in path:
        assert answer == []
    if status >= 400:
        assert len(answer["message"]) > 8


@pytest.mark.parametrize("place", ["alone", "mounted"])
@pytest.mark.parametrize("name", EVENT_TYPES)
def test_confluents_deserializer_reads_every_record(request: pytest.FixtureRequest, place: str, name: str) -> None:
    """Each golden example, with nothing but the URL (and a key as the password): the event, field by field."""
    url = (
        request.getfixturevalue(place).replace("//", f"//anybody:{KEY}@")
        if place == "mounted"
        else request.getfixturevalue(place)
    )
    (topic,) = (topic for topic in TOPICS if name in topic.records)
    with SchemaRegistryClient({"url": url}) as client:
        read = AvroDeserializer(client)(golden(name), SerializationContext(Catalogue().name(topic), MessageField.VALUE))
    assert read == json_like(as_dict(event(name)))


def json_like(value: Any) -> Any:
    """Tuples as the lists that Avro's readers make."""
    if isinstance(value, dict):
        return {key: json_like(item) for key, item in value.items()}
    return [json_like(item) for item in value] if isinstance(value, tuple) else value


def test_confluents_client_understands_the_refusals(alone: str) -> None:
    """Its own calls: the latest version, the look-up of a schema, a registration that is refused with the registry's code."""
    with SchemaRegistryClient({"url": alone}) as client:
        latest = client.get_latest_version("claw.keys-value")
        assert client.lookup_schema("claw.keys-value", latest.schema).schema_id == latest.schema_id
        assert client.get_schema_types() == ["AVRO"]
        with pytest.raises(SchemaRegistryError) as refusal:
            client.register_schema("claw.keys-value", Schema('"string"', "AVRO"))
        assert (refusal.value.http_status_code, refusal.value.error_code) == (422, 42205)
        assert "read-only" in refusal.value.error_message


@pytest.mark.parametrize("place", ["alone", "mounted"])
def test_what_does_not_change_need_not_be_sent_again(request: pytest.FixtureRequest, place: str) -> None:
    """An ETag is the same each time, and another one for another schema."""
    url = request.getfixturevalue(place)
    _, headers, body = ask(f"{url}/schemas/ids/{CAPTURED}")
    status, again, rest = ask(f"{url}/schemas/ids/{CAPTURED}", if_none_match=headers["etag"])
    assert (status, rest, again["etag"]) == (304, b"", headers["etag"])
    assert "content-length" not in again
    assert ask(f"{url}/schemas/ids/{CAPTURED}", if_none_match='"other"')[2] == body
    assert ask(f"{url}/schemas/ids/{WEIGHTS}")[1]["etag"] != headers["etag"]
    assert ask(f"{url}/schemas/ids/{CAPTURED}", "HEAD")[2] == b""


def test_every_id_whose_text_is_kept_is_answered_without_references() -> None:
    """Each parses by itself; a withdrawn one is not there, and takes no other's version number."""
    registry = Registry(Catalogue())
    for schema_id, entry in schema_ids().items():
        reply = registry.reply("GET", f"schemas/ids/{schema_id}", {})
        if written_schema(schema_id) is None:
            assert reply.status == 404
        else:
            parse_schema(json.loads(json.loads(reply.body)["schema"]), {})
            (usage,) = json.loads(registry.reply("GET", f"schemas/ids/{schema_id}/versions", {}).body)
            earlier = [
                number
                for number, other in schema_ids().items()
                if other["name"] == entry["name"] and number <= schema_id
            ]
            assert usage["version"] == len(earlier)
    assert json.loads(registry.reply("GET", f"schemas/ids/{CAPTURED}/schema", {}).body) == wire_schema(
        "claw.CallCaptured"
    )


def test_another_prefix_and_generation_name_other_subjects() -> None:
    """Subjects are named after the topics of the log at hand."""
    subjects = json.loads(Registry(Catalogue(prefix="lab", generation=2)).reply("GET", "/subjects", {}).body)
    assert {"lab.calls-claw.CallCaptured", "lab.datapool.g2.groups-value"} <= set(subjects)
    assert not any(name.startswith("lab.dead-letters") for name in subjects)
