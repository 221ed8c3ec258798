"""Plays groups of episodes until told to stop.

Invariant: at most `concurrency` episodes run at once, and all members of a group have the same task. How far ahead of
the trainer the groups may run is the gateway's decision: the runner asks before each group and waits when told to.
Groups of a run are opened in the order of its tasks; a runner begins behind the last ordinal that the gateway knows of,
and leaves out those that another runner of the same order has opened meanwhile.
"""

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from claw_r1.agentflow.bodies import GroupSpec, JsonObject, TrajectoryId
from claw_r1.agentflow.client import GatewayClient, open_when_admitted
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.errors import EpisodesFailing, RequestRefused
from claw_r1.agentflow.flow import AgentFlow, play
from claw_r1.agentflow.seeds import derived_seed
from claw_r1.agentflow.settings import RunPlan
from claw_r1.agentflow.stats import Stats, Summary, write_summary
from claw_r1.agentflow.tasks import Curriculum, FlowTasks, Tasks, order_of_run
from claw_r1.agentflow.version_evaluation import VersionEvaluation
from claw_r1.schemas.http import ORDINAL_TAKEN, ordered_group_id

log = structlog.get_logger()
LEARNINGS_PER_EPOCH = 20
"""How often a curriculum asks how tasks went, while as many groups are opened as there are tasks."""


