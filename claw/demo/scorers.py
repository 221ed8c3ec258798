"""The scorers of the silent agents of `claw demo --reward`: what stands in its rewards.yaml, and which processes that
takes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from claw_r1.claw.demo.settings import RewardFrom
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.stack import Stack, answers
from claw_r1.claw.workers.places import WorkerPlace
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.component import Component
from claw_r1.schemas.http import Channel
from claw_r1.schemas.topics import CALLS, TRAJECTORIES

READY_TIMEOUT_S = 300.0
SLOTS = {RewardFrom.RULE: "rule/exact", RewardFrom.MODEL: "model/solved", RewardFrom.JUDGE: "judge/verbs"}
"""The only slot of each."""
MAKERS = {RewardFrom.MODEL: "claw_r1.claw.demo.verbs.reward_model", RewardFrom.JUDGE: "claw_r1.claw.demo.verbs.judge"}
JUDGE_WEIGHT = 0.4
"""The weight of each call that is right: an episode has two or three, so that a solved one returns about 1."""
JUDGE_TIMEOUT_S = 120.0
"""The timeout of one verdict: the judge's engine may still be starting."""


@dataclass(frozen=True, slots=True)
class DemoScorers:
    """The scorers of one run. `port`: of the reward model, where there is one; `gateway`: through which a judge is
    asked."""

    reward: RewardFrom
    stack: Stack
    port: int
    gateway: str = ""

    @property
    def spec(self) -> dict[str, object]:
        """Returns the spec of the batches: an episode waits for its verdict."""
        if (slot := SLOTS.get(self.reward)) is None:
            return {}
        weights = {"reward_weights": {slot: JUDGE_WEIGHT}} if self.reward is RewardFrom.JUDGE else {}
        return {"rewards_required": [slot], **weights}

    def make_model(self) -> Component | None:
        """Makes the model that judges, where there is one and it is not kept already."""
        if (maker := MAKERS.get(self.reward)) is None:
            return None
        arguments = ("--out", str(self._models))
        return self.stack.room("reward-maker", maker, *arguments, may_finish=True, restarts_max=0)

    def server(self) -> Component | None:
        """Serves the model that was made: a reward model to whoever asks, a judge as a worker of the gateway's."""
        # The example's, which only a demo needs.
        if self.reward is RewardFrom.JUDGE:
            from claw_r1.claw.demo.verbs.judge import MODEL, make_judge

            small = ("--kv-cache-bytes", "64M", "--drain-timeout-s", "1")
            return self.stack.rollout(WorkerPlace("rollout-judge"), make_judge(self._models), MODEL, *small)
        if self.reward is not RewardFrom.MODEL:
            return None
        from claw_r1.claw.demo.verbs.reward_model import ensure

        log = self.stack.run_dir / "logs" / "vllm-reward.log"
        flags = ("--model", str(ensure(self._models)), "--port", str(self.port), "--log-file", str(log))
        ready = answers(f"http://127.0.0.1:{self.port}/health")
        server = self.stack.room("reward-model", "claw_r1.rollout.rewards", *flags, ready=ready)
        device = {"CLAW_REWARD_SERVER_DEVICE": self.stack.device} if self.stack.device != "auto" else {}
        return replace(server, env={**server.env, **device}, ready_timeout_s=READY_TIMEOUT_S)

    def scorer(self, log: LogSettings) -> Component:
        """Writes its file into the run's directory. Ready when nothing that comes from then on is missed."""
        path = self.stack.run_dir / "rewards.yaml"
        path.write_text(yaml.safe_dump({"scorers": {SLOTS[self.reward]: self.entry()}}))
        ready = _readiness_probe(log, SLOTS[self.reward])
        return self.stack.room("rewards", "claw_r1.consumers.rewards", "--config", str(path), ready=ready)

    def entry(self) -> dict[str, object]:
        """The slot's settings in rewards.yaml."""
        live = {"since": "now", "channels": [str(Channel.TRAIN)]}
        if self.reward is RewardFrom.JUDGE:
            from claw_r1.claw.demo.verbs.judge import SLOT, scorers

            judge: dict[str, object] = scorers(self.gateway, timeout_s=JUDGE_TIMEOUT_S, **live)["scorers"][SLOT]
            return judge
        shared = {"version": 1, "scope": "trajectory", **live}
        if self.reward is RewardFrom.RULE:
            return {**shared, "use": "claw_r1.claw.demo.verbs.scorers:returned", "timeout_s": 5}
        url = f"http://127.0.0.1:{self.port}"
        return {**shared, "use": "pooling", "url": url, "model": "reward", "scale": [-2, 2]}

    @property
    def _models(self) -> Path:
        """The folder where tiny models are kept for the next run."""
        return claw_home() / "cache" / "models"


def _readiness_probe(log: LogSettings, slot: str) -> Callable[[], bool]:
    """Probes whether the slot's consumer group has its place in the log."""
    group = f"{log.prefix}.rewards.{slot.replace('/', '.')}"

    def probe() -> bool:
        try:
            offsets = KafkaLog(log).committed_offsets(group, (TRAJECTORIES, CALLS), list(range(log.partitions)))
        except LogError:
            return False
        return any(offset is not None for offset in offsets.values())

    return probe
