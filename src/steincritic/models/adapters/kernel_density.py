"""Kernel density estimates with Gaussian kernels: a mixture with a component at every point."""

import math

import torch
from torch import Tensor

from steincritic.errors import InputError, check_count
from steincritic.models.base import Described
from steincritic.models.mixture import as_parameter, noise_covariance
from steincritic.rng import Source
from steincritic.shapes import Numbers, PerPoint, Points, counted

_BLOCK = 4_000_000  # distances held at once


class KernelDensity(Described):
    r"""$q(x) = \sum_i w_i N(x; t_i, H)$, all kernels with one covariance H.

    Args:
        points: t, (m, d).
        covariance: H, (d, d).
        weights: (m,), normalized here; equal when left out.
    """

    def __init__(self, points: Numbers, covariance: Numbers, weights: Numbers | None = None) -> None:
        self.points = as_parameter(points, "points")
        self.dim = self.points.shape[1]
        self._factor = lower_factor(covariance, self.points, "covariance")
        weights = torch.ones(len(self.points)) if weights is None else as_parameter(weights, "weights")
        weights = weights.to(self.points)
        self._log_weights: Tensor = (weights / weights.sum()).log()
        log_det = 2 * self._factor.diagonal().log().sum()
        self._log_scale = -0.5 * (float(log_det) + self.dim * math.log(2 * math.pi))
        self._inside = whitened(self.points, self._factor)

    def _about(self) -> str:
        return counted(len(self.points), "kernel")

    def with_noise(self, sd: Numbers) -> "KernelDensity":
        """The same with wider kernels, those of x + sd * z with z standard normal."""
        covariance = self._factor @ self._factor.T + noise_covariance(sd, self.points)
        return KernelDensity(self.points, covariance, self._log_weights.exp())

    @property
    def fitted_to(self) -> Points:
        return self.points

    def log_prob(self, x: Points) -> PerPoint:
        blocks = self._blocks(whitened(x, self._factor))
        return torch.cat([self._joint(rows).logsumexp(-1) for rows in blocks]) + self._log_scale

    def score(self, x: Points) -> Points:
        r"""$H^{-1} (\sum_i r_i(x) t_i - x)$ with responsibilities r."""
        y, inside = whitened(x, self._factor), self._inside.to(x)
        means = torch.cat([self._joint(rows).softmax(-1) @ inside for rows in self._blocks(y)])
        return unwhitened(means - y, self._factor)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        source = Source(seed, "kernel density", device=self.points.device)
        rows = source.choices(self._log_weights.exp(), n)
        z = source.normals(n, self.dim, dtype=self.points.dtype)
        return self.points[rows] + z @ self._factor.T

    def _joint(self, y: Points) -> Tensor:
        """(n, m): log of weight times kernel, up to its constant; differences keep the digits."""
        inside = self._inside.to(y)
        squared = torch.zeros(len(y), len(inside), dtype=y.dtype, device=y.device)
        for j in range(self.dim):
            squared = squared + (y[:, j, None] - inside[:, j]).square()
        return self._log_weights.to(y) - 0.5 * squared

    def _blocks(self, y: Points) -> tuple[Tensor, ...]:
        blocks: tuple[Tensor, ...] = y.split(max(1, _BLOCK // len(self.points)))
        return blocks


def lower_factor(matrix: Numbers, like: Tensor, name: str) -> Tensor:
    """(d, d), lower: Cholesky's factor of a covariance or a shape."""
    factor, failed = torch.linalg.cholesky_ex(as_parameter(matrix, name).to(like))
    if bool(failed):
        raise InputError(f"the {name} matrix is not positive definite, so there is no density")
    lower: Tensor = factor
    return lower


def whitened(x: Points, factor: Tensor) -> Points:
    """Coordinates in which a normal law of that covariance is standard normal."""
    y: Tensor = torch.linalg.solve_triangular(factor.to(x).T, x, upper=True, left=False)
    return y


def unwhitened(slope: Points, factor: Tensor) -> Points:
    """A slope in whitened coordinates as one in x."""
    pull: Tensor = torch.linalg.solve_triangular(factor.to(slope), slope, upper=False, left=False)
    return pull
