"""The costs of a version for the loop: `python -m bench.trainer_publish` prints one JSON object. One thread, CPU
seconds, medians.

`publish_ratio`: from the last optimizer step of a batch to its BatchTrained, a checkpoint and an export due with every batch,
over one sha256 and one copy of the bytes of its weights, into memory that was used before: 57 M parameters in float32, 228 MB
each. CPU seconds of the loop's own thread: `publish_background_cpu_s` is what the writer's thread spends meanwhile and
afterwards, `publish_wall_s` the time by the clock. Both sides take turns, and no side begins before the disk is idle.
"""

import hashlib
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from bench.in_process import FoldedLog, PlayedCall, PlayedEpisode, facts_of
from claw_r1.datapool.batch.plan import assemble, groups_of
from claw_r1.datapool.batch.selection import Selector
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.envelopes import envelope, new_id
from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.dependencies import Milestone, TrainerDependencies
from claw_r1.trainer.plan.journal import Journal
from claw_r1.trainer.plan.training_batch import TrainingBatch, read
from claw_r1.trainer.progress import TrainingProgress
from claw_r1.trainer.publication import Publisher
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.storage.background import BackgroundWriter
from claw_r1.trainer.storage.checkpoints import Checkpoints
from claw_r1.trainer.storage.reports import Reports
from claw_r1.trainer.update import Updater
from claw_r1.weights.snapshot import Snapshots
from claw_r1.weights.transfer_server import TransferServer

RUN, MODEL = "bench", "bench"
REPEATS = 7
UNCOUNTED = 4  # first turns: three versions and a state are given their memory, which later ones use again
SPEC = BatchSpec(groups_per_batch=1, group_size=2, staleness_max=1000)
SIZES = {"vocab_size": 37_632, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12}


class Clock:
    """The clock of the loop's thread, between two milestones."""

    def __init__(self) -> None:
        self.cpu_s: list[float] = []
        self.wall_s: list[float] = []
        self._thread = threading.current_thread()

    def reached(self, milestone: Milestone) -> None:
        if threading.current_thread() is not self._thread:
            return
        if milestone is Milestone.TRAINED:
            self._began = time.thread_time(), time.monotonic()
        elif milestone is Milestone.PUBLISHED:
            self.cpu_s.append(time.thread_time() - self._began[0])
            self.wall_s.append(time.monotonic() - self._began[1])


def measure(repeats: int = REPEATS) -> dict[str, Any]:
    """The ratio, both sides of it, and the raw samples; the first `UNCOUNTED` turns are in the samples alone."""
    torch.set_num_threads(1)
    clock, yardstick_s, background_s = Clock(), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="bench-trainer-publish-") as folder:
        settings = _settings(Path(folder))
        batches, facts = _batches(UNCOUNTED + repeats)
        server, writer = TransferServer(), BackgroundWriter()
        reports = Reports(settings.out_dir, [])
        try:
            journal = Journal(facts.log.transactions(RUN), lambda: (), RUN)
            journal.open()
            dependencies = TrainerDependencies(
                learner=learner_of(settings),
                pool=facts.pool,  # type: ignore[arg-type]  # nobody asks it: the batches are there
                facts=facts.log.lookup(),
                journal=journal,
                transfer_server=server,
                stop=threading.Event(),
                producer="bench",
                reached=clock.reached,
            )
            updater = _updater(settings, dependencies, reports, writer)
            yardstick = _Yardstick(dependencies)
            for batch in batches:
                yardstick_s.append(yardstick.cpu_s())
                before, loop_before = time.process_time(), time.thread_time()
                updater.carry_out(batch, 0.0)
                writer.wait()
                background_s.append(time.process_time() - before - (time.thread_time() - loop_before))
        finally:
            writer.close()
            reports.close()
            server.close()
    cpu_s, yardstick_median, wall_s, writer_s = (
        statistics.median(samples[UNCOUNTED:]) for samples in (clock.cpu_s, yardstick_s, clock.wall_s, background_s)
    )
    return {
        "publish_ratio": round(cpu_s / yardstick_median, 3),
        "publish_cpu_s": round(cpu_s, 3),
        "publish_yardstick_cpu_s": round(yardstick_median, 3),
        "publish_wall_s": round(wall_s, 3),
        "publish_background_cpu_s": round(writer_s, 3),
        "publish_mb": round(yardstick.nbytes / 1e6, 1),
        "_publish_samples": {
            "cpu_s": clock.cpu_s,
            "yardstick_cpu_s": yardstick_s,
            "wall_s": clock.wall_s,
            "background_cpu_s": background_s,
        },
    }


