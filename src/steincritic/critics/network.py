"""What a bank needs of a network: stacked parameters in, a vector field and its divergence out."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from steincritic.shapes import BankPerPoint, BankPoints

Parameters = dict[str, Tensor]  # each (e, ...)
Pullback = Callable[[BankPoints, BankPerPoint, Parameters], None]


class Stacked(NamedTuple):
    """Rows of points, and under them as many rows of tangents: (e, 2n, .), and its halves."""

    both: Tensor
    halves: Tensor  # (e, 2, n, .)
    points: Tensor
    tangents: Tensor

    @classmethod
    def several(cls, halves: Tensor) -> Iterator["Stacked"]:
        """Of (k, e, 2, n, .), one after the other; cut at once, as cutting takes its time."""
        arrays = halves.flatten(2, 3), halves, halves[:, :, 0], halves[:, :, 1]
        return map(cls, *(array.unbind() for array in arrays))


class Buffers:
    """Arrays that a training step uses again and again instead of asking for fresh memory."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._stacked: dict[tuple[str, tuple[int, ...]], Stacked] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """An array of this shape with arbitrary content; the same one for the same name and shape."""
        if (name, shape) not in self._arrays:
            self._arrays[name, shape] = like.new_empty(shape)
        return self._arrays[name, shape]

    def stack(self, name: str, half: tuple[int, int, int], like: Tensor) -> Stacked:
        """The same with its halves, each of this shape."""
        if (name, half) not in self._stacked:
            members, rows, columns = half
            (self._stacked[name, half],) = Stacked.several(like.new_empty(1, members, 2, rows, columns))
        return self._stacked[name, half]


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

    def shared(self, parameters: Parameters) -> Sequence[str]:
        """Names of the weights that all members have in common; training keeps their copies alike."""
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
