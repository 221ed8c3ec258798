"""`claw train --dry-run`: the resolved settings, the batch that the pool would give now, and a rank's memory.

Nothing is written, no run is taken over, no weights are read.
"""

from contextlib import closing

from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.preview import previewed
from claw_r1.datapool.view.view import PoolView
from claw_r1.datapool.view.why import Perspective
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.reader import FactLookup, read_topics
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import BATCHES
from claw_r1.trainer.learn.deepspeed_config import resolved_stage
from claw_r1.trainer.ranks.memory import bytes_per_rank, shape_of
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.weights.device import resolved

CAUGHT_UP_TIMEOUT_S = 600.0


def dry_run(settings: TrainerSettings) -> JsonDict:
    """Settings, batch and memory. Without a broker that answers, the batch is the reason why there is none.

    Raises SettingsInvalid where `lora.targets` names layers that the model has not.
    """
    adapter = _adapter(settings)
    return {
        "settings": settings.model_dump(mode="json"),
        "resolved": {**_resolved(settings), **({"lora": adapter} if adapter else {})},
        "batch": _batch(settings),
        "bytes_per_rank": _memory(settings, adapter.get("parameters")),
    }


def _adapter(settings: TrainerSettings) -> JsonDict:
    """Returns the sizes of what is trained with LoRA; empty without it.

    Torch is imported for it: the layers' names are the model's.
    """
    own = settings.lora
    if not own.rank:
        return {}
    from claw_r1.trainer.learn.model import without_weights
    from claw_r1.trainer.learn.models.lora import parameters_of

    layers, parameters = parameters_of(without_weights(settings.model_dir), own)
    return {"layers": layers, "parameters": parameters, "learning_rate": own.rate(settings.learning_rate)}


def _resolved(settings: TrainerSettings) -> JsonDict:
    """Returns the values that `auto` takes here."""
    device = resolved(settings.device)
    precision = settings.precision if settings.precision != "auto" else "bf16" if device == "cuda" else "fp32"
    return {
        "device": device,
        "precision": precision,
        "zero_stage": resolved_stage(settings.zero_stage, precision),
        "loss": settings.loss_name,
        "norm": settings.norm_name,
    }


def _batch(settings: TrainerSettings) -> JsonDict:
    """Returns the output of `claw pool batch` for this run and this spec."""
    log_settings = settings.log_settings()
    view = PoolView(log_settings, listed=True)
    try:
        runs = RunIndex.of(read_topics(log_settings, [BATCHES]))
        view.start()
        view.wait_caught_up(CAUGHT_UP_TIMEOUT_S)
        run = runs.runs.get(settings.run_id)
        perspective = Perspective(run_id=settings.run_id, version=run.version or 0 if run else 0, spec=settings.spec)
        with closing(FactLookup(log_settings)) as facts:
            return previewed(lambda look: view.ask(lambda rows: look(rows, runs)), facts, perspective).answer
    except LogError as error:
        return {"unknown": str(error)}
    finally:
        view.stop()


def _memory(settings: TrainerSettings, policy_trained: int | None) -> JsonDict:
    """Returns the memory of each model that is trained, in bytes; docs/replaying-a-batch.md has the formula.

    policy_trained: parameters; None: all.
    """
    chosen = _resolved(settings)
    directories = {"policy": settings.model_dir}
    if settings.has_critic:
        directories["critic"] = settings.critic.model_dir or settings.model_dir
    answer: JsonDict = {}
    for name, directory in directories.items():
        shape = shape_of(directory)
        if shape is None:
            answer[name] = {
                "unknown": f"{directory}/config.json says its sizes in words that the formula does not know"
            }
            continue
        answer[name] = bytes_per_rank(
            shape,
            device=chosen["device"],
            precision=chosen["precision"],
            stage=chosen["zero_stage"],
            ranks=settings.ranks,
            tokens=settings.micro_batch_tokens_max,
            checkpointing=settings.optimizer.gradient_checkpointing,
            offload=settings.optimizer.offload,
            trained=policy_trained if name == "policy" else None,
        )
    return answer
