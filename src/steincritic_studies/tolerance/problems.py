"""Data that are wrong by a known amount: exactly as much as is tolerated, or more."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steincritic.data.points import score_points
from steincritic.data.problems import problem
from steincritic.gof.contamination import Contamination, Tilted, largest_value, score_frame
from steincritic.models.mixture import GaussianMixture
from steincritic.models.rbm import GaussianBernoulliRBM
from steincritic.rng import Source, derive, generator
from steincritic.shapes import Points

TOLERANCE, DELTA, SHARE = 0.05, 0.2, 0.05


@dataclass(frozen=True)
class Columns:
    """Independent columns with mean 0 and spread 1: normal, Student (6 degrees) or Gamma (shape 4)."""

    kind: str
    dim: int = 5

    def score(self, x: Points) -> Points:
        if self.kind == "normal":
            return -x
        if self.kind == "student":  # variance 6/4
            scale = math.sqrt(1.5)
            y = x * scale
            return -7 * y / (6 + y.square()) * scale
        y = x * 2 + 4  # Gamma(4): mean 4, spread 2
        return 2 * (3 / y.clamp(min=1e-6) - 1)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, self.kind)
        if self.kind == "normal":
            return source.normals(n, self.dim, dtype=torch.float64)
        if self.kind == "student":
            z = source.normals(7, n, self.dim, dtype=torch.float64)
            return z[0] / z[1:].square().mean(0).sqrt() / math.sqrt(1.5)
        u = 1 - source.uniforms(4, n, self.dim, dtype=torch.float64)
        return (-u.log().sum(0) - 4) / 2


def shifted(x: Points, by: float) -> Points:
    """The first column alone."""
    return torch.cat([x[:, :1] + by, x[:, 1:]], 1)


def widened(x: Points, by: float) -> Points:
    return torch.cat([x[:, :1] * by, x[:, 1:]], 1)


def spread_of_divergence(delta: float) -> float:
    """σ with (σ - 1/σ)² = δ²: the Fisher divergence of N(0, σ²) from N(0, 1)."""
    return (delta + math.sqrt(delta**2 + 4)) / 2


# Of each problem: the model, and draws of it turned into data that are off by `size`.
BOX: dict[str, tuple[str, Callable[[Points, float], Points]]] = {
    "normal, one mean": ("normal", shifted),
    "normal, one spread": ("normal", lambda x, size: widened(x, 1 + size)),
    "normal, all means and spreads": ("normal", lambda x, size: x * (1 + size) + size),
    "Student, all means and spreads": ("student", lambda x, size: x * (1 + size) + size),
    "Gamma, all means, spreads too small": ("gamma", lambda x, size: x / (1 + size) + size),
}
FISHER: dict[str, Callable[[Points, float], Points]] = {
    "normal, one mean": shifted,
    "normal, one spread": lambda x, size: widened(x, spread_of_divergence(size)),
}
FOREIGN: dict[str, Any] = {
    "normal 5-D": lambda: GaussianMixture(torch.zeros(1, 5, dtype=torch.float64)),
    "gm-10d": lambda: problem("gm-10d").model,
}


def worst_place(model: Any, test: Contamination, seed: int) -> Tensor:
    """Where foreign rows do most harm, in the units of the data."""
    x = model.sample(1000, seed=derive(seed, "worst")).double()
    points = score_points(model, x)
    frame = score_frame(model, points, seed=seed)
    tilted = Tilted.of(test, frame.enter(points))
    _, z = largest_value(tilted, model, frame, like=x, seed=seed)
    return frame.location + frame.scale * z


def with_foreign(x: Points, place: Tensor, share: float, seed: int) -> Points:
    """Each row is foreign with this probability."""
    foreign = torch.rand(len(x), generator=generator(seed, "foreign")) < share
    return torch.where(foreign[:, None], place.to(x), x)


def machine(seed: int) -> GaussianBernoulliRBM:
    """50 visible and 10 hidden units, weights of ±1, normal biases, as in [liu2025]."""
    g = generator(seed, "machine")
    weights = 2.0 * torch.randint(0, 2, (50, 10), generator=g).double() - 1
    visible, hidden = (torch.randn(k, generator=g, dtype=torch.float64) for k in (50, 10))
    return GaussianBernoulliRBM(weights, visible, hidden, sweeps=500)


def with_outliers(x: Points, share: float, seed: int) -> Points:
    """As many rows replaced by draws of N(0, 0.1² I)."""
    count = round(share * len(x))
    near_zero = 0.1 * torch.randn(count, x.shape[1], generator=generator(seed, "outliers"), dtype=x.dtype)
    return torch.cat([near_zero, x[count:]])
