"""What infra/compose says fits the Compose Specification, the images and the settings of the rooms."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from claw_r1.claw.home import PROJECT
from claw_r1.consumers.rewards.config import load
from tests.broker import container_settings
from tests.infra.dockerfile import HOST, TARGETS, stages
from tests.infra.schemas.find import schema
from tests.infra.settings_of import PORTS, named, wrong
from tests.infra.test_images import GIVEN

FOLDER = PROJECT / "infra" / "compose"
TEXT = re.sub(r"\$\{\w+(?::-([^}]*))?\}", r"\1", (FOLDER / "compose.yaml").read_text())
"""With the defaults of its variables."""
STACK: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
STAGES = stages()
OURS = {
    name: each["image"].removeprefix("claw-").partition(":")[0]
    for name, each in SERVICES.items()
    if each["image"].startswith("claw-")
}
"""Service -> target of its image."""


def test_it_is_of_the_specification() -> None:
    """The schema finds nothing wrong with it, and would find a word that is misspelt."""
    problems = jsonschema.Draft202012Validator(schema("compose"))
    assert [error.message for error in problems.iter_errors(STACK)] == []
    assert not problems.is_valid({"services": {"gateway": {"image": "x", "stop_grace_perod": "1s"}}})


def test_each_room_is_there() -> None:
    """One service for each room, its image a target; the profiles are cpu, gpu and ops, and capture needs none."""
    assert {*OURS.values()} == TARGETS
    assert {profile for each in SERVICES.values() for profile in each.get("profiles", ())} == {"cpu", "gpu", "ops"}
    assert {name for name, each in SERVICES.items() if "profiles" not in each} == {
        "kafka", "topics", "gateway", "streams", "rewards", "dashboard",
    }  # fmt: skip
    assert [each["image"] for each in SERVICES.values() if HOST.match(each["image"])] == []


@pytest.mark.parametrize("service", OURS)
def test_its_settings_are_the_rooms(service: str) -> None:
    """Every variable exists and every value counts; nothing that the room needs is missing but what a person gives."""
    room, variables = OURS[service], _variables(service)
    assert wrong(room, variables | _secrets(room)) == []
    assert variables["KAFKA_BOOTSTRAP_SERVERS"].partition(":")[0] in SERVICES
    published = {int(port.rpartition(":")[2]) for port in SERVICES[service].get("ports", ())}
    assert published <= STAGES[OURS[service]].ports


@pytest.mark.parametrize("service", OURS)
def test_its_paths_are_mounted(service: str) -> None:
    """The root is read-only: each path of a setting lies in a mount, what is written there in one that lasts, or in memory."""
    assert SERVICES[service]["read_only"]
    mounts = [volume.split(":") for volume in SERVICES[service].get("volumes", ())]
    places = {mount[1]: mount[2:] == ["ro"] for mount in mounts} | dict.fromkeys(SERVICES[service]["tmpfs"], False)
    variables = _variables(service)
    assert not places[variables["CLAW_HOME"]]
    settings = named(OURS[service], variables | _secrets(OURS[service]))
    for name, path in settings.items():
        if isinstance(path, Path):
            (read_only,) = {only for place, only in places.items() if path.is_relative_to(place)} or {None}
            assert read_only == (name.rpartition(".")[2] in ("model", "model_dir", "config")), (name, path)
    for source, _, *_rest in mounts:
        assert source in STACK["volumes"] or source in ("./model", "./boards") or (FOLDER / source).exists(), source


def test_each_has_time_to_end() -> None:
    """Docker's patience is longer than what the room says it may take to end."""
    allowed = {
        "gateway": ("GatewaySettings.shutdown_grace_s", "GatewaySettings.shutdown_linger_s"),
        "rewards": ("RewardsSettings.stop_grace_s",),
        "trainer": ("TrainerSettings.stop_timeout_s",),
        "rollout": ("RolloutSettings.drain_timeout_s", "RolloutSettings.stop_timeout_s"),
    }
    for service, target in OURS.items():
        if target in allowed:
            settings = named(target, _variables(service) | _secrets(target))
            needed_s = sum(float(str(settings[name])) for name in allowed[target])
            assert int(SERVICES[service]["stop_grace_period"].removesuffix("s")) >= needed_s + 5, service


