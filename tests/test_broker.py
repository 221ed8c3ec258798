"""Where the tests take their Kafka from, and a node in a container against what a local one does."""

from pathlib import Path

import pytest

from tests.broker import OTHER_IMAGE, image_at_hand, kafka_container, new_log
from tests.streams.pool import episode, facts_in_log, outgoing, publish


def test_where_no_engine_answers_the_node_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that nobody serves is no engine, whatever image is named; and an engine may be left alone."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    for image in (None, "claw-kafka", "none"):
        monkeypatch.setenv(OTHER_IMAGE, image) if image else monkeypatch.delenv(OTHER_IMAGE, raising=False)
        assert image_at_hand() is None


@pytest.mark.kafka
def test_a_node_in_a_container_keeps_what_it_acknowledged() -> None:
    """Topics of the catalogue are made on it, and facts that are written stand there."""
    image = image_at_hand()
    if image is None:
        pytest.skip("no container engine answers here that has claw-kafka (infra/images/build.sh kafka)")
    with kafka_container(image) as bootstrap:
        log = new_log(bootstrap)
        events = episode("g", "t")
        publish(log, map(outgoing, events))
        assert sorted(map(repr, events)) == sorted(repr(event) for event, _ in facts_in_log(log))
