"""The settings of agents, and of their waiting. Environment: CLAW_AGENTFLOW_<FIELD>."""

import math
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.agentflow.errors import InvalidPlan
from claw_r1.schemas.evaluation import FRONT, OWN_TAGS
from claw_r1.schemas.http import ID_CHARACTERS_MAX, TAGS_MAX, TASK_GROUPS_MAX, Channel

FAILURES_FEWEST = 32
"""The fewest failures of one agent at a time that stop a run; so many in a row may still be
the luck of its tasks."""


def keep_writable(*files: Path | None) -> None:
    """Raises InvalidPlan for a file that can never be written, before anything is played for it."""
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise InvalidPlan(f"{file} cannot be written: there is no directory {file.parent}")
        if file is not None and file.is_dir():
            raise InvalidPlan(f"{file} cannot be written: it is a directory")


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="CLAW_AGENTFLOW_", frozen=True, use_attribute_docstrings=True)


class FlowSettings(_Settings):
    """The agent that plays, and the gateway that it uses."""

    FLAG_SECTIONS: ClassVar[dict[str, str]] = {"flow": "agent and gateway", "command": "any program as the agent"}

    flow: str | None = None
    """Agent as module:Class, a subclass of claw_r1.agentflow.flow.AgentFlow."""
    gateway: str
    """URL of the gateway."""
    model: str | None = None
    """Name of the model, where the gateway serves several."""
    tasks: Path | None = None
    """Tasks from a file (.jsonl, .ndjson, .parquet) or a directory of such files. Not set: those that the
    flow makes of seeds."""
    command: str | None = None
    """Agent as a command, instead of a flow. It gets OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL, its task as JSON by stdin, in
    the file CLAW_TASK_FILE, and where {task} or {task.field} stands in the command; its directory is empty and its own."""
    reward: str | None = None
    """The reward function of a command's episode: module:function or file.py:function. Not set: rewards come from
    elsewhere."""
    command_timeout_s: float = Field(default=240.0, gt=0)
    """Time limit of a command, below `deadline_s`. Its process group ends with it, and the episode is failed."""
    reward_timeout_s: float = Field(default=30.0, gt=0)
    """How long the reward function may take. An episode whose reward takes longer is failed."""
    command_env: tuple[str, ...] = ()
    """Name of a variable to pass to a command although it looks like a secret or is a setting of ours; others are
    withheld."""
    judge_failures: bool = False
    """Ask the reward function about commands that failed or ran out of time, too, instead of
    failing their episodes."""

    @model_validator(mode="after")
    def _one_agent(self) -> Self:
        if (self.flow is None) == (self.command is None):
            raise InvalidPlan("one agent plays: give --flow or --command")
        if self.reward is not None and self.command is None:
            raise InvalidPlan("--reward judges a --command; a flow assigns its rewards itself")
        return self

    def keep_deadline(self, deadline_s: float | None) -> None:
        """Raises InvalidPlan when a group may be closed before a slow command has its reward: its episode would be left out
        silently."""
        if self.command is None or deadline_s is None:
            return
        limits = {"--command-timeout-s": self.command_timeout_s}
        if self.reward is not None:
            limits["--reward-timeout-s"] = self.reward_timeout_s
        if deadline_s <= sum(limits.values()):
            together = " and ".join(f"{flag} {seconds:g}" for flag, seconds in limits.items())
            raise InvalidPlan(f"--deadline-s {deadline_s:g} must be above {together}{' together' * (len(limits) > 1)}")


