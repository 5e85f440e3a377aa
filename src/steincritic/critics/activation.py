"""Activations with their first two derivatives, written once, by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

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
    zero, one = _zero_and_one(z.dtype, z.device)
    s = torch.sigmoid(z, out=scratch)
    torch.mul(z, s, out=value)
    torch.lerp(value, one, s, out=first)  # a' = a + s (1 - a)
    torch.lerp(value, first, 2.0, out=second).lerp_(zero, s)  # a'' = (2 a' - a)(1 - s)


@cache
def _zero_and_one(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.zeros((), dtype=dtype, device=device), torch.ones((), dtype=dtype, device=device)


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
