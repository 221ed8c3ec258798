"""The training loop in one process, without Kafka and HTTP: a player that samples, the real folds, plan, rows and learner.

For questions about learning, where what counts is which batch was trained by which version, and not how long it took.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Protocol

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from bench.episodes import call, prompt_edge
from claw_r1.datapool.batch.figures import ENVIRONMENT_TAG
from claw_r1.datapool.batch.plan import assemble, groups_of
from claw_r1.datapool.batch.selection import Selector
from claw_r1.datapool.batch.shares import Quotas
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import GroupImage, changes
from claw_r1.datapool.fold.state import Fact, GroupState
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import (
    CallCaptured,
    Event,
    FactPosition,
    GroupOpened,
    RewardAssigned,
    TrajectoryCompleted,
    VersionSpan,
)
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS
from claw_r1.trainer.learn.examples import LearnerBatch
from claw_r1.trainer.plan.learner_batch import learner_batch
from claw_r1.trainer.plan.training_batch import read
from claw_r1.trainer.settings import TrainerSettings

NEW_TOKENS_MAX = 7
Message = dict[str, str]


class Learns(Protocol):
    """`claw_r1.trainer.learn.learner.Learner`, or a plain loop beside it."""

    vocabulary: int

    def train(self, batch: LearnerBatch) -> dict[str, float]:
        """One batch; its metrics."""

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The weights as they are now."""


class Game(Protocol):
    """An environment of turns."""

    def observe(self) -> str | None:
        """Returns the agent's next observation; None: the episode is over."""

    def answer(self, text: str) -> float:
        """The reward of an answer to it."""


TaskDraw = Callable[[random.Random], Callable[[], Game]]
"""A random source -> a task; called, that gives a game of it for one member."""


@dataclass(slots=True)
class PlayedCall:
    """One call: prompt and sampled ids, log-probabilities of the latter, what it earned."""

    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    reward: float = 0.0


@dataclass(slots=True)
class PlayedEpisode:
    """A member of a group while it is played."""

    game: Game
    messages: list[Message] = field(default_factory=list)
    calls: list[PlayedCall] = field(default_factory=list)

    @property
    def earned(self) -> float:
        return sum(call.reward for call in self.calls)


