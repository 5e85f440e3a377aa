r"""Radial base kernels $k(x, y) = \varphi(r)$, $r = |x - y|^2$, and the rule for their bandwidth.

A Stein kernel needs three functions of r: φ, φ' and φ''. A kernel here is a frozen
value that knows the shape of φ; its squared length scale is worked out from the data it meets, so
one value serves any dataset, or a stack of datasets each with its own median.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_positive
from steincritic.rng import generator
from steincritic.shapes import Points

Profile = tuple[Tensor, Tensor, Tensor]  # φ(r), φ'(r), φ''(r)
MEDIAN_POINTS = 2500  # the median takes all pairs up to here, and a fixed random subset of points above


class Kernel(Protocol):
    """A radial kernel: its squared length scale on given data, and φ with two derivatives."""

    def squared_scale(self, median: Callable[[], Tensor]) -> Tensor: ...

    def profile(self, r: Tensor, squared_scale: Tensor) -> Profile: ...


@dataclass(frozen=True, kw_only=True)
class RBF:
    r"""$k(x, y) = \exp(-|x - y|^2 / (2 h^2))$ with $h^2$ = factor · bandwidth².

    Args:
        bandwidth: a length, or "median" for the median pairwise distance of the data.
        factor: multiplies the squared bandwidth; δ in [repasky2023] appendix B.3.
    """

    bandwidth: float | Literal["median"] = "median"
    factor: float = 1.0

    def __post_init__(self) -> None:
        _check_length(self.bandwidth, name="bandwidth")
        check_positive(self.factor, name="factor")

    def squared_scale(self, median: Callable[[], Tensor]) -> Tensor:
        return self.factor * _length(self.bandwidth, median) ** 2

    def profile(self, r: Tensor, squared_scale: Tensor) -> Profile:
        gamma = 0.5 / squared_scale
        phi = (r * -gamma).exp()
        first = phi * -gamma
        return phi, first, first * -gamma


@dataclass(frozen=True, kw_only=True)
class IMQ:
    r"""$k(x, y) = (c^2 + |x - y|^2)^\beta$ with $c^2$ = factor · scale², the inverse multiquadric.

    Args:
        scale: a length, or "median" for the median pairwise distance of the data.
        exponent: β in (-1, 0), where the discrepancy controls convergence [gorham2017].
        factor: multiplies the squared scale.
    """

    scale: float | Literal["median"] = 1.0
    exponent: float = -0.5
    factor: float = 1.0

    def __post_init__(self) -> None:
        _check_length(self.scale, name="scale")
        check_positive(self.factor, name="factor")
        if not (isinstance(self.exponent, float) and -1 < self.exponent < 0):
            raise InputError(f"exponent must lie in (-1, 0), for example -0.5: got {self.exponent!r}")

    def squared_scale(self, median: Callable[[], Tensor]) -> Tensor:
        return self.factor * _length(self.scale, median) ** 2

    def profile(self, r: Tensor, squared_scale: Tensor) -> Profile:
        t = r + squared_scale
        phi = t**self.exponent
        first = self.exponent * phi / t
        return phi, first, (self.exponent - 1) * first / t


def squared_scales(kernels: Sequence[Kernel], x: Tensor) -> list[Tensor]:
    """The squared length scale of each kernel on points (..., n, d), float64, () or (...)."""
    median = functools.cache(lambda: median_distance(x))
    return [kernel.squared_scale(median).to(x.device) for kernel in kernels]


def median_distance(x: Tensor) -> Tensor:
    """Median of |x_i - x_j| over all pairs, (..., n, d) to (...), in float64.

    Above MEDIAN_POINTS points it is that of a random subset of MEDIAN_POINTS of them, the same
    subset whatever the seed of a test, so that the bandwidth remains a function of the data alone.
    """
    n = x.shape[-2]
    if n < 2:
        raise InputError(f"a median distance needs at least 2 points, got {n}")
    if n > MEDIAN_POINTS:
        rows = torch.randperm(n, generator=generator(0, "median subset"))[:MEDIAN_POINTS]
        x, n = x[..., rows.to(x.device), :], MEDIAN_POINTS
    x = x.to(torch.float64)
    r = squared_distances(x)
    i, j = torch.triu_indices(n, n, 1, device=x.device)
    middle = _median(r[..., i, j])
    # identical points come out at rounding error, not at zero, when distances are products
    if bool((middle <= 1e-14 * r.amax((-2, -1))).any()):
        raise InputError(
            "the median distance between points is zero: at least half of the pairs of x are duplicates; "
            "remove the duplicates or give the kernel a number instead of 'median'"
        )
    return middle.sqrt()


def squared_distances(x: Tensor) -> Tensor:
    """|x_i - x_j|² as one matrix product, (..., n, d) to (..., n, n)."""
    left, right = distance_factors(x - x.mean(-2, keepdim=True))
    return (left @ right.mT).clamp_(min=0)


def distance_factors(x: Tensor) -> tuple[Tensor, Tensor]:
    """A and B, (..., n, d + 2), with (A B')_ij = |x_i - x_j|²; center x first, to lose no digits."""
    square = x.square().sum(-1, keepdim=True)
    ones = torch.ones_like(square)
    return torch.cat([-2 * x, square, ones], -1), torch.cat([x, ones, square], -1)


def _median(values: Tensor) -> Tensor:
    """The square of the mean of the two middle roots: numpy's median of the roots, squared."""
    count = values.shape[-1]
    low = values.kthvalue((count + 1) // 2).values
    if count % 2:
        return low
    above = torch.where(values > low[..., None], values, math.inf).amin(-1)
    tied = (values <= low[..., None]).sum(-1) > count // 2
    return ((low.sqrt() + torch.where(tied, low, above).sqrt()) / 2) ** 2


def _length(length: float | Literal["median"], median: Callable[[], Tensor]) -> Tensor:
    return median() if length == "median" else torch.tensor(length, dtype=torch.float64)


def _check_length(length: float | Literal["median"], *, name: str) -> None:
    if isinstance(length, str):
        if length != "median":
            raise InputError(f"{name} must be a positive number or 'median', got {length!r}")
    else:
        check_positive(length, name=name)


def stein_witness(points: ScoredPoints, kernel: Kernel, at: Points) -> Points:
    r"""$g(v) = \frac{1}{n} \sum_i [k(x_i, v)\, s(x_i) + \nabla_x k(x_i, v)]$ at each row v of `at`, (J, d).

    The arrow along which a critic would push the model at v; its length measures how far the model
    misses the data around v. Formed by matrix products, in memory n J.
    """
    at = at.to(points.x)
    (squared_scale,) = squared_scales([kernel], points.x)
    center = points.x.mean(0)
    x, v = points.x - center, at - center
    r = (x.square().sum(-1, keepdim=True) + v.square().sum(-1) - 2 * x @ v.mT).clamp(min=0)  # (n, J)
    phi, first, _ = kernel.profile(r, squared_scale.to(x))
    gradients = 2 * (first.mT @ x - first.sum(0)[:, None] * v)
    return (phi.mT @ points.score + gradients) / len(points)
