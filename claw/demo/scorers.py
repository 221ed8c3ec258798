"""Who judges the silent agents of `claw demo --reward`: what stands in its rewards.yaml, and which processes that takes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from claw.demo.settings import RewardFrom
from claw.home import claw_home
from claw.local.stack import Stack, answers
from eventlog.errors import LogError
from eventlog.kafka.log import KafkaLog
from eventlog.settings import LogSettings
from schemas.http import Channel
from schemas.runtime.component import Component
from schemas.topics import TRAJECTORIES

READY_TIMEOUT_S = 300.0
SLOTS = {RewardFrom.RULE: "rule/exact", RewardFrom.MODEL: "model/solved"}
"""The only slot of each."""


@dataclass(frozen=True, slots=True)
class DemoScorers:
    """Of one run. `port`: of the reward model, where there is one."""

    reward: RewardFrom
    stack: Stack
    port: int

    @property
    def spec(self) -> dict[str, object]:
        """Of the batches: an episode waits for its verdict."""
        return {"rewards_required": [SLOTS[self.reward]]} if self.reward in SLOTS else {}

    def make_model(self) -> Component | None:
        """Makes the reward model, where it is needed and not kept already."""
        if self.reward is not RewardFrom.MODEL:
            return None
        arguments = ("--out", str(claw_home() / "cache" / "models"))
        return self.stack.room(
            "reward-maker", "examples.verbs.reward_model", *arguments, may_finish=True, restarts_max=0
        )

    def server(self) -> Component | None:
        """Serves the reward model that was made."""
        if self.reward is not RewardFrom.MODEL:
            return None
        from examples.verbs.reward_model import ensure  # the example's, which only a demo needs

        model = ensure(claw_home() / "cache" / "models")
        flags = ("--model", str(model), "--port", str(self.port), "--log-file", str(self._log("vllm-reward")))
        ready = answers(f"http://127.0.0.1:{self.port}/health")
        server = self.stack.room("reward-model", "rollout.rewards", *flags, ready=ready)
        device = {"CLAW_REWARD_SERVER_DEVICE": self.stack.device} if self.stack.device != "auto" else {}
        return replace(server, env={**server.env, **device}, ready_timeout_s=READY_TIMEOUT_S)

    def scorer(self, log: LogSettings) -> Component:
        """Writes its file into the run's directory. Ready when nothing that comes from then on is missed."""
        path = self.stack.run_dir / "rewards.yaml"
        path.write_text(yaml.safe_dump({"scorers": {SLOTS[self.reward]: self.entry()}}))
        ready = _begun(log, SLOTS[self.reward])
        return self.stack.room("rewards", "consumers.rewards", "--config", str(path), ready=ready)

    def entry(self) -> dict[str, object]:
        """The slot's settings in rewards.yaml."""
        shared = {"version": 1, "scope": "trajectory", "since": "now", "channels": [str(Channel.TRAIN)]}
        if self.reward is RewardFrom.RULE:
            return {**shared, "use": "examples.verbs.scorers:returned", "timeout_s": 5}
        url = f"http://127.0.0.1:{self.port}"
        return {**shared, "use": "pooling", "url": url, "model": "reward", "scale": [-2, 2]}

    def _log(self, name: str) -> Path:
        return self.stack.run_dir / "logs" / f"{name}.log"


def _begun(log: LogSettings, slot: str) -> Callable[[], bool]:
    """A readiness probe: whether the slot's consumer group has its place in the log."""
    group = f"{log.prefix}.rewards.{slot.replace('/', '.')}"

    def probe() -> bool:
        try:
            offsets = KafkaLog(log).committed_offsets(group, (TRAJECTORIES,), list(range(log.partitions)))
        except LogError:
            return False
        return any(offset is not None for offset in offsets.values())

    return probe
