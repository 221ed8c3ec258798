"""`claw upgrade`: what another version said of itself against this one."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from claw_r1.agentflow import settings as agentflow
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.show.upgrade import ORDER, RELEASES, SETTINGS, check, compare, record, restart
from claw_r1.schemas.avro_files import schema_ids
from claw_r1.schemas.events import EVENT_TYPES
from claw_r1.schemas.topics import CALLS, TOPICS
from tests.architecture.tree import ROOMS, ROOT

NOW = record()


def changed(**parts: dict[str, Any]) -> dict[str, Any]:
    """This version's record with other entries in its parts; None: left out."""
    other = copy.deepcopy(NOW)
    for part, entries in parts.items():
        for name, value in entries.items():
            if value is None:
                del other[part][name]
            else:
                other[part][name] = value
    return other


def said(old: object) -> list[str]:
    return [f"{row['severity']}: {row['says']}" for row in compare(old, NOW)]


def test_the_same_version_has_nothing_to_do(tmp_path: Path) -> None:
    """Exit 0, no finding, and the order in which to restart, readers of calls before the gateway."""
    (tmp_path / "old.json").write_text(json.dumps(NOW))
    answer = check(tmp_path / "old.json")
    assert (answer.code, said(NOW)) == (0, [])
    assert ORDER.index("streams") < ORDER.index("trainer") < ORDER.index("gateway")


def test_each_schema_is_what_its_id_stands_for() -> None:
    """The digests are of the texts that are kept, and those are what ids.json says."""
    assert {each: tuple(entry) for each, entry in NOW["schemas"].items()}.items() <= {
        str(each): (entry["name"], entry["fingerprint"]) for each, entry in schema_ids().items()
    }.items()


def test_a_record_that_could_not_be_read_is_an_error(tmp_path: Path) -> None:
    """An id of the old version that is not here, or stands for another schema: exit 1."""
    gone = changed(schemas={"99999": ["claw.Gone", "00"]})
    assert said(gone) == ["error: schema 99999 (claw.Gone) is not here as it was: its records could not be read"]
    first = min(NOW["schemas"])
    assert said(changed(schemas={first: [NOW["schemas"][first][0], "00"]}))[0].startswith(f"error: schema {first}")
    (tmp_path / "old.json").write_text(json.dumps(gone))
    assert check(tmp_path / "old.json").code == 1


def test_an_event_that_cannot_be_read_any_more_is_an_error() -> None:
    """An example of each type was kept as it was written; its schema may be here under its id and yet lead nowhere."""
    assert NOW["golden"].keys() == EVENT_TYPES.keys()
    cut = NOW["golden"]["KeyRecorded"][:-40]
    (line,) = said(changed(golden={"KeyRecorded": cut}))
    assert line.startswith("error: a KeyRecorded as it was written then cannot be read: ")


@pytest.mark.parametrize("released", [*RELEASES.glob("*.json"), None])
def test_every_release_can_be_upgraded_from(released: Path | None) -> None:
    """Nothing that one of them wrote is unreadable, and no setting of its is gone; None: this tree, which is the next one."""
    if released is not None:
        assert check(Path(released.stem)).code == 0
    assert not [row for row in compare(NOW, NOW) if row["severity"] == "error"]


def test_new_rights_come_before_the_rooms_that_ask_for_them() -> None:
    """By this version's tool, in both ways: for Strimzi's users `--apply` is none. What 0.1.0 keeps of itself tells no rights."""
    (line,) = said(changed(grants={"gateway": ["read topic claw.keys"], "rollout": None}))
    assert line.startswith(
        "warning: access lists, where Kafka has some: more for gateway, rollout; before anything is restarted"
    )
    assert "claw topics acls --apply" in line
    assert "claw topics manifests --kind KafkaUser" in line
    released = check(Path("0.1.0"))
    assert isinstance(released.value, dict)
    assert [row for row in released.value["findings"] if "access lists" in row["says"]]
    fewer = {**NOW["grants"], "gateway": [*NOW["grants"]["gateway"], "read topic claw.gone"]}
    assert said({**NOW, "grants": fewer}) == [], "a right less ends no room"


