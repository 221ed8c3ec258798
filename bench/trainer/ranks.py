"""The savings of a second rank: `python -m bench.trainer --only ranks`.

Work: batches of 32 trajectories of 512 tokens (16,384), half of them trained, through a Qwen3 of 2 layers, width 512 and
8,192 ids at ZeRO 0, in micro-batches of 4,096. `ranks_speedup`: wall seconds of one batch on 1 rank over those on 2, one
thread each. Both are started once and take turns, medians. It needs two free cores, and says how busy they were (`ranks_load`).
"""

import os
import random
import socket
import tempfile
import threading
import time
from functools import partial
from itertools import count, takewhile
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from bench.medians import in_turns
from bench.models import Shape, make
from bench.report import Figures

TRAJECTORIES, TOKENS, MICRO_BATCH = 32, 512, 4096
SHAPE = Shape(vocabulary=8192, layers=2, mlp_width=2048)
LOOPBACK = "127.0.0.1"


def measure(repeats: int) -> Figures:
    """The ratio, the seconds of each side, and the load average at the end."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="bench-ranks-") as name:
        folder = Path(name)
        make(folder / "model", SHAPE)
        sides = {ranks: _start(folder, ranks) for ranks in (1, 2)}
        seconds = in_turns(
            {f"ranks_{n}_wall_s": partial(_ask, side, True) for n, side in sides.items()}, repeats, time.monotonic
        )
        for side in sides.values():
            _ask(side, False)
    alone, together = seconds.values()
    return {"ranks_speedup": alone / together, **seconds, "ranks_load": os.getloadavg()[0]}


def _ask(side: Connection, train: bool) -> None:
    side.send(train)
    side.recv()


def _start(folder: Path, ranks: int) -> Connection:
    """To rank 0 of so many."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
    processes = get_context("spawn")
    ours, theirs = processes.Pipe()
    processes.Process(target=_lead, args=(folder, ranks, port, theirs), daemon=True).start()
    for rank in range(1, ranks):
        processes.Process(target=_follow, args=(folder, rank, ranks, port), daemon=True).start()
    return ours


def _lead(folder: Path, ranks: int, port: int, commands: Connection) -> None:
    """Trains batch after batch, and answers after each."""
    from bench.examples import example
    from claw_r1.trainer.learn.examples import LearnerBatch
    from claw_r1.trainer.ranks.launch import Launched
    from claw_r1.trainer.ranks.leader import leading
    from claw_r1.trainer.ranks.place import RankPlace
    from claw_r1.trainer.settings import TrainerSettings

    settings, dice = TrainerSettings(**_settings(folder, ranks)), random.Random(0)
    with leading(settings, Launched(RankPlace(0, ranks, 0, LOOPBACK, port)), threading.Event()) as learner:
        for seed in takewhile(lambda _: commands.recv(), count()):
            rows = [[dice.randrange(SHAPE.vocabulary) for _ in range(TOKENS)] for _ in range(TRAJECTORIES)]
            trained = range(TOKENS // 2, TOKENS)
            examples = [example(ids, trained, (-1.0) ** n, -9.0, group=n, member=n) for n, ids in enumerate(rows)]
            learner.train(LearnerBatch(examples, 0, seed, (1,) * TRAJECTORIES, seed))
            commands.send("trained")
    commands.send("over")


def _follow(folder: Path, rank: int, ranks: int, port: int) -> None:
    from claw_r1.trainer.ranks.follower import follow
    from claw_r1.trainer.ranks.place import RankPlace
    from claw_r1.trainer.settings import TrainerSettings

    follow(TrainerSettings(**_settings(folder, ranks)), RankPlace(rank, ranks, rank, LOOPBACK, port))


def _settings(folder: Path, ranks: int) -> dict:
    return {
        "model_dir": folder / "model",
        "model_id": "bench",
        "run_id": "bench",
        "out_dir": folder / "out",
        "device": "cpu",
        "layout": "rows",
        "micro_batch_tokens_max": MICRO_BATCH,
        "ranks": ranks,
    }
