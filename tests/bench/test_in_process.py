import pytest
import torch

from bench.in_process import Context
from claw_r1.claw.demo.verbs.tiny_model import ensure
from tests.caches import CACHE


@pytest.mark.slow
def test_a_conversation_that_goes_on_is_as_if_computed_anew() -> None:
    """Rows of other lengths, a row without news, a row forgotten: the logits after each are those of the whole row alone."""
    from transformers import AutoModelForCausalLM

    model = (
        AutoModelForCausalLM.from_pretrained(ensure(CACHE / "models", 0), dtype=torch.float32)
        .eval()
        .requires_grad_(False)
    )
    context = Context(model, 3)
    for rows, news in (
        ([0, 1, 2], [[65], [66, 67, 68], [70, 71]]),
        ([0, 1, 2], [[72], [], [73]]),
        ([1, 2], [[74, 75], [76]]),
    ):
        context.keep(rows)
        assert context.extended_by([[*ids, 1] for ids in context.ids])
        logits = context.extend(news)
        for ids, new, row in zip(context.ids, news, logits, strict=True):
            if new:
                torch.testing.assert_close(row, model(torch.tensor([ids])).logits[0, -1], atol=1e-4, rtol=1e-4)
    assert context.ids == [[66, 67, 68, 74, 75], [70, 71, 73, 76]]
    assert not context.extended_by([[66, 67, 68, 74, 75], [70, 71, 73]])
