"""One engine in a process of its own: `python -m bench.gpu_check.work JOB`, JOB being the JSON of a `Job`.

DeepSpeed takes its accelerator and torch its process group once per process, so each device, stage and precision is one.
Prints the JSON of an `Outcome` last.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Steps of one engine over a batch that is a function of `seed`. Lengths in tokens; `groups` share their prompts.

    `first`: number of the first step. `load`, `save`: checkpoint before the first and after the last one. `weights`: file for the
    final weights.
    """

    model_dir: str
    device: str
    precision: str
    stage: int = 0
    layout: str = "rows"
    steps: int = 5
    first: int = 0
    groups: int = 4
    members: int = 4
    prompt: int = 48
    response: int = 32
    micro_batch_tokens_max: int = 16_384
    learning_rate: float = 1e-3
    seed: int = 0
    load: str | None = None
    save: str | None = None
    weights: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The loss, gradient norm and seconds of each step. `tokens`: of one step's sequences. `peak_bytes`: of the device;
    0 where it has none to count."""

    losses: list[float]
    norms: list[float]
    seconds: list[float]
    tokens: int
    peak_bytes: int


def run(job: Job) -> Outcome:
    """Here and now."""
    import torch

    from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
    from claw_r1.trainer.learn.objective import Objective

    torch.set_num_threads(1)
    engine = TrainingEngine(
        Path(job.model_dir),
        EngineSettings(
            learning_rate=job.learning_rate,
            zero_stage=job.stage,
            device=job.device,  # type: ignore[arg-type]  # a word of the command line
            precision=job.precision,  # type: ignore[arg-type]  # the job's text is one of the setting's values
            micro_batch_tokens_max=job.micro_batch_tokens_max,
            layout=job.layout,  # type: ignore[arg-type]  # the job's text is one of the setting's values
        ),
    )
    if job.load is not None:
        engine.load(Path(job.load))
    outcome = _steps(engine, Objective(loss=_loss()), job)
    if job.save is not None:
        engine.save(Path(job.save), {})()
    if job.weights is not None:
        torch.save({name: tensor.float().cpu().clone() for name, tensor in engine.named_tensors()}, job.weights)
    return outcome


def _steps(engine: "TrainingEngine", objective: "Objective", job: Job) -> Outcome:  # noqa: F821  # imported where used
    import torch

    cuda = job.device == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    losses, norms, seconds, tokens = [], [], [], 0
    for number in range(job.first, job.first + job.steps):
        examples = batch(job, number, engine.vocabulary)
        tokens = sum(map(len, examples))
        began = time.monotonic()
        step = engine.train(
            objective.scaled(examples, job.groups * job.members), objective, version=number, seed=number
        )
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.monotonic() - began)
        losses.append(step.totals.means()["loss"])
        norms.append(step.grad_norm)
    peak = torch.cuda.max_memory_allocated() if cuda else 0
    return Outcome(losses=losses, norms=norms, seconds=seconds, tokens=tokens, peak_bytes=peak)


def _loss() -> "Loss":  # noqa: F821  # imported where used
    from claw_r1.trainer.algorithms.losses import bound

    return bound("ppo_clip", clip_low=0.2, clip_high=0.28)


def batch(job: Job, number: int, vocabulary: int) -> Sequence["Example"]:  # noqa: F821  # imported where used
    """One sequence per member: the group's prompt, then a response with an advantage of its own."""
    import numpy as np

    from bench.examples import example

    dice = np.random.default_rng((job.seed, number))
    examples, trained = [], range(job.prompt, job.prompt + job.response)
    for group in range(job.groups):
        prompt = dice.integers(0, vocabulary, job.prompt)
        for member in range(job.members):
            ids = np.concatenate([prompt, dice.integers(0, vocabulary, job.response)])
            index, advantage = group * job.members + member, dice.standard_normal()
            likely = -np.log(vocabulary)
            examples.append(example(ids, trained, advantage, likely, group=group, member=index, version=number))
    return examples


def main() -> None:
    """In a process of its own."""
    outcome = run(Job(**json.loads(sys.argv[1])))
    from claw_r1.trainer.learn.engine import leave

    leave()
    print("\n" + json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
