"""What a bank needs of a network: stacked parameters in, a vector field and its divergence out."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from steincritic.shapes import BankPerPoint, BankPoints

Parameters = dict[str, Tensor]  # each (e, ...)
Pullback = Callable[[BankPoints, BankPerPoint], Parameters]


class Network(Protocol):
    """A family of vector fields. Points are (e, n, d): own points a member, or one set expanded."""

    def init(self, dim: int, seeds: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Parameters:
        """One member a seed; a member depends on its own seed alone."""
        ...

    def field(self, parameters: Parameters, x: BankPoints) -> BankPoints: ...

    def field_and_divergence(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None = None
    ) -> tuple[BankPoints, BankPerPoint]:
        """Values and divergence: exact, or estimated with one probe z as z' J z."""
        ...

    def pullback(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None
    ) -> tuple[BankPoints, BankPerPoint, Pullback]:
        """Values, divergence, and the map from their cotangents to the gradient in the parameters."""
        ...

    def row_cost(self, parameters: Parameters) -> int:
        """Numbers that one evaluated point occupies in the widest layer, for chunking."""
        ...


def autograd_pullback(
    network: Network, parameters: Parameters, x: BankPoints, probe: BankPoints | None
) -> tuple[BankPoints, BankPerPoint, Pullback]:
    """The pullback of any network, by reverse-mode differentiation of its forward formula."""
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    with torch.enable_grad():
        f, div_f = network.field_and_divergence(leaves, x, probe)

    def pull(f_cotangent: BankPoints, div_cotangent: BankPerPoint) -> Parameters:
        gradients = torch.autograd.grad(
            (f, div_f),
            list(leaves.values()),
            (f_cotangent, div_cotangent),
            allow_unused=True,
            materialize_grads=True,
        )
        return dict(zip(leaves, gradients, strict=True))

    return f.detach(), div_f.detach(), pull
