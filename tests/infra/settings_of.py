"""Whether the variables that a file of infra/ gives a room are the room's own: each exists, each value counts, none is missing."""

import contextlib
import os
from collections.abc import Iterator, Mapping

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsError

from claw_r1.agentflow.settings import FlowSettings, RunPlan
from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.eventlog.settings import LogSettings
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.streams.settings import StreamsSettings
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.weights.sources import SECRET_VARIABLE

ROOMS: Mapping[str, tuple[type[BaseSettings], ...]] = {
    "gateway": (GatewaySettings, LogSettings),
    "streams": (StreamsSettings, LogSettings),
    "rewards": (RewardsSettings, LogSettings),
    "dashboard": (DashboardSettings, LogSettings),
    "trainer": (TrainerSettings, LogSettings),
    "rollout": (RolloutSettings, LogSettings),
    "tools": (LogSettings,),
    "agents": (FlowSettings, RunPlan, LogSettings),
}
"""Room -> the settings that it reads."""
PORTS = {"gateway": 9100, "streams": 9101, "trainer": 9102, "rollout": 9103, "rewards": 9104, "dashboard": 9105}
"""Room -> its port for metrics and probes, as in docs/runbook.md."""
NOT_OURS = {
    "KAFKA_BOOTSTRAP_SERVERS", "CLAW_HOME", SECRET_VARIABLE, "PATH", "HOME", "USER", "LOGNAME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH",
    "SQLITE_TMPDIR", "LD_LIBRARY_PATH", "CLAW_SCHEMAS_UNTIL", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "POD_NAME", "POD_IP",
    "CLAW_WEIGHTS_TLS_CA_FILE", "CLAW_WEIGHTS_TLS_CERTIFICATE_FILE", "CLAW_WEIGHTS_TLS_KEY_FILE",
}  # fmt: skip
"""Variables that no settings class has, which programs of a room read."""


def wrong(room: str, variables: Mapping[str, str], **given: object) -> list[str]:
    """What the room would not take: names that it does not know, values, and what it needs and is not there.

    given: what a file or flags say.
    """
    known = {
        f"{each.model_config.get('env_prefix')}{name}".upper() for each in ROOMS[room] for name in each.model_fields
    }
    stems = {name.partition("__")[0] for name in variables} - known - NOT_OURS
    said = [f"{name}: no such setting of {room}" for name in sorted(stems)]
    with _only(variables):
        for each in ROOMS[room]:
            try:
                each(**{name: value for name, value in given.items() if name in each.model_fields})
            except (ValidationError, SettingsError) as error:
                said.append(f"{each.__name__}: {error}")
    return said


def named(room: str, variables: Mapping[str, str], **given: object) -> dict[str, object]:
    """The settings that come of these variables, each under `Class.field`."""
    with _only(variables):
        made = [
            each(**{name: value for name, value in given.items() if name in each.model_fields}) for each in ROOMS[room]
        ]
    return {f"{type(each).__name__}.{name}": getattr(each, name) for each in made for name in type(each).model_fields}


@contextlib.contextmanager
def _only(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    doors = ("_TLS_CERTIFICATE_FILE", "_TLS_KEY_FILE")  # read at once, and they are in the pod alone
    os.environ.clear()
    os.environ.update({name: value for name, value in variables.items() if not name.endswith(doors)})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
