"""The verbs environment for the in-process loop, and the settings that `claw demo` trains it with."""

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.in_process import Game
from claw_r1.claw.demo.turn import TurnOf
from claw_r1.claw.demo.verbs.environment import Task, judge
from claw_r1.claw.home import claw_home
from claw_r1.trainer.settings import TrainerSettings

GROUPS, MEMBERS = 8, 8
LEARNING_RATE = 5e-4


@dataclass(slots=True)
class TurnsGame:
    """An episode of rules that are a function of the agent's texts."""

    observation: str | None
    play: TurnOf

    def observe(self) -> str | None:
        return self.observation

    def answer(self, text: str) -> float:
        turn = self.play(text)
        self.observation = turn.observation
        return turn.reward


def verbs(dice: random.Random) -> Callable[[], Game]:
    """A task."""
    task = Task.from_seed(dice.getrandbits(62))

    def game() -> Game:
        turns = count()
        return TurnsGame(task.observations[0], lambda text: judge(task, next(turns), text))

    return game


def model_of(seed: int) -> Path:
    """The demo's model of this seed, made where it is not kept."""
    from claw_r1.claw.demo.verbs.tiny_model import ensure

    return ensure(claw_home() / "cache" / "models", seed)


@contextmanager
def settings(seed: int, spec: dict[str, Any] | None = None, **changes: Any) -> Iterator[TrainerSettings]:
    """Yields the demo's settings; `spec` and the rest replace single fields. The directory is gone afterwards."""
    model_dir = changes.pop("model_dir", None) or model_of(seed)
    with tempfile.TemporaryDirectory(prefix="bench-trainer-") as folder:
        yield TrainerSettings(
            **{
                "model_dir": model_dir,
                "model_id": "verbs-tiny",
                "run_id": "bench",
                "out_dir": Path(folder),
                "learning_rate": LEARNING_RATE,
                "seed": seed,
                "device": "cpu",
                "spec": {"groups_per_batch": GROUPS, "group_size": MEMBERS, "staleness_max": 8, **(spec or {})},
                **changes,
            }
        )
