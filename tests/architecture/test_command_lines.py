"""The rooms' command lines: every setting is a flag with its help, and `--help` loads nothing heavy."""

import json
import subprocess
import sys

import pytest

from claw_r1.eventlog.settings import LogSettings
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.runtime.command_line import CommandLine
from claw_r1.streams.settings import StreamsSettings

ROOMS = {
    ("claw_r1.gateway",): ("claw_r1.gateway.settings:GatewaySettings", "claw_r1.eventlog.settings:LogSettings"),
    ("claw_r1.streams",): ("claw_r1.streams.settings:StreamsSettings", "claw_r1.eventlog.settings:LogSettings"),
    ("claw_r1.rollout",): ("claw_r1.rollout.settings:RolloutSettings", "claw_r1.eventlog.settings:LogSettings"),
    ("claw_r1.trainer",): ("claw_r1.trainer.settings:TrainerSettings",),
    ("claw_r1.agentflow", "run"): (
        "claw_r1.agentflow.settings:RunPlan",
        "claw_r1.agentflow.settings:AgentFlowSettings",
    ),
    ("claw_r1.agentflow", "eval"): (
        "claw_r1.agentflow.settings:EvaluationPlan",
        "claw_r1.agentflow.settings:AgentFlowSettings",
    ),
    ("claw_r1.consumers.dashboard",): (
        "claw_r1.consumers.dashboard.settings:DashboardSettings",
        "claw_r1.eventlog.settings:LogSettings",
    ),
    ("claw_r1.consumers.rewards",): (
        "claw_r1.consumers.rewards.settings:RewardsSettings",
        "claw_r1.eventlog.settings:LogSettings",
    ),
    ("claw_r1.consumers.quality",): (
        "claw_r1.consumers.quality.settings:QualitySettings",
        "claw_r1.eventlog.settings:LogSettings",
    ),
}
HEAVY = {
    "torch",
    "vllm",
    "transformers",
    "deepspeed",
    "numpy",
    "fastapi",
    "uvicorn",
    "aiohttp",
    "faust",
    "confluent_kafka",
}
ASK = """
import json, runpy, sys
sys.argv = [sys.argv[1], *sys.argv[2:], '--help']
try: runpy.run_module(sys.argv[0], run_name='__main__')
except SystemExit: pass
print(json.dumps(sorted(sys.modules)))
"""


def fields(name: str) -> dict[str, str | None]:
    module, _, settings = name.partition(":")
    model = getattr(__import__(module, fromlist=[settings]), settings)
    return {field: info.description for field, info in model.model_fields.items()}


@pytest.mark.parametrize("room", ROOMS, ids=".".join)
def test_every_setting_is_a_flag_with_its_help_and_help_is_light(room: tuple[str, ...]) -> None:
    """`--help` names each field of the room's settings classes, has a docstring for it, and imports no engine or client."""
    done = subprocess.run([sys.executable, "-c", ASK, *room], capture_output=True, text=True, timeout=60, check=True)
    text, _, modules = done.stdout.rstrip().rpartition("\n")
    settings = {field: description for name in ROOMS[room] for field, description in fields(name).items()}
    nested = [name for name in settings if f"--{name}." in text]
    assert [name for name in settings if f"--{name.replace('_', '-')} " not in text.replace(",", " ")] in (
        [],
        [*nested],
    )
    assert [name for name, description in settings.items() if not description] == []
    assert HEAVY & set(json.loads(modules)) == set()


def test_settings_keep_the_names_that_people_have_written_down() -> None:
    """A variable or flag of an earlier version that came to be spelled otherwise would be passed over in silence."""
    gateway = CommandLine("gateway", "", GatewaySettings, LogSettings)
    flags = gateway.parse(["--bootstrap", "broker:1", "--connect-timeout-s", "3"])
    assert gateway.read(GatewaySettings, flags).connect_timeout_s == 3
    assert gateway.read(LogSettings, flags).bootstrap_servers == "broker:1"
    streams = CommandLine("streams", "", StreamsSettings)
    assert not streams.read(StreamsSettings, streams.parse(["--no-reactors"])).reactors_enabled
