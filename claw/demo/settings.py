"""The settings of `claw demo`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.options import DeviceOption, Prefix, ServesDashboard, TlsFolder

STALENESS, STALENESS_MAX = "spec.staleness_max", 1
ONLINE_STALENESS_MAX = 4
"""Nobody holds people back until the trainer has room, and a conversation is data only when it has been
silent for a while."""
NAMES_OF_A_RUN = ("--model-dir=model", "--model-id=model", "--run-id=run", "--out-dir=out")
"""The names of a run, whatever they are: so much a trainer must be given before it can say what it thinks of the
rest."""


class RewardFrom(StrEnum):
    """The judge of a demo's episodes."""

    AGENT = "agent"
    RULE = "rule"
    MODEL = "model"
    JUDGE = "judge"

    @property
    def is_exact(self) -> bool:
        """The environment's own payment is trained; else the demo's targets are not its own."""
        return self in (RewardFrom.AGENT, RewardFrom.RULE)


class Protocol(StrEnum):
    """The protocol of a demo's agents."""

    CHAT = "chat"
    MESSAGES = "messages"
    RESPONSES = "responses"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """The settings of a demo that a person may change. Raises CannotRun for bounds that contradict each other."""

    seed: Annotated[int, typer.Option(help="Seed of the tiny model, the tasks and the training.")] = 0
    learning_rate: Annotated[
        float, typer.Option(min=0.0, help="Learning rate; 0 is the control run, which learns nothing.")
    ] = 5e-4
    batches_max: Annotated[int, typer.Option(min=1, help="Stop after this many batches.")] = 60
    batches_min: Annotated[int, typer.Option(min=1, help="Do not stop before this many batches.")] = 25
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of the trainer, as claw train takes it. Repeatable."),
    ] = None
    online: Annotated[
        bool, typer.Option("--online", help="Agents with a base URL and a key: no groups, no registration, no ends.")
    ] = False
    reward: Annotated[
        RewardFrom, typer.Option(help="Source of rewards: the agent, or a reader of the log for silent agents.")
    ] = RewardFrom.AGENT
    protocol: Annotated[
        Protocol, typer.Option(help="Protocol of the agents: OpenAI's chat or responses, or Anthropic's messages.")
    ] = Protocol.CHAT
    workers: Annotated[int, typer.Option(min=1, help="Rollout workers.")] = 1
    dashboard: ServesDashboard = False
    prefix: Prefix = "claw"
    tls_dir: TlsFolder = None
    device: DeviceOption = "auto"

    def __post_init__(self) -> None:
        if self.online and self.reward is not RewardFrom.AGENT:
            raise CannotRun(f"--online has people who judge; --reward {self.reward} is for silent agents")
        if self.protocol is not Protocol.CHAT and (self.online or self.reward is not RewardFrom.AGENT):
            raise CannotRun(
                f"--protocol {self.protocol} is for agents that judge themselves: leave --online, --reward out"
            )
        if self.batches_min > self.batches_max:
            raise CannotRun(f"--batches-min {self.batches_min} is above --batches-max {self.batches_max}")
        if self.set:
            self._check_trainer()

    def _check_trainer(self) -> None:
        """Refuses at once what the trainer would refuse in half a minute."""
        from claw_r1.trainer.errors import SettingsInvalid  # a second of imports that other commands need not wait for
        from claw_r1.trainer.settings import load

        try:
            load([*NAMES_OF_A_RUN, *self.trainer_arguments])
        except SettingsInvalid as error:
            raise CannotRun(str(error)) from error

    @property
    def trainer_arguments(self) -> list[str]:
        """The arguments of the trainer beside the demo's own settings."""
        return [word for assignment in self.set or () for word in ("--set", assignment)]

    @property
    def staleness_max(self) -> int:
        """The staleness that `set` names, else the demo's own."""
        chosen = [value for name, _, value in (word.partition("=") for word in self.set or ()) if name == STALENESS]
        if chosen:
            return int(chosen[-1])
        return ONLINE_STALENESS_MAX if self.online else STALENESS_MAX

    @property
    def control(self) -> bool:
        """This run must not learn."""
        return self.learning_rate == 0
