r"""The divergence $\nabla \cdot f = \operatorname{tr} \partial f / \partial x$ of any vector field.

A `Divergence` takes a field and points and returns values and divergence together. `exact` uses
forward-mode derivatives, one tangent per coordinate. A `Probes` value estimates the trace by
$z^\top J z$ with random z; it is unbiased, and noisy. Multi-layer perceptrons have closed forms
instead, beside their definition in `critics/mlp.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import jvp, vmap

from steincritic.errors import InputError, check_choice, check_count
from steincritic.rng import Source
from steincritic.shapes import PerPoint, Points

VectorField = Callable[[Tensor], Tensor]
Divergence = Callable[[VectorField, Points], tuple[Points, PerPoint]]
ProbeKind = Literal["gaussian", "rademacher", "orthogonal"]


def exact(field: VectorField, x: Points) -> tuple[Points, PerPoint]:
    """Values and the exact divergence, by one forward-mode tangent per coordinate.

    >>> exact(lambda x: x**2, torch.tensor([[1.0, 3.0]]))
    (tensor([[1., 9.]]), tensor([8.]))
    """
    d = x.shape[-1]
    basis = torch.eye(d, dtype=x.dtype, device=x.device)
    chunk = max(1, _TANGENT_BUDGET // max(1, x.numel()))  # tangents held at a time
    f = _checked(field, x)

    def diagonal(direction: Tensor) -> Tensor:  # J_jj for the coordinate j that the direction names
        tangent = directional(field, x, direction.expand_as(x))[1]
        return (tangent * direction).sum(-1)

    diagonals: Tensor = vmap(diagonal, chunk_size=chunk)(basis)
    return f, diagonals.sum(0)


def directional(field: VectorField, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """f(x) and its derivative J z in the direction z, in one forward-mode pass."""
    f, tangent = jvp(field, (x.contiguous(),), (z,))[:2]  # duals of expanded arrays do not exist
    return f, tangent


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Hutchinson's estimate of the divergence from `count` random probes.

    Orthogonal probes are columns of a random rotation, each of length sqrt(d); with count = d they are
    exact.
    """

    kind: ProbeKind = "rademacher"
    count: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.kind, name="kind", choices=("gaussian", "rademacher", "orthogonal"))
        check_count(self.count, name="count")

    def __call__(self, field: VectorField, x: Points) -> tuple[Points, PerPoint]:
        f = _checked(field, x)
        total = torch.zeros(x.shape[:-1], dtype=x.dtype, device=x.device)
        for z in self.draw(x):
            tangent = directional(field, x, z)[1]
            total = total + (tangent * z).sum(-1)
        return f, total / self.count

    def draw(self, x: Points) -> Tensor:
        """(count, ..., n, d) probes with identity covariance."""
        source = Source(self.seed, "probes", device=x.device)
        shape = (self.count, *x.shape)
        if self.kind == "gaussian":
            return source.normals(*shape, dtype=x.dtype)
        if self.kind == "rademacher":
            signs = source.integers(2, *shape)
            return (2 * signs - 1).to(x.dtype)
        d = x.shape[-1]  # columns of one random rotation per point
        if self.count > d:
            raise InputError(f"at most {d} orthogonal probes exist in {d} dimensions, got {self.count}")
        z = source.normals(*x.shape, self.count, dtype=x.dtype)
        rotation: Tensor = torch.linalg.qr(z).Q
        return rotation.movedim(-1, 0) * math.sqrt(d)


_TANGENT_BUDGET = 2**24  # numbers in the widest batch of tangents


def _checked(field: VectorField, x: Points) -> Points:
    f = field(x)
    if f.shape != x.shape:
        raise InputError(
            f"a critic maps points to vectors of the same dimension: {tuple(x.shape)} in, "
            f"{tuple(f.shape)} out"
        )
    return f
