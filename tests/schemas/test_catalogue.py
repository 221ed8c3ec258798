"""Conventions of the schemas, their ids and the topics, each held for every one of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.schemas.avro_files import (
    FIRST_ID,
    current_ids,
    fingerprint,
    raw_schemas,
    schema_ids,
    self_contained,
    wire_schema,
)
from claw_r1.schemas.envelopes import decision_id, new_id
from claw_r1.schemas.events import EVENT_TYPES
from claw_r1.schemas.topics import TOPICS, Catalogue, Topic
from tests.schemas.examples import EVENTS

RECORDS = {name: schema for name, schema in raw_schemas().items() if schema["type"] == "record"}
ENUMS = {name: schema for name, schema in raw_schemas().items() if schema["type"] == "enum"}
FIELDS = [(name, field) for name, schema in RECORDS.items() for field in schema["fields"]]
each_topic = pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)


def test_generated_files_are_up_to_date() -> None:
    """events.py and ids.json are what the generator makes of the schemas now."""
    check = subprocess.run(
        [sys.executable, "-m", "claw_r1.schemas.generate", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.parametrize("name", sorted(raw_schemas()))
def test_every_schema_says_what_it_is(name: str) -> None:
    """Name and namespace are ours, and there is a doc that a person can read."""
    schema = raw_schemas()[name]
    assert schema["namespace"] == "claw"
    assert len(schema["doc"]) > 10


@pytest.mark.parametrize("name", sorted(ENUMS))
def test_every_enum_has_a_default_for_symbols_to_come(name: str) -> None:
    """An old reader that meets a new symbol reads `unknown` instead of failing."""
    assert ENUMS[name]["default"] == "unknown"
    assert "unknown" in ENUMS[name]["symbols"]


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=[f"{name}.{field['name']}" for name, field in FIELDS])
def test_every_field_can_evolve(name: str, field: dict[str, object]) -> None:
    """Names are snake_case; unions put null first and default to it, so that a field can be added and left out."""
    assert str(field["name"]) == str(field["name"]).lower()
    if isinstance(field["type"], list):
        assert field["type"][0] == "null"
        assert "default" in field
        assert field["default"] is None


def test_ids_are_given_once_and_in_order() -> None:
    """Ids count up from 100000 without gaps; no schema has two, and each event's newest id is its schema of today."""
    ids = list(schema_ids())
    assert ids == list(range(FIRST_ID, FIRST_ID + len(ids)))
    entries = [(entry["name"], entry["fingerprint"]) for entry in schema_ids().values()]
    assert len(set(entries)) == len(entries)
    for name, schema_id in current_ids().items():
        assert schema_ids()[schema_id]["fingerprint"] == fingerprint(wire_schema(name))


def test_released_ids_never_change() -> None:
    """Every id in released_ids.json, which a release only adds to, still names the same schema."""
    released = json.loads(Path(__file__).with_name("released_ids.json").read_text())
    for key, entry in released.items():
        assert schema_ids()[int(key)] == entry


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_events_are_frozen_values(name: str) -> None:
    """An event cannot be changed after it is made, and stands on exactly one topic."""
    event = EVENTS[name]
    with pytest.raises(AttributeError, match="immutable"):
        setattr(event, event.__struct_fields__[0], "other")
    assert not hasattr(event, "__dict__")
    assert len([topic.name for topic in TOPICS if name in topic.records]) == 1


def test_a_fingerprint_ignores_docs_and_nothing_else() -> None:
    """Rewording a doc gives no new id; the self-contained schema names each referenced type once."""
    schema = self_contained("claw.CallCaptured")
    text = json.dumps(schema)
    assert text.count('"name": "Edge"') == 1
    assert len({fingerprint(wire_schema(name)) for name in RECORDS}) == len(RECORDS)


@each_topic
def test_every_topic_says_who_writes_and_who_reads_it(topic: Topic) -> None:
    """The catalogue's entry is complete: key, writers, readers, a doc, and records that exist."""
    assert topic.key
    assert topic.writers
    assert topic.readers
    assert topic.doc
    assert set(topic.records) <= set(EVENT_TYPES)
    assert topic.name == topic.name.lower()


@each_topic
def test_facts_are_kept_and_only_projections_are_compacted(topic: Topic) -> None:
    """A topic of facts is kept for ever by default and its events carry envelopes; pool topics compact."""
    config = topic.settings()
    assert config["cleanup.policy"] == topic.policy
    if topic.policy == "delete":
        assert config["retention.ms"] == config["retention.bytes"] == "-1"
        assert all("envelope" in EVENT_TYPES[name].__struct_fields__ for name in topic.records)
    else:
        assert "retention.ms" not in config


@each_topic
def test_every_topic_takes_the_largest_record(topic: Topic) -> None:
    """Eight MiB, as producers and readers are set up for."""
    assert topic.settings()["max.message.bytes"] == str(8 << 20)


def test_facts_of_many_writers_are_never_transactional() -> None:
    """Faust would fold aborted records, and an open transaction of one writer would hide the facts of the others."""
    assert [topic.name for topic in TOPICS if topic.transactional and topic.name in ("calls", "rewards")] == []


def test_full_names_come_from_the_catalogue() -> None:
    """A full name has the prefix and leads back to its entry; a foreign name leads nowhere."""
    catalogue = Catalogue(prefix="demo")
    assert {catalogue.topic(catalogue.name(topic)).name for topic in catalogue} == {topic.name for topic in TOPICS}
    assert catalogue.name(TOPICS[0]) == "demo.calls"
    with pytest.raises(KeyError):
        catalogue.topic("claw.calls")


@each_topic
def test_only_the_pool_has_generations(topic: Topic) -> None:
    """What streams derive of facts has a name per generation, the first without a mark; facts and plans have one name."""
    first, second = Catalogue(), Catalogue(generation=2)
    assert topic.derived == (topic.writers == ("streams",))
    assert (first.name(topic) != second.name(topic)) == topic.derived
    assert first.name(topic) == f"claw.{topic.name}"
    assert second.topic(second.name(topic)) is topic


def test_ids_of_observations_sort_by_time_and_ids_of_decisions_repeat() -> None:
    """new_id is a UUID of version 7; decision_id depends on its subject alone, part by part."""
    first, second = new_id(), new_id()
    assert first[14] == "7"
    assert first[:13] <= second[:13]
    assert first != second
    assert decision_id("a", "b") == decision_id("a", "b") != decision_id("ab", "")
