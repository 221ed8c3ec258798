"""The places of a stack's workers: how many, which GPUs each sees, over how many ranks each spreads its model."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from pydantic import ValidationError

from claw_r1.claw.errors import CannotRun
from claw_r1.weights.device import Wish, cuda_devices, resolved, vllm_is_for_cpu

WORKER = "rollout"


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """One worker of a stack."""

    name: str = WORKER
    """The name of its component: `rollout`, or `rollout-1`, … where there are several."""
    gpus: tuple[str, ...] = ()
    """The GPUs that the worker sees; none: whatever the stack sees."""
    ranks: int = 1
    """Tensor-parallel ranks of its engine."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of its process besides the stack's."""
        ranks = {"CLAW_ROLLOUT_TENSOR_PARALLEL": str(self.ranks)} if self.ranks > 1 else {}
        visible = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(self.gpus)}
        return {**ranks, **(visible if self.gpus else {})}

    @property
    def engine_name(self) -> str:
        """The name of its vLLM, in the status and among the logs."""
        return engine_name(self.name)


def engine_name(worker: str) -> str:
    """`vllm-2` of `rollout-2`."""
    return worker.replace(WORKER, "vllm", 1)


def worker_places(
    workers: int | None, gpus: str | None, ranks: int, *, present: Callable[[], int] = cuda_devices
) -> list[WorkerPlace]:
    """The workers that `--workers`, `--gpus` and `--tp` mean. present: how many GPUs there are.

    Raises CannotRun when the GPUs cannot be dealt out, or one is not there.
    """
    chosen = _chosen(gpus, present) if gpus is not None else []
    if chosen and len(chosen) % ranks:
        raise CannotRun(f"--gpus {gpus}: {len(chosen)} cannot be dealt into workers of --tp {ranks}")
    count = workers or len(chosen) // ranks or 1
    if chosen and count * ranks != len(chosen):
        raise CannotRun(
            f"--workers {count} of --tp {ranks} need {count * ranks} GPUs, and --gpus {gpus} has {len(chosen)}"
        )
    names = [WORKER] if count == 1 else [f"{WORKER}-{number + 1}" for number in range(count)]
    return [
        WorkerPlace(name, tuple(chosen[number * ranks : (number + 1) * ranks]), ranks)
        for number, name in enumerate(names)
    ]


def _chosen(gpus: str, present: Callable[[], int]) -> list[str]:
    chosen = [word.strip() for word in gpus.split(",")]
    if not all(word.isdecimal() for word in chosen) or len(set(chosen)) < len(chosen):
        raise CannotRun(f"--gpus {gpus}: numbers of GPUs as nvidia-smi lists them, each once, with commas between")
    count = present()
    if absent := [word for word in chosen if int(word) >= count]:
        raise CannotRun(f"--gpus {gpus}: there is no GPU {absent[0]}; torch sees {count} here")
    return chosen


def refuse_device(
    device: str,
    *,
    workers: int = 1,
    gpus: str | None = None,
    for_cpu: Callable[[], bool] = vllm_is_for_cpu,
    resolve: Callable[[Wish], str] = resolved,
) -> None:
    """Raises CannotRun where these workers could not run on it. workers: how many are started here."""
    if device not in get_args(Wish):
        raise CannotRun(f"device {device}: it is one of {', '.join(get_args(Wish))}")
    wish = cast("Wish", os.environ.get("CLAW_ROLLOUT_DEVICE", device) if device == "auto" else device)
    wants_cuda = "--gpus" if gpus is not None else "--device cuda" if device == "cuda" else None
    if gpus is not None and device == "cpu":
        raise CannotRun("--gpus with --device cpu: the workers would leave the GPUs alone")
    if workers and wants_cuda and for_cpu():
        raise CannotRun(f"{wants_cuda}: the vLLM that is installed is its CPU build; leave it out")
    if workers > 1 and gpus is None and resolve(wish) == "cuda":
        raise CannotRun(
            f"--workers {workers} on CUDA would all take GPU 0: deal GPUs out with --gpus, or say --device cpu"
        )


def refuse_model(model: Path, ranks: int) -> None:
    """Raises CannotRun for what a worker of so many ranks would refuse, in its words. It says of its GPUs itself."""
    from claw_r1.rollout.errors import CannotStart
    from claw_r1.rollout.process.preflight import check
    from claw_r1.rollout.settings import RolloutSettings

    try:
        check(RolloutSettings(model=model, model_id=model.name, tensor_parallel=ranks, device="cpu", port=0))
    except CannotStart as error:
        raise CannotRun(f"--model {model} --tp {ranks}: {error}") from error
    except ValidationError as broken:  # of its environment variables
        raise CannotRun(f"settings of the workers: {broken.errors()[0]['msg']}") from broken
