"""Activations with their first two derivatives, written once, by hand."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Activation:
    """A smooth function of one variable: itself, with its first, and with its first two derivatives."""

    value: Callable[[Tensor], Tensor]
    with_first: Callable[[Tensor], tuple[Tensor, Tensor]]
    with_second: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


def _silu_first(z: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(z)
    value = z * s
    return value, s + value * (1 - s)


def _silu_second(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    s = torch.sigmoid(z)
    value = z * s
    rest = 1 - s
    first = torch.addcmul(s, value, rest)
    second = torch.addcmul(s + first, value, s, value=-1).mul_(rest)
    return value, first, second


def _softplus_first(z: Tensor) -> tuple[Tensor, Tensor]:
    return torch.nn.functional.softplus(z), torch.sigmoid(z)


def _softplus_second(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value, first = _softplus_first(z)
    return value, first, first * (1 - first)


def _tanh_first(z: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.tanh(z)
    return value, 1 - value * value


def _tanh_second(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value, first = _tanh_first(z)
    return value, first, -2 * value * first


ACTIVATIONS: dict[str, Activation] = {
    "silu": Activation(torch.nn.functional.silu, _silu_first, _silu_second),
    "softplus": Activation(torch.nn.functional.softplus, _softplus_first, _softplus_second),
    "tanh": Activation(torch.tanh, _tanh_first, _tanh_second),
}
