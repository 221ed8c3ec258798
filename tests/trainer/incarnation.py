"""One incarnation of a training run in a process of its own, which kills itself where it is told to."""

import gc
import os
import resource
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.dependencies import TrainerDependencies
from claw_r1.trainer.offline.journal import file_journal, records
from claw_r1.trainer.run import TrainingRun
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.storage.state_files import MemoryFile
from tests.trainer.pooled import RUN, pooled, random_groups

BATCHES = 6
SPEC = BatchSpec(groups_per_batch=2, group_size=4, staleness_max=100)


@dataclass
class FakeTransferServer:
    """Offers nothing, and remembers what was staged: (version, digest)."""

    staged: list[tuple[int, str]] = field(default_factory=list)
    url: str = "http://127.0.0.1:1/offer"

    def stage(self, run_id, version, snapshot) -> None:
        self.staged.append((version, snapshot.manifest.digest))

    def settle(self, run_id, version) -> None:
        pass


def settings(out_dir: Path, model_dir: Path, **changes) -> TrainerSettings:
    fields = {
        "model_dir": model_dir,
        "model_id": "tiny",
        "run_id": RUN,
        "spec": SPEC,
        "out_dir": out_dir,
        "learning_rate": 1e-2,
        "batches_max": BATCHES,
        "hf_every": 4,
        "poll_interval_s": 0.01,
        **changes,
    }
    return TrainerSettings(**fields)


def world(
    chosen: TrainerSettings, journal, reached=lambda _: None, groups: int = 2 * BATCHES, stop=None, learner=None
) -> TrainerDependencies:
    made = pooled(random_groups(groups, 4))
    return TrainerDependencies(
        learner=learner or learner_of(chosen),
        pool=made.pool,
        facts=made.log.lookup(),
        journal=journal,
        transfer_server=FakeTransferServer(),
        stop=stop or threading.Event(),
        producer="trainer/test",
        reached=reached,
    )


def live(
    chosen: TrainerSettings,
    log_file: Path,
    dies_at: tuple[str, int] | None,
    file_bytes_max: int | None = None,
    *,
    learner=None,
    kill: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL),
) -> None:
    """Run until the end, or until `dies_at` = (milestone or "half a file", how often it is reached)."""
    gc.freeze()  # as in tests/conftest.py
    seen: Counter[str] = Counter()
    if file_bytes_max is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))

    def reached(milestone: str) -> None:
        seen[milestone] += 1
        if dies_at is not None and (milestone, seen[milestone]) == dies_at:
            kill()

    def copy_to(file: MemoryFile, path: Path) -> None:
        whole(file, path)
        os.truncate(path, path.stat().st_size // 2)
        reached("half a file")
        whole(file, path)

    whole, MemoryFile.copy_to = MemoryFile.copy_to, copy_to
    TrainingRun(chosen, world(chosen, file_journal(log_file, chosen.run_id), reached, learner=learner)).run()


def committed(log_file: Path) -> list[list[object]]:
    """The events of each transaction in the file."""
    return [[record.event() for record in each] for _, each in groupby(records(log_file), key=attrgetter("offset"))]
