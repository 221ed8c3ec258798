"""`claw topics` on a real broker: what the catalogue asks for is created, described and compared."""

import dataclasses
import json
import re
import uuid

import pytest
import yaml
from typer.testing import CliRunner

from claw_r1.claw.answers import emit
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.topics import catalogue
from claw_r1.claw.topics.commands import CatalogueOptions, topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import TOPICS
from tests import facts
from tests.consumers import published

pytestmark = pytest.mark.kafka


def shape(prefix: str, partitions: int = 2) -> CatalogueOptions:
    return CatalogueOptions(prefix=prefix, partitions=partitions)


@pytest.fixture
def prefix(broker: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix that nobody used yet, on the broker that the commands take."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    return f"t{uuid.uuid4().hex[:10]}"


def test_topics_are_created_once_and_described_as_they_are(
    broker: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every topic of the catalogue; a second `create` changes nothing; `describe` counts partitions and records."""
    assert emit(catalogue.on_broker(shape(prefix), catalogue.create), as_json=True) == 0
    assert len(json.loads(capsys.readouterr().out)["created"]) == len(TOPICS)
    assert emit(catalogue.on_broker(shape(prefix), catalogue.create), as_json=False) == 0
    assert capsys.readouterr().out.strip() == "every topic exists"

    published.say(LogSettings(bootstrap_servers=broker, prefix=prefix, partitions=2), facts.call(), facts.reward())
    capsys.readouterr()  # a broker that has just started lets a producer try again, which the log says there
    assert emit(catalogue.on_broker(shape(prefix), catalogue.describe), as_json=True) == 0
    states = {state["name"]: state for state in json.loads(capsys.readouterr().out)}
    assert {state["partitions"] for state in states.values()} == {2}
    assert sum(states[f"{prefix}.calls"]["end_offsets"].values()) == 1
    assert emit(catalogue.on_broker(shape(prefix), catalogue.describe), as_json=False) == 0
    lines = {line.split()[0]: line.split()[-1] for line in capsys.readouterr().out.splitlines()}
    assert (lines[f"{prefix}.calls"], lines[f"{prefix}.rewards"], lines[f"{prefix}.weights"]) == ("1", "1", "0")


def test_a_difference_is_named_and_is_exit_code_1(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Another partition count than the broker has is one line per topic; the same count is none."""
    emit(catalogue.on_broker(shape(prefix), catalogue.create), as_json=True)
    capsys.readouterr()
    assert emit(catalogue.on_broker(shape(prefix), catalogue.diff), as_json=False) == 0
    assert capsys.readouterr().out.strip() == "the broker has what the catalogue asks for"
    assert emit(catalogue.on_broker(shape(prefix, 3), catalogue.diff), as_json=True) == 1
    differences = json.loads(capsys.readouterr().out)["differences"]
    assert len(differences) == len(TOPICS)
    assert f"{prefix}.calls: partitions is 2, the catalogue says 3" in differences


def test_a_prefix_without_topics_is_said_on_stderr(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table tells nobody that the prefix is wrong."""
    assert emit(catalogue.on_broker(shape(prefix), catalogue.describe), as_json=True) == 0
    shown = capsys.readouterr()
    assert (json.loads(shown.out), shown.err.count("\n")) == ([], 1)
    assert f"no topic with the prefix {prefix}" in shown.err


def test_grants_are_listed_without_a_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each, which names the role's user; as JSON the parts of an access list."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert emit(catalogue.acls(shape("p"), users="our-", apply=False), as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "our-gateway: write topic p.calls" in lines
    assert "our-trainer: write transactional id p.trainer.*" in lines
    assert emit(catalogue.acls(shape("p"), users="our-", apply=False), as_json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(lines)
    assert {
        "user": "our-streams",
        "resource": "group",
        "name": "p.streams",
        "operation": "read",
        "prefixed": False,
    } in rows


def test_strimzis_resources_are_printed_without_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of one kind, as YAML that kubectl reads; a kind that there is not is refused with those that there are."""
    assert emit(catalogue.strimzi([shape("Team_A")], users="claw-", kind="KafkaTopic"), as_json=False) == 0
    topics = list(yaml.safe_load_all(capsys.readouterr().out))
    assert {each["spec"]["topicName"] for each in topics} == {f"Team_A.{topic.name}" for topic in TOPICS}
    assert [each["metadata"]["name"] for each in topics if re.search(r"[^a-z0-9.-]", each["metadata"]["name"])] == []
    assert {each["spec"]["partitions"] for each in topics} == {2}
    with pytest.raises(CannotRun, match="KafkaUser"):
        catalogue.strimzi([shape("claw")], users="claw-", kind="Topic")


def rights(*words: str) -> dict[str, set[str]]:
    """What each user may do by the resources that `claw topics manifests` prints for Strimzi."""
    shown = CliRunner().invoke(topics, ["manifests", "--kind", "KafkaUser", "--json", *words])
    users = json.loads(shown.stdout)
    return {
        each["metadata"]["name"]: {
            f"{operation} {line['resource']}"
            for line in each["spec"]["authorization"]["acls"]
            for operation in line["operations"]
        }
        for each in users
    }


@pytest.mark.parametrize(("option", "first", "second"), [("--generation", "1", "2"), ("--prefix", "claw", "claw64")])
def test_a_user_of_two_catalogues_has_the_rights_of_both(option: str, first: str, second: str) -> None:
    """Strimzi takes away what a user's resource does not name: that of the next generation alone would end the rooms of this one."""
    one, two = (rights(option, each) for each in (first, second))
    both = rights(option, first, option, second)
    assert both == {user: one[user] | two[user] for user in one}
    assert one["claw-streams"] - two["claw-streams"]
    assert both.keys() == two.keys()


def test_topics_that_two_generations_share_are_printed_once() -> None:
    """Kubernetes takes the last of two resources of one name."""
    generations = [dataclasses.replace(shape("claw"), generation=each) for each in (1, 2)]
    answer = catalogue.strimzi(generations, users="claw-", kind="")
    assert isinstance(answer.value, list)
    names = [(each["kind"], each["metadata"]["name"]) for each in answer.value]
    assert len(names) == len(set(names))
    topics = {name for kind, name in names if kind == "KafkaTopic"}
    derived = [topic for topic in TOPICS if topic.derived]
    assert len(topics) == len(TOPICS) + len(derived)
