"""The catalogue of topics, each held to what all promise."""

import pytest

from claw_r1.schemas.events import EVENT_TYPES
from claw_r1.schemas.topics import TOPICS, Catalogue, Topic

each_topic = pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)


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
