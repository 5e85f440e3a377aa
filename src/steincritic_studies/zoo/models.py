"""The models of the zoo that the library does not have, and Gaussian ones by their covariance."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from steincritic.models.base import SamplingModel
from steincritic.models.mixture import GaussianMixture
from steincritic.rng import Source, generator
from steincritic.shapes import PerPoint, Points

SIDE = 8  # pixels of an image


class ZooModel(SamplingModel, Protocol):
    """A model that can be sampled and moved to a device."""

    @property
    def dim(self) -> int: ...
    def to(self, device: Any, /) -> "ZooModel": ...


@dataclass(frozen=True)
class Student:
    """The multivariate t distribution."""

    dim: int
    freedom: int
    device: torch.device | str = "cpu"

    def to(self, device: Any, /) -> "Student":
        return replace(self, device=device)

    def log_prob(self, x: Points) -> PerPoint:
        return -0.5 * (self.freedom + self.dim) * torch.log1p(x.square().sum(-1) / self.freedom)

    def score(self, x: Points) -> Points:
        return -(self.freedom + self.dim) * x / (self.freedom + x.square().sum(-1, keepdim=True))

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, "student", device=self.device)
        z = source.normals(n, self.dim + self.freedom)
        return z[:, : self.dim] / z[:, self.dim :].square().mean(1, keepdim=True).sqrt()


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


def replaced(x: Tensor, column: int, values: Tensor) -> Tensor:
    """With another column."""
    return torch.cat([x[..., :column], values, x[..., column + 1 :]], -1)


def normal(dim: int) -> GaussianMixture:
    return GaussianMixture(torch.zeros(1, dim, dtype=torch.float64))


def gaussian(covariance: Tensor) -> GaussianMixture:
    return GaussianMixture(torch.zeros(1, len(covariance), dtype=torch.float64), covariance[None])


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


def axes(dim: int) -> Tensor:
    """Orthogonal columns whose lengths go from 0.001 to 1, the standard deviations along them."""
    return rotation(dim) * torch.logspace(-3, 0, dim, dtype=torch.float64)