class RunPlan(_Settings):
    """Groups of episodes to play for training."""

    FLAG_SECTIONS: ClassVar[dict[str, str]] = {"run_id": "what is played"}

    run_id: str | None = None
    """Training run that the calls belong to."""
    group_size: int = Field(default=8, ge=1)
    """Episodes per group: attempts at one task."""
    groups_max: int | None = None
    """Groups to play. Not set: until stopped."""
    concurrency: int = Field(default=64, ge=1)
    """Episodes at once. A group starts when all of its members can."""
    give_up_after: int | None = Field(default=None, ge=0)
    """Episodes in a row that fail for one reason, after which the run ends with it. Not set: twice `concurrency`, at least 32: more
    than one outage fails. 0: the run plays on."""
    seed: int = 0
    """Seed of the tasks."""
    channel: str = Channel.TRAIN
    """Channel of the groups. Those of val are never trained on."""
    tag: tuple[str, ...] = ()
    """Tag of the groups, those of evaluations included: `env:NAME` and `priority:NUMBER` mean
    something to a batch spec."""
    deadline_s: float | None = 300.0
    """A group that is older is closed with the members that are complete."""
    stats: Path | None = None
    """File for the counts as one JSON object, written regularly and at the end."""
    replied: Path | None = None
    """File to which the call id of every reply is appended, one per line, for `claw verify --replied`."""
    eval_every: int | None = Field(default=None, ge=1)
    """Versions of the run between two evaluations on the channel val, the first of version 0. Not set: none."""
    eval_tasks: Path | None = None
    """Tasks of the evaluations, in a file or directory as `tasks`; those that are also in
    `tasks` are not trained on."""
    eval_holdout: float | None = Field(default=None, gt=0, lt=1)
    """Share of the tasks that is held out of training, by their content, for the evaluations;
    instead of `eval_tasks`."""
    eval_count: int = Field(default=32, ge=1)
    """Tasks of an evaluation, the same each time; beside the training episodes, as many
    again of them run at once."""
    eval_samples: int = Field(default=4, ge=0)
    """Episodes of each of these tasks beside the greedy one, sampled as the flow samples, for pass@k. 0: none."""
    eval_solved: float = 1.0
    """Return from which an episode counts as a solution of its task."""
    curriculum_rate: float | None = Field(default=None, gt=0, le=1)
    """Relative draw rate of a task that all or none solve of late, like 0.1; 1 for the others. It needs `tasks`
    and a `run_id`. Not set: all alike."""
    curriculum_groups: int = Field(default=2, ge=1, le=TASK_GROUPS_MAX)
    """Latest groups of a task in all of which its members must agree for that."""
    curriculum_solved: float = 1.0
    """Return from which such a member has solved its task."""

    @property
    def failures_max(self) -> float:
        """`give_up_after`, as a number: all episodes in flight fail together in a long engine outage, and need not
        fail again."""
        if self.give_up_after is None:
            return max(2 * self.concurrency, FAILURES_FEWEST)
        return self.give_up_after or math.inf

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.group_size > self.concurrency:
            raise InvalidPlan(f"a group of {self.group_size} does not fit into {self.concurrency} episodes at once")
        keep_writable(self.stats, self.replied)
        if self.eval_every is not None and self.run_id is None:
            raise InvalidPlan("eval_every counts the versions of a run: it needs a run_id")
        if self.curriculum_rate is not None and self.run_id is None:
            raise InvalidPlan("--curriculum-rate goes by the groups of a run: it needs --run-id")
        if self.eval_tasks is not None and self.eval_holdout is not None:
            raise InvalidPlan(
                "evaluations have tasks of their own, or some of the training's: --eval-tasks or --eval-holdout"
            )
        if self.eval_every is None and (self.eval_tasks is not None or self.eval_holdout is not None):
            raise InvalidPlan("--eval-tasks and --eval-holdout are of the evaluations that --eval-every asks for")
        return self

    @model_validator(mode="after")
    def _tags_fit(self) -> Self:
        """The gateway refuses other tags, those of an evaluation only when the first is due."""
        most = TAGS_MAX - (OWN_TAGS if self.eval_every is not None else 0)
        if len(self.tag) > most:
            raise InvalidPlan(
                f"--tag: groups have at most {most} tags beside those of evaluations, not {len(self.tag)}"
            )
        for tag in self.tag:
            if not (0 < len(tag) <= ID_CHARACTERS_MAX and tag.isprintable()) or tag.startswith(FRONT):
                raise InvalidPlan(
                    f"--tag {tag[:80]!r}: a tag has 1 to {ID_CHARACTERS_MAX} printable characters and does not begin with {FRONT}"
                )
        return self


