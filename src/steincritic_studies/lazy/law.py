"""Laws under which the theory takes expectations: finitely many points with weights.

The paper's statements hold for any p. Two laws are of use: the points of a sample with equal
weights, and a quadrature rule that stands for a known density so closely that the Stein identity holds to
rounding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.errors import InputError, check_count, check_positive
from steincritic.models.base import DensityModel
from steincritic.shapes import PerPoint, Points


@dataclass(frozen=True, eq=False)
class Law:
    """p as points (n, d) with positive weights (n,) that sum to one."""

    x: Points
    weights: PerPoint

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or self.weights.shape != self.x.shape[:1]:
            raise InputError(
                f"a law has points (n, d) and weights (n,), got {tuple(self.x.shape)} and "
                f"{tuple(self.weights.shape)}"
            )

    def __len__(self) -> int:
        return len(self.x)

    def inner(self, f: Tensor, g: Tensor) -> Tensor:
        """⟨f, g⟩_p of vector fields (..., n, d) by their values at the points."""
        return ((f * g).sum(-1) * self.weights).sum(-1)

    def norm(self, f: Tensor) -> Tensor:
        return self.inner(f, f).sqrt()


def empirical(x: Points) -> Law:
    """The law of a sample: equal weights."""
    x = x.to(torch.float64)
    return Law(x, x.new_full((len(x),), 1 / len(x)))


def quadrature(density: DensityModel, *, center: float, reach: float, spacing: float, dim: int) -> Law:
    """A grid that integrates smooth functions against a density in one or two dimensions.

    The trapezoidal rule converges faster than any power of the spacing for analytic integrands that
    decay. Points that carry less than 1e-12 of the mass are left out.

    Args:
        center, reach: the grid covers center ± reach in every coordinate.
        spacing: about half the smallest standard deviation of the density gives ten digits.
    """
    check_count(dim, name="dim")
    check_positive(reach, name="reach")
    check_positive(spacing, name="spacing")
    if dim > 2:
        raise InputError(f"a grid serves one or two dimensions, got {dim}; take empirical(x) of a sample")
    steps = int(reach / spacing)
    axis = center + spacing * torch.arange(-steps, steps + 1, dtype=torch.float64)
    x = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
    weights = density.log_prob(x).exp() * spacing**dim
    kept = weights > 1e-12
    return Law(x[kept], weights[kept] / weights[kept].sum())
