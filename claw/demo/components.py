"""The processes of a demo as components of its stack: which settings and arguments each is
started with. Starts nothing."""

from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from claw_r1.claw.demo.scorers import DemoScorers
from claw_r1.claw.demo.settings import DemoSettings, Protocol, RewardFrom
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.stack import Stack
from claw_r1.claw.tls.tls_dir import door_url
from claw_r1.claw.workers.places import WorkerPlace, worker_places
from claw_r1.runtime.processes.component import Component
from claw_r1.schemas.http import Channel

MODEL_ID = "verbs-tiny"
FLOWS = {
    Protocol.CHAT: "claw_r1.claw.demo.verbs.flow:VerbsFlow",
    Protocol.MESSAGES: "claw_r1.claw.demo.verbs.flow:MessagesVerbsFlow",
    Protocol.RESPONSES: "claw_r1.claw.demo.verbs.flow:ResponsesVerbsFlow",
}
SILENT_FLOW = "claw_r1.claw.demo.verbs.flow:SilentVerbsFlow"
GROUP_SIZE = 8
GROUPS_PER_BATCH = 8
CONCURRENCY = 64
GREEDY_EPISODES = 64
STOP_REWARD = 0.95
SESSION_IDLE_S = 1.0
"""Silence after which a conversation of `--online` is complete: its calls come within
milliseconds of each other."""
LINGER_S = (
    360.0  # at most the trainer keeps offering the last weights: a worker that dies at the end starts its engine again
)


@dataclass(frozen=True, slots=True)
class DemoComponents:
    """The components of one run, whose id is the name of the stack's directory. `port`: the gateway's."""

    settings: DemoSettings
    stack: Stack
    port: int
    key: str = ""
    """The key of the agents of `--online`."""
    scorer_port: int = 0
    """The port of the reward model."""

    @property
    def run_id(self) -> str:
        return self.stack.run_dir.name

    @property
    def scorers(self) -> DemoScorers:
        """The scorers, where the agents do not judge."""
        return DemoScorers(self.settings.reward, self.stack, self.scorer_port, door_url(self.port))

    @property
    def models(self) -> Path:
        """The folder where tiny models are kept for the next run."""
        return claw_home() / "cache" / "models"

    def gateway(self) -> Component:
        return self.stack.gateway(self.port)

    def model(self) -> Component:
        """Makes the tiny model, where it is not kept already."""
        arguments = ("--out", str(self.models), "--seed", str(self.settings.seed))
        return self._job("model", "claw_r1.claw.demo.verbs.tiny_model", *arguments)

    @property
    def places(self) -> list[WorkerPlace]:
        """The places of its workers."""
        return worker_places(self.settings.workers, None, 1)

    def rollout(self, place: WorkerPlace, model: Path) -> Component:
        # Nobody waits for the replies of a demo that is stopped.
        return self.stack.rollout(place, model, MODEL_ID, "--run-id", self.run_id, "--drain-timeout-s", "1")

    def trainer(self, model: Path) -> Component:
        """Writes the trainer's settings into the run's directory."""
        path = self.stack.run_dir / "trainer.yaml"
        path.write_text(yaml.safe_dump(self.trainer_settings(model)))
        return self.stack.trainer(path, *self.settings.trainer_arguments)

    def trainer_settings(self, model: Path) -> dict[str, object]:
        """Returns the settings that `claw_r1.trainer.settings` reads."""
        return {
            "model_dir": str(model),
            "model_id": MODEL_ID,
            "run_id": self.run_id,
            "out_dir": str(self.stack.run_dir / "trainer"),
            "learning_rate": self.settings.learning_rate,
            "batches_max": self.settings.batches_max,
            "batches_min": self.settings.batches_min,
            "stop_reward": STOP_REWARD,
            "linger_s": LINGER_S,
            "seed": self.settings.seed,
            "spec": self.spec(),
        }

    def spec(self) -> dict[str, object]:
        """Returns a spec with equally many episodes in each batch: groups that compare with each other, or
        conversations that stand for themselves."""
        if self.settings.online:
            return {"preset": "reinforce_pp", "order": "newest", "staleness_max": self.settings.staleness_max}
        sizes = {"groups_per_batch": GROUPS_PER_BATCH, "group_size": GROUP_SIZE}
        return {**sizes, "staleness_max": self.settings.staleness_max, **self.scorers.spec}

    def evaluation(self, when: str) -> Component:
        """Greedy episodes through the gateway on the val channel, `before` or `after` training; their agents say what they earned."""
        out = ("--episodes", str(GREEDY_EPISODES), "--out", str(self.evaluation_file(when)))
        return self._job(f"greedy-{when}", "claw_r1.agentflow", "eval", *out, *self._agent_arguments(self.flow))

    def agents(self) -> Component:
        """Groups of episodes on the train channel, or people with conversations, until they are stopped."""
        if self.settings.online:
            return self._people()
        files = ("--stats", str(self.agents_file()), "--replied", str(self.stack.run_dir / "replied.txt"))
        groups = ("--group-size", str(GROUP_SIZE), "--channel", Channel.TRAIN)
        flow = self.flow if self.settings.reward is RewardFrom.AGENT else SILENT_FLOW
        return self.stack.room("agents", "claw_r1.agentflow", "run", *self._agent_arguments(flow), *files, *groups)

    @property
    def flow(self) -> str:
        """The flow of agents that report what they earned."""
        return FLOWS[self.settings.protocol]

    def _people(self) -> Component:
        """Starts people, who get the address and the key of an agent in production."""
        flags = ("--people", str(CONCURRENCY), "--seed", str(self.settings.seed), "--stats", str(self.agents_file()))
        people = self.stack.room("agents", "claw_r1.claw.demo.verbs.people", *flags)
        openai = {"BASE_URL": f"{door_url(self.port)}/v1", "API_KEY": self.key, "MODEL": MODEL_ID}
        return replace(people, env={**people.env, **{f"OPENAI_{name}": value for name, value in openai.items()}})

    def evaluation_file(self, when: str) -> Path:
        """Mean reward and transcripts of the greedy episodes."""
        return self.stack.run_dir / f"greedy_{when}.json"

    def agents_file(self) -> Path:
        """Returns the file of the agents' counts."""
        return self.stack.run_dir / "agents.json"

    def _job(self, name: str, module: str, *arguments: str) -> Component:
        """A process that ends by itself, and is not started again when it fails."""
        return self.stack.room(name, module, *arguments, may_finish=True, restarts_max=0)

    def _agent_arguments(self, flow: str) -> tuple[str, ...]:
        return (
            *("--flow", flow, "--gateway", door_url(self.port)),
            *("--run-id", self.run_id, "--model", MODEL_ID),
            *("--concurrency", str(CONCURRENCY), "--seed", str(self.settings.seed)),
        )