class EvaluationPlan(_Settings):
    """Tasks to play once each. They depend on the seed alone, and differ from those of a run with the same seed."""

    FLAG_SECTIONS: ClassVar[dict[str, str]] = {"run_id": "what is played"}

    run_id: str | None = None
    """Training run that the calls belong to."""
    episodes: int | None = Field(default=None, ge=1)
    """Tasks to play. Not set: all of `tasks`, or 64 that the flow makes."""
    pass_at: str | None = None
    """Numbers k separated by commas, like 1,4,8: besides, how likely one of k samples solves a
    task (pass@k, unbiased)."""
    samples: int | None = Field(default=None, ge=1)
    """Sampled episodes per task for pass@k. Not set: the largest k."""
    solved: float = 1.0
    """Return from which an episode counts as a solution of its task."""
    concurrency: int = Field(default=32, ge=1)
    """Episodes at once."""
    seed: int = 0
    """Seed of the tasks."""
    deadline_s: float | None = 3600.0
    """A group that is older is closed with the members that are complete. All groups are opened at the start."""

    @model_validator(mode="after")
    def _samples_suffice(self) -> Self:
        words = () if self.pass_at is None else self.pass_at.split(",")
        if not all(word.strip().isdecimal() and int(word) for word in words):
            raise InvalidPlan(f"--pass-at takes numbers from 1 on, separated by commas, not {self.pass_at!r}")
        if self.samples_each < max(self.pass_at_numbers, default=0):
            raise InvalidPlan(f"pass@{max(self.pass_at_numbers)} needs as many samples, not {self.samples_each}")
        return self

    @property
    def pass_at_numbers(self) -> tuple[int, ...]:
        """Each k of pass@k."""
        return tuple(int(word) for word in self.pass_at.split(",")) if self.pass_at is not None else ()

    @property
    def samples_each(self) -> int:
        """Sampled episodes per task; 0: none."""
        return self.samples or max(self.pass_at_numbers, default=0)


class AgentFlowSettings(_Settings):
    """The waiting of agents, and its reasons."""

    FLAG_SECTIONS: ClassVar[dict[str, str]] = {"api_key": "waiting"}

    api_key: SecretStr | None = None
    """Key of the gateway, where it asks for one; a command gets it as OPENAI_API_KEY."""
    request_timeout_s: float = Field(default=120.0, gt=0)
    """How long one attempt of a request may take, sampling included."""
    retry_budget_s: float = Field(default=60.0, ge=0)
    """How long a request is repeated, counted from its first failure. Keep it above a restart of the gateway."""
    retry_pause_s: float = Field(default=0.1, gt=0)
    """Pause after the first failure. It doubles up to `retry_pause_max_s`; a Retry-After of the gateway wins."""
    retry_pause_max_s: float = Field(default=2.0, gt=0)
    """Longest pause, a Retry-After included."""
    drain_timeout_s: float = Field(default=5.0, ge=0)
    """How long running episodes may go on after a stop."""
    farewell_timeout_s: float = Field(default=1.0, gt=0)
    """How long a cancelled episode may take to report itself as failed."""
    stats_interval_s: float = Field(default=1.0, gt=0)
    """Time between two writes of the statistics file."""
    progress_interval_s: float = Field(default=5.0, gt=0)
    """Time between two lines of progress on stderr."""
    episode_seconds_max: float | None = Field(default=None, gt=0)
    """Time limit of an episode. One that is beyond a limit ends as failed. Not set: none."""
    episode_tokens_max: int | None = Field(default=None, ge=1)
    """Tokens that an episode may sample, in all of its calls. Not set: any number."""
    episode_calls_max: int | None = Field(default=None, ge=1)
    """Model calls that an episode may make. Not set: any number."""
