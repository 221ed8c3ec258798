"""The savings of a second rank: `python -m bench.trainer_ranks [--repeats N]`. One JSON object; exit code 1 below the
target.

Work: batches of 32 trajectories of 512 tokens (16,384), half of them trained, through a Qwen3 of 2 layers, width 512 and
8,192 ids at ZeRO 0, in micro-batches of 4,096. `ranks_speedup`: wall seconds of one batch on 1 rank over those on 2, one
thread each. Both are started once and take turns, medians. It needs two free cores, and says how busy they were
(`ranks_load`); `ranks_cpu_ratio`, the same of the CPU seconds of rank 0, is what it would be if nobody waited.
"""

import argparse
import json
import os
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

TARGET = 1.5
TRAJECTORIES, TOKENS, MICRO_BATCH = 32, 512, 4096
VOCABULARY, WIDTH = 8192, 512
LOOPBACK = "127.0.0.1"


def measure(repeats: int = 3) -> dict[str, float]:
    """The ratio, the seconds of each side, and the load average at the end."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="bench-ranks-") as folder:
        from bench.two_layers import two_layers

        two_layers(WIDTH, VOCABULARY).save_pretrained(Path(folder) / "model")
        sides = {ranks: _start(Path(folder), ranks) for ranks in (1, 2)}
        seconds: dict[int, list[tuple[float, float]]] = {ranks: [] for ranks in sides}
        for turn in range(repeats + 1):
            for ranks, side in sides.items():
                side.send(turn)
                taken = side.recv()
                if turn:  # the first one is slower for everybody
                    seconds[ranks].append(taken)
        for side in sides.values():
            side.send(None)
            side.recv()
    alone, together = (statistics.median(wall for wall, _ in seconds[ranks]) for ranks in (1, 2))
    cpu_alone, cpu_together = (statistics.median(cpu for _, cpu in seconds[ranks]) for ranks in (1, 2))
    return {
        "ranks_speedup": round(alone / together, 2),
        "ranks_cpu_ratio": round(cpu_alone / cpu_together, 2),
        "ranks_1_wall_s": round(alone, 2),
        "ranks_2_wall_s": round(together, 2),
        "ranks_load": round(os.getloadavg()[0], 1),
    }


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
    """Trains batch after batch, and answers with the seconds of each."""
    import threading

    from claw_r1.trainer.learn.examples import LearnerBatch
    from claw_r1.trainer.ranks.launch import Launched
    from claw_r1.trainer.ranks.leader import leading
    from claw_r1.trainer.ranks.place import RankPlace
    from claw_r1.trainer.settings import TrainerSettings

    settings = TrainerSettings(**_settings(folder, ranks))
    with leading(settings, Launched(RankPlace(0, ranks, 0, LOOPBACK, port)), threading.Event()) as learner:
        while (seed := commands.recv()) is not None:
            batch = LearnerBatch(_examples(seed), 0, seed, (1,) * TRAJECTORIES, seed)
            began = time.monotonic(), time.process_time()
            learner.train(batch)
            commands.send((time.monotonic() - began[0], time.process_time() - began[1]))
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


def _examples(seed: int) -> list:
    import numpy as np

    from claw_r1.trainer.learn.examples import Example

    dice = random.Random(seed)
    trained = TOKENS // 2

    def same(value: float, dtype: type = np.float32) -> np.ndarray:
        return np.full(trained, value, dtype=dtype)

    return [
        Example(
            ids=np.array([dice.randrange(VOCABULARY) for _ in range(TOKENS)], dtype=np.int32),
            at=np.arange(TOKENS - trained, TOKENS),
            behaviour=same(-9.0),
            temperatures=same(1.0),
            advantages=same(dice.choice([-1.0, 1.0])),
            versions=same(0, np.int64),
            responses=same(index, np.int64),
            trajectories=same(index, np.int64),
            rewards=same(0.0),
            weights=np.tile(np.array([1, 0, 1], dtype=np.float32), (trained, 1)),
            scale=same(1.0),
            group=index,
        )
        for index in range(TRAJECTORIES)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures; 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    figures = measure(parser.parse_args(argv).repeats)
    print(json.dumps(figures))
    return int(figures["ranks_speedup"] < TARGET)


if __name__ == "__main__":
    sys.exit(main())
