"""Laws that the library does not have and studies draw from, and Gaussian ones by their covariance."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steincritic.models import GaussianBernoulliRBM, GaussianMixture
from steincritic.models.rbm import block_gibbs
from steincritic.rng import Source, generator
from steincritic.shapes import PerPoint, Points

SIDE = 8  # pixels of an image


@dataclass(frozen=True)
class Student:
    """The multivariate t distribution."""

    dim: int
    freedom: int
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32  # of draws

    def to(self, device: Any, /) -> "Student":
        return replace(self, device=device)

    def log_prob(self, x: Points) -> PerPoint:
        return -0.5 * (self.freedom + self.dim) * torch.log1p(x.square().sum(-1) / self.freedom)

    def score(self, x: Points) -> Points:
        return -(self.freedom + self.dim) * x / (self.freedom + x.square().sum(-1, keepdim=True))

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, "student", device=self.device)
        z = source.normals(n, self.dim + self.freedom, dtype=self.dtype)
        return z[:, : self.dim] / z[:, self.dim :].square().mean(1, keepdim=True).sqrt()


@dataclass(frozen=True)
class LogGamma:
    """Independent logarithms of Gamma(2) variables: skewed to the left."""

    dim: int
    device: torch.device | str = "cpu"

    def to(self, device: Any, dtype: Any = None, /) -> "LogGamma":
        return replace(self, device=device)

    def score(self, x: Points) -> Points:
        return 2 - x.exp()

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, "log gamma", device=self.device)
        u = 1 - source.uniforms(2, n, self.dim)
        return (-u.log()).sum(0).log()


@dataclass(frozen=True)
class Gamma:
    """Independent Gamma(4) variables: skewed to the right."""

    dim: int

    def score(self, x: Points) -> Points:
        return 3 / x - 1

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = generator(seed, "gamma")
        u = torch.rand(4, n, self.dim, generator=source, dtype=torch.float64).clamp(min=1e-300)
        return -u.log().sum(0)


@dataclass(frozen=True)
class Banana:
    """Standard normal, but for the mean of x2 given x1: curvature times x1² - 1."""

    dim: int
    curvature: float
    device: torch.device | str = "cpu"

    def to(self, device: Any, /) -> "Banana":
        return replace(self, device=device)

    def log_prob(self, x: Points) -> PerPoint:
        return -0.5 * bent(x, -self.curvature).square().sum(-1)

    def score(self, x: Points) -> Points:
        z = bent(x, -self.curvature)
        return replaced(-z, 0, -z[..., :1] + 2 * self.curvature * z[..., :1] * z[..., 1:2])

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, "banana", device=self.device)
        return bent(source.normals(n, self.dim), self.curvature)


def bent(x: Tensor, curvature: float) -> Tensor:
    return replaced(x, 1, x[..., 1:2] + curvature * (x[..., :1].square() - 1))


def perturbed_draws(q: GaussianBernoulliRBM, sigma: float, trials: int, n: int, source: Source) -> Tensor:
    """(trials, n, d): draws of machines with independent errors in all weights [liu2016]."""
    noise = source.normals(trials, *q.weights.shape, dtype=q.weights.dtype)
    weights = q.weights + sigma * noise
    return block_gibbs(weights, q.visible_bias, q.hidden_bias, n, sweeps=q.sweeps, source=source)


def replaced(x: Tensor, column: int, values: Tensor) -> Tensor:
    """With another column."""
    return torch.cat([x[..., :column], values, x[..., column + 1 :]], -1)


def normal(dim: int) -> GaussianMixture:
    return GaussianMixture(torch.zeros(1, dim, dtype=torch.float64))


def gaussian(covariance: Tensor) -> GaussianMixture:
    return GaussianMixture(torch.zeros(1, len(covariance), dtype=torch.float64), covariance[None])


def narrow(dim: int, condition: float) -> GaussianMixture:
    """A normal model whose covariance has this condition number, in no coordinate's direction."""
    along = axes(dim, condition)
    return gaussian(along @ along.T)


def axes(dim: int, condition: float) -> Tensor:
    """Orthogonal columns, from the shortest to one of length 1: the standard deviations along them."""
    return rotation(dim) * torch.logspace(-math.log10(condition) / 2, 0, dim, dtype=torch.float64)


def chain(dim: int, r: float) -> GaussianMixture:
    """Neighbors have correlation r, the next ones r², and so on."""
    place = torch.arange(dim, dtype=torch.float64)
    return gaussian(r ** (place[:, None] - place).abs())


def images() -> GaussianMixture:
    """Smooth random fields with a little noise in every pixel."""
    place = torch.cartesian_prod(*2 * [torch.arange(SIDE, dtype=torch.float64)])
    smooth = torch.exp(-torch.cdist(place, place).square() / (2 * 1.5**2))
    return gaussian(0.9 * smooth + 0.1 * torch.eye(SIDE**2, dtype=torch.float64))


def rotation(dim: int) -> Tensor:
    z = torch.randn(dim, dim, generator=generator(0, "rotation"), dtype=torch.float64)
    basis: Tensor = torch.linalg.qr(z).Q
    return basis


def stein_z(x: Points, score: Points) -> Tensor:
    """Means of Stein moments over their standard errors: d shifts, d² spreads and pairs, and d bends.

    All are zero but for chance if x are draws of the law of that score.
    """
    sd = x.std(0)
    x, score = (x - x.mean(0)) / sd, score * sd
    pairs = score[:, :, None] * x[:, None] + torch.eye(x.shape[1], dtype=x.dtype)
    bend = x.tanh()
    values = torch.cat([score, pairs.flatten(1), score * bend + 1 - bend.square()], 1)
    z: Tensor = values.mean(0) / values.std(0) * len(x) ** 0.5
    return z
