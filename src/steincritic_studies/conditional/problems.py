"""Wrong conditional models of two kinds, with their published names and sample sizes [jitkrittum2020]."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.models import Regression
from steincritic.rng import Source, derive
from steincritic.shapes import PerPoint, Points

_HEIGHT, _CENTER, _WIDTH = 10.0, 1.5, 0.8  # of the bump of the variance


@dataclass(frozen=True)
class Problem:
    """A model of y given x, what the data follow instead, and how x is spread."""

    name: str
    dim: int  # of x
    sizes: tuple[int, ...]
    model: Regression
    truth: Regression
    statistic: Callable[[Points, Points], PerPoint]  # of the fitted likelihood ratio, (b, n) y to (b,)

    def covariates(self, n: int, *, seed: int) -> Points:
        source = Source(seed, "covariates")
        if self.dim == 1:
            return 4 * source.uniforms(n, 1, dtype=torch.float64) - 2
        return source.normals(n, self.dim, dtype=torch.float64)

    def data(self, n: int, *, seed: int, is_null: bool = False) -> tuple[Points, Points]:
        x = self.covariates(n, seed=derive(seed, "x"))
        return x, (self.model if is_null else self.truth).sample(x, seed=derive(seed, "y"))


def problems() -> dict[str, Problem]:
    """By their published names; 500 rows are ours."""
    return {"quad_vs_lin_d1": _quadratic()} | {f"g_het_dx{dim}": _spike(dim) for dim in (3, 4, 5, 10)}


def _quadratic() -> Problem:
    """A line for what bends a little: mean x + 1, in truth 0.1 x² more; x uniform on [-2, 2]."""

    def ratio(x: Points, y: Tensor) -> Tensor:
        """Twice the log likelihood ratio with the best coefficient of x²."""
        bend, residual = x[:, 0] ** 2, y - x[:, 0] - 1
        return (residual @ bend) ** 2 / (bend @ bend)

    model, truth = Regression(lambda x: x + 1), Regression(lambda x: x + 1 + 0.1 * x**2)
    return Problem("quad_vs_lin_d1", 1, (100, 400, 500, 700, 1000), model, truth, ratio)


def _spike(dim: int) -> Problem:
    """Variance 1 + 10 exp(-|x - 1.5|² / (2 · 0.8²)) for what has variance 1; x standard normal."""

    def bump(x: Points) -> PerPoint:
        return (-((x - _CENTER) ** 2).sum(1) / (2 * _WIDTH**2)).exp()

    def mean(x: Points) -> Points:
        return x.sum(1) - 1

    def ratio(x: Points, y: Tensor) -> Tensor:
        """The largest log likelihood ratio over heights of the bump, from none to twice the model's."""
        heights = _HEIGHT * torch.arange(0, 2.01, 0.1, dtype=x.dtype)[:, None]
        variance, squares = 1 + heights * bump(x), (y - mean(x)) ** 2  # (h, n), (b, n)
        log_density = -0.5 * (squares @ (1 / variance).T + variance.log().sum(1))  # (b, h)
        return log_density.amax(1) - log_density[:, 10]

    model = Regression(mean, lambda x: (1 + _HEIGHT * bump(x)).sqrt())
    return Problem(f"g_het_dx{dim}", dim, (300, 700, 1100, 1500), model, Regression(mean), ratio)