class Runner:
    """One run of one flow; `run` once, `stop` from anywhere in the same event loop."""

    def __init__(
        self,
        flow: AgentFlow,
        client: GatewayClient,
        plan: RunPlan,
        on_progress: Callable[[Summary], None] = lambda _: None,
        *,
        evaluation_client: GatewayClient | None = None,
        tasks: Tasks | None = None,
        held_out: Tasks | None = None,
    ) -> None:
        """`on_progress` gets the counts whenever the statistics file is written.

        `evaluation_client` carries the channel `val`; it is needed where the plan evaluates. `held_out`: the tasks of the
        evaluations, none of which is among `tasks`; None: they are of those. Raises InvalidPlan where tasks without an end have
        a curriculum.
        """
        self._flow = flow
        self._client = client
        self._plan = plan
        self._tasks = tasks or FlowTasks(flow)
        self._curriculum: Curriculum | None = None
        if plan.curriculum_rate is not None:
            self._curriculum = Curriculum(
                self._tasks, plan.curriculum_rate, plan.curriculum_groups, plan.curriculum_solved
            )
        self._order: str | None = None
        if plan.run_id is not None:
            self._order = order_of_run(self._tasks, plan.run_id, plan.channel, plan.seed)
        self._stats = Stats(run_id=plan.run_id, channel=plan.channel)
        self._stopping = asyncio.Event()
        self._slots = asyncio.Semaphore(plan.concurrency)
        self._on_progress = on_progress
        self._playing: set[asyncio.Task[None]] = set()
        self._unfinished: Counter[str] = Counter()  # episodes of each open group
        self._bug: BaseException | None = None
        self._evaluation: VersionEvaluation | None = None
        if plan.eval_every is not None and evaluation_client is not None:
            evaluated = self._tasks if held_out is None else held_out
            self._evaluation = VersionEvaluation(
                flow, evaluation_client, plan, self._count_calls, evaluated, held_out=held_out is not None
            )

    def stop(self) -> None:
        """Open no more groups; running episodes get `drain_timeout_s` to end, then fail."""
        self._stopping.set()

    async def run(self) -> Summary:
        """Play until the plan is fulfilled or `stop`. Raises GatewayUnavailable, RequestRefused, MalformedReply, EpisodesFailing."""
        writing = asyncio.create_task(self._write_stats_regularly())
        opening = asyncio.create_task(self._open_groups())
        evaluating = asyncio.create_task(self._evaluate())
        evaluating.add_done_callback(self._end_with)
        try:
            await self._until_stopped(opening)
            await _cancelled(opening)
            await self._drain()
        finally:
            await _cancelled(opening, evaluating, writing, *self._playing)
            self._stats.state = "ended"
            self._write_stats()
        if self._bug is not None:
            raise self._bug
        return self._stats.summary(len(self._playing))

    async def _open_groups(self) -> None:
        ordinal = 0 if self._order is None else await self._client.next_ordinal(self._order)
        while self._plan.groups_max is None or self._stats.groups_opened < self._plan.groups_max:
            for _ in range(self._plan.group_size):
                await self._slots.acquire()
            await self._learn()
            while (spec := await self._opened(ordinal)) is None:
                ordinal += 1
            self._start_group(spec, derived_seed(self._plan.seed, ordinal))
            ordinal += 1

    async def _learn(self) -> None:
        """Asks the gateway how the tasks went, for the curriculum."""
        curriculum, stats = self._curriculum, self._stats
        if curriculum is None or self._order is None:
            return
        if stats.groups_opened % max(1, curriculum.count // LEARNINGS_PER_EPOCH):
            return
        curriculum.learn(await self._client.task_returns(self._order))
        if curriculum.at_rest != stats.tasks_at_rest:
            by_all, by_none = len(curriculum.by_all), len(curriculum.by_none)
            log.info("tasks_at_rest", solved_by_all=by_all, solved_by_none=by_none, of=curriculum.count)
        stats.tasks_at_rest = curriculum.at_rest

    async def _opened(self, ordinal: int) -> GroupSpec | None:
        """The group of this ordinal, opened; None when another runner has it."""
        plan = self._plan
        task = (self._curriculum or self._tasks).at(ordinal, plan.seed)
        spec = GroupSpec(plan.group_size, plan.channel, plan.run_id, task, plan.deadline_s, tags=plan.tag or None)
        if self._order is not None:
            spec = replace(spec, ordinal=ordinal, group_id=ordered_group_id(self._order, ordinal))
        try:
            await open_when_admitted(self._client, spec, self._stats.count_refusal)
        except RequestRefused as refusal:
            if refusal.code != ORDINAL_TAKEN:
                raise
            return None
        self._stats.count_opened(at_rest=self._curriculum is not None and self._curriculum.rests(task))
        return spec

    def _start_group(self, spec: GroupSpec, seed: int) -> None:
        self._unfinished[spec.group_id] = spec.size
        for member in range(spec.size):
            self._start_episode(spec.group_id, spec.task or {}, derived_seed(seed, member))

    def _start_episode(self, group_id: str, task: JsonObject, seed: int) -> None:
        saw = (lambda _: None) if self._evaluation is None else self._evaluation.saw
        episode = Episode(self._client, TrajectoryId.new(group_id), task=task, seed=seed, on_version=saw)
        playing = asyncio.create_task(self._play(episode))
        self._playing.add(playing)
        playing.add_done_callback(self._forget)

    async def _play(self, episode: Episode) -> None:
        try:
            self._stats.count(await play(self._flow, episode, self._client.settings))
            self._raise_if_hopeless()
        except asyncio.CancelledError:
            self._stats.count_stopped()
            raise
        finally:
            self._count_calls(episode)
            self._count_down(episode.trajectory.group_id)

    def _raise_if_hopeless(self) -> None:
        stats = self._stats
        if stats.failed_for is not None and stats.failed_in_a_row >= self._plan.failures_max:
            raise EpisodesFailing(stats.failed_in_a_row, stats.failed_for)

    async def _evaluate(self) -> None:
        if self._evaluation is not None:
            await self._evaluation.run()

    def _count_calls(self, episode: Episode) -> None:
        self._stats.calls_replied += episode.calls
        self._stats.calls_unanswered += episode.unanswered
        self._write_replied(episode.call_ids)

    def _count_down(self, group_id: str) -> None:
        self._unfinished[group_id] -= 1
        if not self._unfinished[group_id]:
            del self._unfinished[group_id]
            self._stats.groups_finished += 1

    def _forget(self, playing: asyncio.Task[None]) -> None:
        self._playing.discard(playing)
        self._slots.release()
        self._end_with(playing)

    def _end_with(self, task: asyncio.Task[None]) -> None:
        """The first error of a task ends the run: `play` raises nothing, so it is a fault of ours, the gateway's end, or one
        failure too many."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._bug = self._bug or error
            self.stop()

    async def _until_stopped(self, work: asyncio.Task[None]) -> None:
        """Until the work is done, whose error is raised, or `stop` was called."""
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await _cancelled(stopped)
        if work.done():
            work.result()

    async def _drain(self) -> None:
        """Let running episodes end: as long as they need, but within the time limit once stopped."""
        ending = asyncio.create_task(self._all_ended())
        await self._until_stopped(ending)
        await asyncio.wait({ending}, timeout=self._client.settings.drain_timeout_s)
        await _cancelled(ending)

    async def _all_ended(self) -> None:
        while self._playing:
            await asyncio.wait(self._playing)

    async def _write_stats_regularly(self) -> None:
        while True:
            self._write_stats()
            await asyncio.sleep(self._client.settings.stats_interval_s)

    def _write_replied(self, call_ids: Sequence[str]) -> None:
        if self._plan.replied is None:
            return
        lines = "".join(f"{call_id}\n" for call_id in call_ids).encode()
        try:
            with self._plan.replied.open("ab", buffering=0) as file:
                before = file.tell()
                if file.write(lines) != len(lines):  # a disk that gets full takes a part, and half an id is none
                    file.truncate(before)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            log.warning("replied_not_written", calls=len(call_ids), error=str(error))

    def _write_stats(self) -> None:
        """A disk that is full now ends no run, and may have room at the next try."""
        summary = self._stats.summary(len(self._playing))
        try:
            if self._plan.stats is not None:
                write_summary(self._plan.stats, summary)
        except OSError as error:
            log.warning("stats_not_written", error=str(error))
        self._on_progress(summary)


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel what still runs and wait until it has ended; errors of the ended are their owner's business."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
