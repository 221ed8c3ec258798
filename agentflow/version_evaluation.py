"""Evaluation beside a training run: every K versions the same tasks, greedily and sampled, on the channel `val`.

Invariant: an evaluation is named by the version that had answered when it began; whether that version sampled every token
of an episode is for the reader of the pool to see. One evaluation is played at a time.
"""

import asyncio
from collections.abc import Callable

import structlog

from claw_r1.agentflow.bodies import GroupSpec, TrajectoryId
from claw_r1.agentflow.client import GatewayClient, open_when_admitted
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import AgentFlow, play
from claw_r1.agentflow.seeds import derived_seed
from claw_r1.agentflow.settings import RunPlan
from claw_r1.agentflow.tasks import FlowTasks, Tasks
from claw_r1.schemas.evaluation import EpisodeKind, EvaluatedTask
from claw_r1.schemas.http import Channel

log = structlog.get_logger()

GREEDY = {"temperature": 0.0}


class VersionEvaluation:
    """`saw` is told of every label that a reply carries, `run` plays what is due until it is cancelled."""

    def __init__(
        self,
        flow: AgentFlow,
        client: GatewayClient,
        plan: RunPlan,
        on_end: Callable[[Episode], None] = lambda _: None,
        tasks: Tasks | None = None,
        *,
        held_out: bool = False,
    ) -> None:
        """client: it should carry the channel `val`. `on_end` gets each episode that is over, however it ended. held_out: whether
        the tasks are none of those that are trained on."""
        self._flow = flow
        self._tasks = tasks or FlowTasks(flow)
        self._count = min(plan.eval_count, self._tasks.count or plan.eval_count)
        self._held_out = held_out
        self._client = client
        self._plan = plan
        self._every = plan.eval_every or 1
        self._on_end = on_end
        self._slots = asyncio.Semaphore(plan.concurrency)
        self._version_due = 0
        self._due: asyncio.Queue[int] = asyncio.Queue()

    def saw(self, label: str) -> None:
        """A reply was sampled by `run/version` or `run/first..last`. The first version from each multiple of K on is due."""
        run_id, _, versions = label.rpartition("/")
        newest = versions.rpartition("..")[2]
        if run_id != self._plan.run_id or not newest.isdecimal():
            return
        version = int(newest)
        if version >= self._version_due:
            self._version_due = (version // self._every + 1) * self._every
            self._due.put_nowait(version)

    async def run(self) -> None:
        """Raises GatewayUnavailable, RequestRefused, MalformedReply."""
        while True:
            version = await self._due.get()
            while not self._due.empty():
                log.warning(
                    "evaluation_skipped", version=version, reason="a newer version was due before it could begin"
                )
                version = self._due.get_nowait()
            await self._evaluate(version)

    async def _evaluate(self, version: int) -> None:
        log.info(
            "evaluation_began",
            version=version,
            tasks=self._count,
            samples=self._plan.eval_samples,
            held_out=self._held_out,
        )
        kinds: tuple[EpisodeKind, ...] = ("greedy", "sample") if self._plan.eval_samples else ("greedy",)
        parts = [self._part(version, kind, task) for kind in kinds for task in range(self._count)]
        opened = await asyncio.gather(*(self._open(part) for part in parts))
        await asyncio.gather(*(self._play(*each, member) for each in opened for member in range(each[0].size)))

    def _part(self, version: int, kind: EpisodeKind, task: int) -> EvaluatedTask:
        plan = self._plan
        return EvaluatedTask(
            version=version,
            kind=kind,
            task=task,
            tasks=self._count,
            samples=plan.eval_samples,
            every=self._every,
            solved=plan.eval_solved,
            held_out=self._held_out,
        )

    async def _open(self, part: EvaluatedTask) -> tuple[EvaluatedTask, GroupSpec]:
        """All groups stand before the first episode begins, so that the trainer sees how much there is to come."""
        plan = self._plan
        spec = GroupSpec(
            size=part.size,
            channel=Channel.VALIDATION,
            run_id=plan.run_id,
            task=self._tasks.at(part.task, Channel.VALIDATION, plan.seed),
            deadline_s=plan.deadline_s,
            admission=False,
            tags=(*part.tags(), *plan.tag),
        )
        async with self._slots:
            await open_when_admitted(self._client, spec, on_refusal=lambda _: None)
        return part, spec

    async def _play(self, part: EvaluatedTask, spec: GroupSpec, member: int) -> None:
        async with self._slots:
            episode = Episode(
                self._client,
                TrajectoryId.new(spec.group_id),
                task=spec.task or {},
                seed=derived_seed(self._seed(part), member),
                sampling=GREEDY if part.kind == "greedy" else None,
            )
            try:
                await play(self._flow, episode, self._client.settings)
            finally:
                self._on_end(episode)

    def _seed(self, part: EvaluatedTask) -> int:
        """Returns the seed of the task: those that `claw agents eval` plays with the same seed."""
        return derived_seed(Channel.VALIDATION, self._plan.seed, part.task)