def test_what_docker_starts_again_does_not_end_by_itself() -> None:
    """A trainer whose run is over stays: else it would begin again and again, and be told to Prometheus as restarts."""
    for service in ("trainer", "trainer-gpu"):
        assert SERVICES[service]["restart"] == "unless-stopped"
        assert named("trainer", _variables(service))["TrainerSettings.stay_when_over"] is True


def test_each_run_has_a_folder_of_its_own() -> None:
    """A trainer refuses the folder of another run, so that `CLAW_RUN=run-2` could never start in run-1's."""
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    for service in ("trainer", "trainer-gpu"):
        variables = services[service]["environment"]
        assert "${CLAW_RUN" in variables["CLAW_TRAINER_RUN_ID"]
        assert variables["CLAW_TRAINER_OUT_DIR"].endswith("/" + variables["CLAW_TRAINER_RUN_ID"])


def test_what_ends_is_started_again() -> None:
    """Rooms, Kafka and what watches them; what makes the topics ends when they are made."""
    assert {name for name, each in SERVICES.items() if each.get("restart") != "unless-stopped"} == {"topics"}


def test_a_worker_has_memory_for_two_versions() -> None:
    """Where Docker gives 64 MB, a copy of the weights would lie among temporary files."""
    assert all("shm_size" in SERVICES[name] for name, target in OURS.items() if target in ("rollout", "trainer"))


def test_kafka_is_that_of_the_tests() -> None:
    """Its variables are those with which the tests start the same image, and where its data lies."""
    assert SERVICES["kafka"]["environment"].keys() <= container_settings(0, 0).keys()
    assert SERVICES["kafka"]["volumes"] == [f"kafka:{SERVICES['kafka']['environment']['KAFKA_LOG_DIRS']}"]


def test_everything_is_watched() -> None:
    """Prometheus asks each room where it answers, under the job that the alerts name, with the label of what is only
    there by a profile; its files and Grafana's are there."""
    watched = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    jobs = {job["job_name"]: job["static_configs"][0]["targets"][0] for job in watched["scrape_configs"]}
    assert jobs == {f"claw-{room}": f"{room}:{port}" for room, port in PORTS.items()}
    by_profile = {
        job["job_name"] for job in watched["scrape_configs"] if "profile" in job["static_configs"][0].get("labels", {})
    }
    assert by_profile == {f"claw-{OURS[name]}" for name in OURS if "profiles" in SERVICES[name]}
    mounted = dict(volume.split(":")[:2] for volume in SERVICES["prometheus"]["volumes"])
    folder, file = watched["rule_files"][0].rsplit("/", 1)
    assert (FOLDER / {place: source for source, place in mounted.items()}[folder] / file).exists()
    for path in (FOLDER / "grafana").rglob("*.yaml"):
        assert yaml.safe_load(path.read_text())["apiVersion"] == 1


def test_its_scorers_can_run() -> None:
    """Beside the file lies what it names: rules of one's own, rubrics. So the folder is mounted."""
    mounted = [volume.rsplit(":", 2)[1] for volume in SERVICES["rewards"]["volumes"] if volume.endswith(":ro")]
    assert mounted == [str(Path(STAGES[OURS["rewards"]].env["CLAW_REWARDS_CONFIG"]).parent)]
    assert STAGES[OURS["rewards"]].env["PYTHONPATH"] == mounted[0]
    assert len(load(FOLDER / "rewards" / "rewards.yaml")) == 1


def _variables(service: str) -> dict[str, str]:
    given = SERVICES[service].get("environment", {})
    assert all(isinstance(value, str) for value in given.values()), json.dumps(given)
    return {**STAGES[OURS[service]].env, **{name: value for name, value in given.items() if value}}


def _secrets(room: str) -> dict[str, str]:
    return GIVEN["gateway"] if room == "gateway" else {}
