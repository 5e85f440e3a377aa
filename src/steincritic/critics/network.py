"""What a bank needs of a network: stacked parameters in, a vector field and its divergence out."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from steincritic.shapes import BankPerPoint, BankPoints

Made = TypeVar("Made")
Parameters = dict[str, Tensor]  # each (e, ...)
Pullback = Callable[[BankPoints, BankPerPoint, Parameters], None]


class Buffers:
    """Arrays that a training step uses again and again instead of asking for fresh memory."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Any] = {}

    def get(self, make: Callable[..., Made], like: Tensor, *sizes: Any) -> Made:
        """What `make(like, *sizes)` gave the first time, with whatever it holds by now."""
        key = make, *sizes
        if key not in self._made:
            self._made[key] = make(like, *sizes)
        made: Made = self._made[key]
        return made


class Network(Protocol):
    """A family of vector fields. Points are (e, n, d): own points per member, or one set expanded."""

    def init(self, dim: int, seeds: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Parameters:
        """One member per seed; a member depends on its own seed alone."""
        ...

    def field(self, parameters: Parameters, x: BankPoints) -> BankPoints: ...

    def field_and_divergence(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None = None
    ) -> tuple[BankPoints, BankPerPoint]:
        """Values and divergence: exact, or estimated with one probe z as z' J z."""
        ...

    def field_and_parts(
        self, parameters: Parameters, x: BankPoints, blocks: Sequence[slice]
    ) -> tuple[BankPoints, BankPoints]:
        """Values, and for each block of coordinates the exact sum of ∂f_j/∂x_j over it, (e, n, k)."""
        ...

    def pullback(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None, buffers: Buffers
    ) -> tuple[BankPoints, BankPerPoint, Pullback]:
        """Values, divergence, and the map that writes the gradient of their cotangents."""
        ...

    def widest(self, parameters: Parameters) -> int:
        """Numbers that one point of one member occupies in the widest layer, for tiling."""
        ...


def autograd_pullback(
    network: Network, parameters: Parameters, x: BankPoints, probe: BankPoints | None
) -> tuple[BankPoints, BankPerPoint, Pullback]:
    """The pullback of any network, by reverse-mode differentiation of its forward formula."""
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    with torch.enable_grad():
        f, div_f = network.field_and_divergence(leaves, x, probe)

    def pull(f_cotangent: BankPoints, div_cotangent: BankPerPoint, into: Parameters) -> None:
        gradients = torch.autograd.grad(
            (f, div_f),
            list(leaves.values()),
            (f_cotangent, div_cotangent),
            allow_unused=True,
            materialize_grads=True,
        )
        for name, gradient in zip(leaves, gradients, strict=True):
            into[name].copy_(gradient)

    return f.detach(), div_f.detach(), pull
