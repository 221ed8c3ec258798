"""Log-probabilities of given tokens, as the engine computed them: logits divided by the temperature of each call.

Only positions that predict a trained token reach the head, some at a time, and their logits are computed again in the
backward pass: with 152k ids, the logits of one position alone take 0.6 MB. The gradient of the weights is summed over the
parts in float32, in one buffer.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

LOGITS_MAX = {"cpu": 1 << 24, "cuda": 1 << 27}
"""Logits of one part: 64 MB in float32 on a CPU, whose caches are small; 512 MB on a GPU,
whose kernels need work."""


class TokenScores(NamedTuple):
    """Both [T], float32."""

    logprobs: Tensor
    entropy: Tensor
    """The entropy of the distribution that the token was drawn from, nats."""


@dataclass(frozen=True, slots=True)
class LogitShape:
    """The transformation of a head's output by its model: cap * tanh(scale * output / cap); cap None: scale *
    output."""

    scale: float = 1.0
    cap: float | None = None

    def __call__(self, output: Tensor) -> Tensor:
        """Any shape, float32."""
        scaled = output if self.scale == 1 else output * self.scale
        return scaled if self.cap is None else torch.tanh(scaled / self.cap) * self.cap

    def pulled_back(self, gradient: Tensor, logits: Tensor) -> Tensor:
        """The gradient by the output from that by the logits. In place."""
        if self.cap is not None:
            gradient.mul_(1 - (logits / self.cap) ** 2)
        return gradient if self.scale == 1 else gradient.mul_(self.scale)


PLAIN = LogitShape()


def score(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    temperatures: Tensor,
    *,
    bias: Tensor | None = None,
    shape: LogitShape = PLAIN,
    entropy_gradient: bool = False,
) -> TokenScores:
    """hidden [T, width]: the states that predict `ids` [T]; weight [vocabulary, width], bias [vocabulary] of the head.

    temperatures [T] of the call that sampled each, > 0. Computed in float32 whatever the logits are. entropy_gradient:
    whether the entropy is differentiable.
    """
    logprobs, entropy = _Scores.apply(hidden, weight, bias, ids, temperatures.float(), shape)
    return TokenScores(logprobs, entropy if entropy_gradient else entropy.detach())


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # Any: torch gives it no type
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        ids: Tensor,
        temperatures: Tensor,
        shape: LogitShape,
    ) -> tuple[Tensor, Tensor]:
        """Logprobs and entropy."""
        logprobs, normalizers, entropy = (torch.empty(len(ids), device=hidden.device) for _ in range(3))
        for part in _parts(len(ids), weight):
            logits = _logits(hidden[part], weight, bias, shape).div_(temperatures[part, None])
            normalizers[part] = logits.logsumexp(-1)
            logprobs[part] = logits.gather(-1, ids[part, None]).squeeze(-1) - normalizers[part]
            chances = (logits - normalizers[part, None]).exp_()
            entropy[part] = normalizers[part] - torch.linalg.vecdot(chances, logits)
        ctx.save_for_backward(hidden, ids, temperatures, normalizers, entropy)
        ctx.set_materialize_grads(False)
        ctx.weight, ctx.bias, ctx.shape = weight, bias, shape  # as they are then: ZeRO 3 takes them away meanwhile
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, by_logprobs: Tensor | None, by_entropy: Tensor | None) -> Any:  # Any: as torch has it
        """d logprob / d z = (one-hot - p) / T and d entropy / d z = -p (log p + H) / T, for logits z before
        the temperature."""
        hidden, ids, temperatures, normalizers, entropy = ctx.saved_tensors
        weight, bias, shape = ctx.weight, ctx.bias, ctx.shape
        of_hidden = torch.empty_like(hidden)
        _, weight_learns, bias_learns, *_ = ctx.needs_input_grad  # a frozen head, beside adapters, costs half
        of_weight = torch.zeros(weight.shape if weight_learns else 0, device=weight.device)
        of_bias = torch.zeros(len(weight), device=weight.device)
        if by_logprobs is None:
            by_logprobs = torch.zeros_like(entropy)
        for part in _parts(len(ids), weight):
            logits = _logits(hidden[part], weight, bias, shape)
            logs = logits / temperatures[part, None] if shape.cap is not None else logits.div_(temperatures[part, None])
            logs -= normalizers[part, None]
            push = by_logprobs[part, None]
            if by_entropy is not None:
                push = push + by_entropy[part, None] * (logs + entropy[part, None])
            gradient = logs.exp_().mul_(-push)
            gradient.scatter_add_(-1, ids[part, None], by_logprobs[part, None])
            gradient = shape.pulled_back(gradient.div_(temperatures[part, None]), logits).to(weight.dtype)
            of_hidden[part] = gradient @ weight
            if weight_learns and weight.dtype == torch.float32:
                of_weight.addmm_(gradient.t(), hidden[part])
            elif weight_learns:
                of_weight.add_(gradient.t() @ hidden[part])
            if bias_learns:
                of_bias.add_(gradient.sum(0))
        by_weight = of_weight.to(weight.dtype) if weight_learns else None
        return of_hidden, by_weight, of_bias.to(weight.dtype) if bias_learns else None, None, None, None


def _parts(count: int, weight: Tensor) -> list[slice]:
    size = max(16, LOGITS_MAX[weight.device.type] // weight.shape[0])
    return [slice(start, start + size) for start in range(0, count, size)]


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, shape: LogitShape) -> Tensor:
    """Not yet divided by the temperature; float32, a tensor of its own."""
    return shape(torch.nn.functional.linear(hidden, weight, bias).float())
