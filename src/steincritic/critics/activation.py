"""Activations with their first two derivatives, written once, by hand."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Activation:
    """A smooth function of one variable.

    Args:
        value: z -> a(z).
        with_first: z -> a(z), a'(z), differentiable.
        into: (z, value, first, second, scratch) writes a, a' and a'' of z into the given arrays.
    """

    value: Callable[[Tensor], Tensor]
    with_first: Callable[[Tensor], tuple[Tensor, Tensor]]
    into: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]


def _silu_first(z: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(z)
    value = z * s
    return value, s + value * (1 - s)


def _silu_into(z: Tensor, value: Tensor, first: Tensor, second: Tensor, scratch: Tensor) -> None:
    s = torch.sigmoid(z, out=scratch)
    torch.mul(z, s, out=value)
    rest = torch.sub(1, s, out=second)  # 1 - s
    torch.addcmul(s, value, rest, out=first)  # a' = s + a (1 - s)
    s.addcmul_(value, s, value=-1).add_(first)
    second.mul_(s)  # a'' = (1 - s)(s - a s + a')


def _softplus_first(z: Tensor) -> tuple[Tensor, Tensor]:
    return torch.nn.functional.softplus(z), torch.sigmoid(z)


def _softplus_into(z: Tensor, value: Tensor, first: Tensor, second: Tensor, scratch: Tensor) -> None:
    value.copy_(torch.nn.functional.softplus(z))
    torch.sigmoid(z, out=first)
    torch.addcmul(first, first, first, value=-1, out=second)


def _tanh_first(z: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.tanh(z)
    return value, 1 - value * value


def _tanh_into(z: Tensor, value: Tensor, first: Tensor, second: Tensor, scratch: Tensor) -> None:
    torch.tanh(z, out=value)
    torch.mul(value, value, out=scratch)
    torch.sub(1, scratch, out=first)
    torch.mul(value, first, out=second).mul_(-2)


ACTIVATIONS: dict[str, Activation] = {
    "silu": Activation(torch.nn.functional.silu, _silu_first, _silu_into),
    "softplus": Activation(torch.nn.functional.softplus, _softplus_first, _softplus_into),
    "tanh": Activation(torch.tanh, _tanh_first, _tanh_into),
}
