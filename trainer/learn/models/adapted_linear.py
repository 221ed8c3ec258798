"""A linear layer with its adapter as one function: x W' + s · x A' B', added where the product lies.

peft's own forward makes three more tensors of the output's size, and its backward two: by it a step of adapters took
0.87 of a full one's CPU seconds, by this one 0.77 (`bench.trainer.step`). W is frozen: it has no gradient.
"""

from typing import Any

import torch
from torch import Tensor


class AdaptedLinear(torch.autograd.Function):
    """x [..., in], weight [out, in], bias [out], a [rank, in], b [out, rank] -> [..., out]."""

    @staticmethod
    def forward(  # Any: torch gives ctx no type
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        """The layer's output."""
        flat = x.reshape(-1, x.shape[-1])
        low = (flat @ a.t()).mul_(scale)
        out = torch.nn.functional.linear(flat, weight, bias).addmm_(low, b.t())
        ctx.save_for_backward(flat, low)
        ctx.weight, ctx.a, ctx.b = weight, a, b  # as they are then: ZeRO 3 takes them away meanwhile
        ctx.scale = scale
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # Any: torch's
        """With g the gradient of the output and l = s · x A': g W + s · g B A of x, (s · g B)' x of A and g' l of B."""
        flat, low = ctx.saved_tensors
        weight, a, b = ctx.weight, ctx.a, ctx.b
        shape, gradient = gradient.shape, gradient.reshape(-1, gradient.shape[-1])
        of_low = (gradient @ b).mul_(ctx.scale)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (gradient @ weight).addmm_(of_low, a).view(*shape[:-1], -1)
        of_b = (low.t() @ gradient).t()  # several times as fast as the product the other way round
        return of_x, None, None, of_low.t() @ flat, of_b, None
