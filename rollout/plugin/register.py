"""Entry point `claw_weights` of vllm.general_plugins: vLLM calls it in the API server and in
the engine's process."""

import multiprocessing
import os

BACKEND = "claw"
DIE_WITH_PARENT = "CLAW_ROLLOUT_DIE_WITH_PARENT"


def register() -> None:
    """Make the weight-transfer backend known; idempotent, because vLLM may call it more than once."""
    _die_with_parent()
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory as Factory

    if BACKEND not in Factory._registry:
        Factory.register_engine(BACKEND, "claw_r1.rollout.plugin.weight_transfer", "ClawWeightTransfer")


def _die_with_parent() -> None:
    # Only where our supervisor says so: somebody else's vLLM in this environment loads this plugin too.
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None or os.environ.get(DIE_WITH_PARENT) != "1":
        return
    from claw_r1.runtime.processes.die_with_parent import die_with_parent

    die_with_parent(parent.pid)