class _Yardstick:
    """One sha256 over the bytes of the weights and one copy of them."""

    def __init__(self, dependencies: TrainerDependencies) -> None:
        self._source = torch.cat([t.reshape(-1) for _, t in dependencies.learner.named_tensors()]).view(torch.uint8)
        self._target = self._source.clone()
        self.nbytes = self._source.numel()

    def cpu_s(self) -> float:
        began = time.thread_time()
        hashlib.sha256(self._source.numpy()).hexdigest()
        self._target.copy_(self._source)
        return time.thread_time() - began


def _settings(folder: Path) -> TrainerSettings:
    torch.manual_seed(0)
    config = Qwen3Config(num_attention_heads=8, num_key_value_heads=4, head_dim=64, tie_word_embeddings=True, **SIZES)
    Qwen3ForCausalLM(config).save_pretrained(folder / "model")
    return TrainerSettings(
        model_dir=folder / "model",
        model_id=MODEL,
        run_id=RUN,
        out_dir=folder / "out",
        spec=SPEC,
        device="cpu",
        checkpoint_every=1,
        hf_every=1,
    )


def _batches(count: int) -> tuple[list[TrainingBatch], FoldedLog]:
    """Makes batches of a few tokens each: what is measured begins after the step."""
    folded, batches = FoldedLog(), []
    selector, consumed = Selector(folded.pool, SPEC, RUN), set[str]()
    for sequence in range(count):
        episodes = [PlayedEpisode(game=None) for _ in range(SPEC.group_size)]  # type: ignore[arg-type]  # over
        for member, episode in enumerate(episodes):
            episode.calls.append(PlayedCall([1, 2, 3], [4, 5 + member], [-1.0, -1.0], float(member)))
        folded.write(facts_of(f"g{sequence:04d}", episodes, RUN, lambda _: 0))
        plan = assemble(
            selector.select(sequence, consumed).chosen,
            SPEC,
            run_id=RUN,
            sequence=sequence,
            version=sequence,
            seed=sequence,
            envelope=envelope("bench", run_id=RUN),
        )
        consumed |= set(groups_of(plan))
        batches.append(read(plan, folded.log.lookup(), SIZES["vocab_size"]))
    return batches, folded


def _updater(
    settings: TrainerSettings, dependencies: TrainerDependencies, reports: Reports, writer: BackgroundWriter
) -> Updater:
    progress = TrainingProgress()
    progress.version_free = 1
    publisher = Publisher(
        weights=dependencies.learner,
        transfer_server=dependencies.transfer_server,
        exports=settings.out_dir / "hf",
        run_id=RUN,
        model_id=MODEL,
        epoch=new_id(),
        producer="bench",
        exports_kept=settings.hf_kept,
        snapshots=Snapshots(),
        adapter_snapshots=Snapshots(),
    )
    checkpoints = Checkpoints(settings.out_dir / "checkpoints", settings.checkpoints_kept)
    return Updater(
        settings,
        dependencies,
        progress,
        publisher=publisher,
        checkpoints=checkpoints,
        reports=reports,
        writer=writer,
        incarnation=1,
    )


if __name__ == "__main__":
    print(json.dumps(measure()))