class Player:
    """Samples whole conversations with the weights that it was last given. `seed`: of everything that it draws."""

    def __init__(self, model_dir: Path, seed: int, new_tokens_max: int = NEW_TOKENS_MAX) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(model_dir)
        self._draw = torch.Generator().manual_seed(seed)
        self._parameters = dict(self._model.named_parameters())
        self._new_tokens_max = new_tokens_max

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Play with these from now on."""
        with torch.no_grad():
            for name, value in weights.items():
                self._parameters[name].copy_(value)

    def play(self, episodes: Sequence[PlayedEpisode]) -> None:
        """All to their ends, turn by turn."""
        active, self._context = list(episodes), Context(self._model, len(episodes))
        while rows := [row for row, episode in enumerate(active) if _show(episode)]:
            active = [active[row] for row in rows]
            self._context.keep(rows)
            prompts = [
                self._tokenizer.apply_chat_template(
                    episode.messages, add_generation_prompt=True, tokenize=True, return_dict=False
                )
                for episode in active
            ]
            if not self._context.extended_by(prompts):
                self._context = Context(self._model, len(active))
            for episode, prompt, (ids, logprobs) in zip(active, prompts, self._sample(prompts), strict=True):
                text = self._tokenizer.decode([i for i in ids if i != self._tokenizer.eos_token_id])
                episode.messages.append({"role": "assistant", "content": text})
                episode.calls.append(PlayedCall(prompt, ids, logprobs, episode.game.answer(text)))

    @torch.inference_mode()
    def _sample(self, prompts: Sequence[list[int]]) -> list[tuple[list[int], list[float]]]:
        """Ids up to and with the end, and their log-probabilities at temperature 1."""
        replies: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
        news = [prompt[len(ids) :] for prompt, ids in zip(prompts, self._context.ids, strict=True)]
        for _ in range(self._new_tokens_max):
            logprobs = self._context.extend(news).float().log_softmax(-1)
            ids = torch.multinomial(logprobs.exp(), 1, generator=self._draw)
            drawn = zip(ids[:, 0].tolist(), logprobs.gather(-1, ids)[:, 0].tolist(), strict=True)
            for row, (token, logprob) in enumerate(drawn):
                if news[row]:
                    replies[row][0].append(token)
                    replies[row][1].append(logprob)
                    news[row] = [token] if token != self._tokenizer.eos_token_id else []
            if not any(news):
                break
        return replies


class Context:
    """Rows of ids with their keys and values, so that a conversation that goes on is not computed again."""

    def __init__(self, model: torch.nn.Module, rows: int) -> None:
        self.ids: list[list[int]] = [[] for _ in range(rows)]
        self._model, self._cache = model, DynamicCache()
        self._mask = torch.zeros(rows, 0, dtype=torch.long)

    def keep(self, rows: list[int]) -> None:
        """Forget the others."""
        if len(rows) < len(self.ids):
            self.ids, self._mask = [self.ids[row] for row in rows], self._mask[rows]
            if len(self._cache):
                self._cache.batch_select_indices(torch.tensor(rows))

    def extended_by(self, prompts: Sequence[list[int]]) -> bool:
        """Returns whether each prompt begins with its row; a sampled text that is not canonical makes one that does
        not."""
        return all(prompt[: len(ids)] == ids for prompt, ids in zip(prompts, self.ids, strict=True))

    def extend(self, news: Sequence[list[int]]) -> Tensor:
        """Logits after these ids, (rows, vocabulary); of a row without any they mean nothing."""
        n = max(map(len, news))
        ids = torch.tensor([[0] * (n - len(new)) + new for new in news])
        self._mask = torch.cat([self._mask, torch.tensor([[0] * (n - len(new)) + [1] * len(new) for new in news])], -1)
        positions = (self._mask.cumsum(-1) - 1).clamp(min=0)[:, -n:]
        for row, new in zip(self.ids, news, strict=True):
            row += new
        return self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        ).logits[:, -1]


def _show(episode: PlayedEpisode) -> bool:
    """False: there is nothing more to see."""
    observation = episode.game.observe()
    if observation is not None:
        role = {"role": "tool", "tool_call_id": f"turn-{len(episode.calls)}"} if episode.calls else {"role": "user"}
        episode.messages.append({**role, "content": observation})
    return observation is not None


class FoldedLog:
    """Facts on a memory log, folded into the rows of a pool as the streams do it."""

    def __init__(self) -> None:
        self.log, self.pool = MemoryLog(LogSettings(partitions=1)), PoolRows()

    def write(self, facts: Iterable[Event]) -> None:
        """Writes the facts of whole groups that are new to the log."""
        states: dict[str, GroupState] = {}
        images: dict[str, GroupImage] = {}
        for fact in facts:
            assert isinstance(fact, Fact)
            topic = REWARDS if isinstance(fact, RewardAssigned) else CALLS
            at = self.log.append([Outgoing.of(topic, group_key(fact.group_id), fact)])[0]
            position = FactPosition(topic=at.topic, partition=at.partition, offset=at.offset)
            group = fact.group_id
            states[group] = fold(states.get(group), fact, position)
            images[group], rows = changes(images.get(group), states[group])
            for key, row in rows.items():
                self.pool.apply(key.topic, key.key, row and row.value)


def facts_of(
    group_id: str,
    episodes: Sequence[PlayedEpisode],
    run_id: str,
    version: int,
    tags: tuple[str, ...] = (),
) -> Iterator[Event]:
    """Yields the facts of a group that gateway and agents write. version: it sampled all calls."""
    opened = envelope("bench", run_id=run_id)
    yield GroupOpened(envelope=opened, group_id=group_id, expected_size=len(episodes), tags=tags)
    for member, episode in enumerate(episodes):
        name = f"t{member}"
        for number, played in enumerate(episode.calls):
            yield _captured(group_id, name, number, played, run_id, version)
            if played.reward and number < len(episode.calls) - 1:
                yield RewardAssigned(
                    envelope=envelope("bench", run_id=run_id),
                    group_id=group_id,
                    trajectory_id=name,
                    call_id=f"{name}-{number}",
                    value=played.reward,
                    name="step",
                )
        yield TrajectoryCompleted(
            envelope=envelope("bench", run_id=run_id),
            group_id=group_id,
            trajectory_id=name,
            status="completed",
            calls=len(episode.calls),
            rewards=sum(bool(call.reward) for call in episode.calls[:-1]),
            reward=episode.calls[-1].reward,
        )


def _captured(group_id: str, name: str, number: int, played: PlayedCall, run_id: str, version: int) -> CallCaptured:
    return call(
        group_id,
        name,
        number,
        prompt_edge(pack_ids(played.prompt)),
        pack_ids(played.ids),
        envelope=envelope("bench", run_id=run_id),
        response_logprobs=pack_floats(played.logprobs),
        spans=(VersionSpan(run_id=run_id, version=version, start=0, end=len(played.ids)),),
    )


class InProcessLoop:
    """Batch after batch: play with the weights of `lag` versions ago, fold, select, plan, read, train."""

    def __init__(
        self,
        settings: TrainerSettings,
        learner: Learns,
        tasks: TaskDraw | Mapping[str, TaskDraw],
        lag: int = 0,
        new_tokens_max: int = NEW_TOKENS_MAX,
    ) -> None:
        """tasks: of the one environment, or of each that has a share in the spec."""
        self._settings, self._learner = settings, learner
        self._tasks = tasks if isinstance(tasks, Mapping) else {"": tasks}
        self._quotas = Quotas(settings.spec.environments, settings.spec.groups_per_batch)
        self._dice = random.Random(settings.seed)
        self._player = Player(settings.model_dir, settings.seed, new_tokens_max)
        self._folded = FoldedLog()
        self._selector = Selector(self._folded.pool, settings.spec, settings.run_id)
        self._consumed: set[str] = set()
        self._version = 0
        self._weights: deque[dict[str, Tensor]] = deque([self._snapshot()], maxlen=lag + 1)
        self.rewards: list[float] = []
        self.rewards_of: dict[str, list[float]] = {name: [] for name in self._tasks}
        """Environment -> the same of its own episodes, for each batch that has some."""
        self.calls: list[float] = []

    def run(self, batches: int, goal: float | None = None) -> list[float]:
        """Mean return per batch, until the mean of the last five reaches the goal."""
        for _ in range(batches):
            self.round()
            if goal is not None and batches_until(self.rewards, goal) is not None:
                break
        return self.rewards

    def round(self) -> None:
        """One batch."""
        settings, spec = self._settings, self._settings.spec
        self._player.take(self._weights[0])
        sampled_by = self._version - len(self._weights) + 1
        groups = self._groups()
        episodes = [episode for _, members in groups for episode in members]
        self._player.play(episodes)
        for number, (name, members) in enumerate(groups):
            self._write(f"g{self._version:05d}-{number}", name, members, sampled_by)
        selection = self._selector.select(self._version, self._consumed, self._version)
        assert selection.complete, dict(selection.left_out) | dict(selection.skipped)
        plan = assemble(
            selection.chosen,
            spec,
            run_id=settings.run_id,
            sequence=self._version,
            version=self._version,
            seed=self._version,
            envelope=envelope("bench", run_id=settings.run_id),
        )
        batch = read(plan, self._folded.log.lookup(), self._learner.vocabulary)
        self._learner.train(learner_batch(batch))
        for group_id in groups_of(plan):
            self._consumed.add(group_id)
            self._folded.pool.forget(group_id)
        self.rewards.append(fmean(episode.earned for episode in episodes))
        for name in dict(groups):
            own = chain.from_iterable(members for other, members in groups if other == name)
            self.rewards_of[name].append(fmean(episode.earned for episode in own))
        self.calls.append(fmean(len(episode.calls) for episode in episodes))
        self._version += 1
        self._weights.append(self._snapshot())

    def _write(self, group_id: str, name: str, members: Sequence[PlayedEpisode], version: int) -> None:
        tags = (f"{ENVIRONMENT_TAG}{name}",) if name else ()
        self._folded.write(facts_of(group_id, members, self._settings.run_id, version, tags))

    def _groups(self) -> list[tuple[str, list[PlayedEpisode]]]:
        """Returns the groups of the next batch, not played yet, each with its environment."""
        spec = self._settings.spec
        counts = self._quotas.of(self._version) or dict.fromkeys(self._tasks, spec.groups_per_batch)
        drawn = [(name, self._tasks[name](self._dice)) for name, count in counts.items() for _ in range(count)]
        size = range(spec.group_size)
        return [(name, [PlayedEpisode(task()) for _ in size]) for name, task in drawn]

    def _snapshot(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self._learner.named_tensors()}


def batches_until(rewards: Sequence[float], goal: float, window: int = 5) -> int | None:
    """The first batch (from 1) at which the mean of the last `window` reaches the goal; None: it never does."""
    means = ((n, fmean(rewards[n - window : n])) for n in range(window, len(rewards) + 1))
    return next((n for n, mean in means if mean >= goal), None)
