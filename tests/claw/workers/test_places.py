"""Which worker sees which GPU."""

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.workers.places import WorkerPlace, worker_places


def places(workers: int | None = None, gpus: str | None = None, ranks: int = 1) -> list[WorkerPlace]:
    return worker_places(workers, gpus, ranks, present=lambda: 4)


def test_gpus_are_dealt_out_in_order() -> None:
    """Each worker sees its own, and as many of them as its engine has ranks."""
    dealt = places(gpus="0,1,2,3", ranks=2)
    assert [place.environment["CUDA_VISIBLE_DEVICES"] for place in dealt] == ["0,1", "2,3"]
    assert {place.environment["CLAW_ROLLOUT_TENSOR_PARALLEL"] for place in dealt} == {"2"}
    assert [place.gpus for place in places(workers=2, gpus="3,1")] == [("3",), ("1",)]


def test_without_gpus_nothing_is_hidden() -> None:
    """One worker is called as ever, several by number; a stack without GPUs says nothing of them."""
    assert places() == [WorkerPlace("rollout")]
    assert [place.name for place in places(workers=2)] == ["rollout-1", "rollout-2"]
    assert [place.engine_name for place in places(workers=2)] == ["vllm-1", "vllm-2"]
    assert "CUDA_VISIBLE_DEVICES" not in places(ranks=2)[0].environment


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gpus": "0,1,2", "ranks": 2}, "3 cannot be dealt into workers of --tp 2"),
        ({"gpus": "0,1", "workers": 3}, "--workers 3 of --tp 1 need 3 GPUs, and --gpus 0,1 has 2"),
        ({"gpus": "0,4"}, "there is no GPU 4; torch sees 4 here"),
        ({"gpus": "0,0"}, "each once"),
        ({"gpus": "0;1"}, "numbers of GPUs"),
        ({"gpus": ""}, "numbers of GPUs"),
    ],
)
def test_what_cannot_be_dealt_is_one_line(wrong: dict[str, object], says: str) -> None:
    """Before anything starts."""
    with pytest.raises(CannotRun, match=says):
        places(**wrong)  # type: ignore[arg-type]  # each a parameter of its type