def test_a_release_that_there_never_was_is_refused() -> None:
    with pytest.raises(CannotRun, match=r"0\.0\.1: cannot be read"):
        check(Path("0.0.1"))


def test_a_new_schema_says_who_comes_first() -> None:
    """Whoever reads its topic is restarted before whoever writes it: an old reader takes it for a dead letter."""
    newest = max(each for each, (name, _) in NOW["schemas"].items() if name == "claw.CallCaptured")
    (line,) = said(changed(schemas={newest: None}))
    assert line.startswith(f"warning: schema {newest} (CallCaptured) is new: first its readers (")
    readers, writers = line.split("then its writers")
    assert "streams" in readers
    assert all(writer in writers for writer in CALLS.writers)
    newest_then = max(int(each) for each in NOW["schemas"] if each != newest)
    assert f"CLAW_SCHEMAS_UNTIL={newest_then} " in writers


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_the_order_is_none_in_which_somebody_reads_what_it_does_not_know(name: str, tmp_path: Path) -> None:
    """For workers' reports the gateway is to be before rollout, for weights rollout before the trainer: the bare order had both the other
    way round, beneath the lines that said so. An event that is new altogether is written whatever the variable says."""
    schemas = NOW["schemas"]
    later = restart(schemas, schemas | {"999999": [f"claw.{name}", "00"]})
    assert later.startswith(
        f"restart with CLAW_SCHEMAS_UNTIL={max(schemas, key=int)} one after another: {', '.join(ORDER)}; "
    )
    assert "take it away" in later
    former = changed(schemas={each: None for each, (owner, _) in schemas.items() if owner == f"claw.{name}"})
    (tmp_path / "old.json").write_text(json.dumps(former))
    answer = check(tmp_path / "old.json")
    assert not isinstance(answer.text, str)
    *_, line = answer.text
    writers = sorted({who for topic in TOPICS if name in topic.records for who in topic.writers})
    assert line == f"restart one after another: {', '.join(ORDER)}; those who write {name} last ({', '.join(writers)})"


def test_folds_topics_and_settings_are_named() -> None:
    """A setting that went is an error, for it would be refused or passed over; another default is said."""
    assert "claw rebuild" in said({**NOW, "fold": NOW["fold"] - 1})[0]
    assert said(changed(topics={"keys": None})) == [
        "warning: topic keys is new: `claw topics create` before anything is restarted"
    ]
    assert said(changed(topics={"calls": {"cleanup.policy": "compact"}}))[0].startswith("warning: topic calls")
    assert said(changed(settings={"CLAW_GATEWAY_GONE": "1"})) == ["error: CLAW_GATEWAY_GONE is no setting any more"]
    assert (
        said(changed(settings={"CLAW_GATEWAY_PORT": "1"}))[0]
        == "warning: CLAW_GATEWAY_PORT: not set, it was 1 and is 8000"
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"package": "1", "fold": 1, "schemas": []}', json.dumps({**NOW, "grants": []})]
)
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "old.json").write_text(text)
    with pytest.raises(CannotRun, match=r"old\.json"):
        check(tmp_path / "old.json")


def test_every_settings_class_is_looked_at() -> None:
    """Each variable prefix of a room stands among them, but for the dashboard's, which nobody may import."""
    prefixes = {
        line.partition('env_prefix="')[2].partition('"')[0]
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for line in path.read_text().splitlines()
        if 'env_prefix="' in line
    }
    assert prefixes - {"CLAW_DASHBOARD_"} == {each.model_config.get("env_prefix") for each in SETTINGS}
    assert agentflow.RunPlan.model_config["env_prefix"] in prefixes
