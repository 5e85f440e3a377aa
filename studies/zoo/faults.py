"""The faults: a model q, how the data come to differ from it, how strongly, and at which sample size.

Most truths start from draws of the model and spoil them. To tune a fault, change its strength or its n in
`ZOO`, at the end of this file; its name and its jobs follow. Both come from earlier measurements, or were
chosen by hand on seed 1 so that some method sees the fault in about half to nearly all of the datasets.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from steincritic.data import mixture
from steincritic.models import GaussianMixture, random_rbm
from steincritic.rng import Source, derive
from studies.laws import (
    SIDE,
    Banana,
    Student,
    axes,
    bent,
    chain,
    images,
    narrow,
    normal,
    perturbed_draws,
    replaced,
    rotation,
)

_CONDITION = 1e6  # of the ill-conditioned normal
_PATCH = 3  # pixels to a side, of a patch or a corner of an image


class Raw:
    """What a stack of datasets is made of: draws of the model and random numbers, (trials, n, d) in float32.

    The seed decides them all, given the order in which they are asked for.
    """

    def __init__(self, q: Any, trials: int, n: int, *, seed: int, device: torch.device | str) -> None:
        self.q, self.dim, self.trials, self.n, self.seed = q.to(device), q.dim, trials, n, seed
        self.source = Source(seed, "noise", device=device)

    @cached_property
    def x(self) -> Tensor:
        return self.draws_of(self.q)

    @property
    def first(self) -> Tensor:
        return self.x[..., :1]

    @property
    def second(self) -> Tensor:
        return self.x[..., 1:2]

    def put(self, column: int, values: Tensor) -> Tensor:
        """The draws of the model with another column."""
        return replaced(self.x, column, values)

    def draws_of(self, model: Any) -> Tensor:
        x: Tensor = model.sample(self.trials * self.n, seed=derive(self.seed, "draws"))
        return x.view(self.trials, self.n, -1).to(self.source.device, torch.float32)

    def normal(self, d: int) -> Tensor:
        return self.source.normals(self.trials, self.n, d)

    def uniform(self, d: int) -> Tensor:
        return self.source.uniforms(self.trials, self.n, d)

    def chi_square(self, freedom: float, d: int) -> Tensor:
        return sum((self.normal(d).square() for _ in range(int(freedom))), start=torch.zeros(()))

    def rows(self, share: float) -> Tensor:
        """(trials, n, 1), true in about this share of the rows."""
        return self.uniform(1) < share


@dataclass(frozen=True)
class Fault:
    """A model and a law of the data that differs from it.

    Args:
        pattern: the name, with {} where the strength stands.
        truth: makes (trials, n, d) datasets of their raw material and the strength.
    """

    kind: str
    pattern: str
    model: Any
    truth: Callable[[Raw, float], Tensor]
    strength: float
    n: int

    @property
    def name(self) -> str:
        return self.pattern.format(self.strength)

    def datasets(
        self, trials: int, *, seed: int, device: torch.device | str = "cpu", n: int | None = None
    ) -> Tensor:
        """(trials, n, d) draws of the truth, float32; at any strength from the same random numbers."""
        raw = Raw(self.model, trials, n or self.n, seed=derive(seed, "zoo", self.pattern), device=device)
        return self.truth(raw, self.strength)


def _drawn_from(law: Callable[[int, float], Any]) -> Callable[[Raw, float], Tensor]:
    return lambda raw, strength: raw.draws_of(law(raw.dim, strength))


def _first_variance(raw: Raw, variance: float) -> Tensor:
    return raw.put(0, math.sqrt(variance) * raw.first)


def _off_axis(raw: Raw, by: float) -> Tensor:
    return raw.x + by * axes(raw.dim, _CONDITION)[:, 2].to(raw.x)


def _pair(raw: Raw, r: float) -> Tensor:
    return raw.put(1, r * raw.first + math.sqrt(1 - r**2) * raw.second)


def _factor(raw: Raw, r: float) -> Tensor:
    return math.sqrt(1 - r) * raw.x + math.sqrt(r) * raw.normal(1)


def _student(raw: Raw, freedom: float) -> Tensor:
    return raw.x / (raw.chi_square(freedom, 1) / freedom).sqrt()


def _laplace(raw: Raw, strength: float) -> Tensor:
    u, v = torch.log1p(-raw.uniform(raw.dim)), torch.log1p(-raw.uniform(raw.dim))
    return _blend(raw, strength, (u - v) / math.sqrt(2))


def _uniform(raw: Raw, strength: float) -> Tensor:
    return _blend(raw, strength, math.sqrt(12) * (raw.uniform(raw.dim) - 0.5))


def _blend(raw: Raw, strength: float, other: Tensor) -> Tensor:
    """Of variance 1, as its parts are."""
    return math.sqrt(1 - strength**2) * raw.x + strength * other


def _chi_square(raw: Raw, freedom: float) -> Tensor:
    return (raw.chi_square(freedom, raw.dim) - freedom) / math.sqrt(2 * freedom)


def _outliers(raw: Raw, share: float) -> Tensor:
    return raw.put(0, raw.first + 4 * raw.rows(share))


def _spread_of_second(raw: Raw, strength: float) -> Tensor:
    """Over all rows x2 still has variance 1."""
    return raw.put(1, raw.second * torch.exp(strength * raw.first - strength**2))


def _sizes(raw: Raw, r: float) -> Tensor:
    """A correlated pair, then random signs: normal margins without correlation."""
    return raw.put(1, _pair(raw, r)[..., 1:2] * torch.where(raw.rows(0.5), 1, -1))


def _ring(raw: Raw, freedom: float) -> Tensor:
    """The squared radius of x1 and x2 is a chi-square of mean 2; with 2 degrees they are normal."""
    pair, radius = raw.x[..., :2], (raw.chi_square(freedom, 1) * 2 / freedom).sqrt()
    return torch.cat([radius * pair / pair.norm(dim=-1, keepdim=True), raw.x[..., 2:]], -1)


def _three_signs(raw: Raw, strength: float) -> Tensor:
    """x1 x2 x3 is positive too often; any two of the three are independent."""
    sign = (raw.first * raw.second).sign() * torch.where(raw.rows((1 + strength) / 2), 1, -1)
    return raw.put(2, sign * raw.x[..., 2:3].abs())


def _banana(raw: Raw, curvature: float) -> Tensor:
    """x2 keeps variance 1."""
    return raw.put(1, bent(raw.x, curvature)[..., 1:2] / math.sqrt(1 + 2 * curvature**2))


def _machines(raw: Raw, sigma: float) -> Tensor:
    return perturbed_draws(raw.q, sigma, raw.trials, raw.n, raw.source)


def _paper(raw: Raw, rho: float, omega: float = 0.8) -> Tensor:
    return raw.draws_of(mixture(raw.dim, rho=rho, omega=omega).data)


def _paper_50d(raw: Raw, rho: float) -> Tensor:
    return _paper(raw, rho, omega=0.5)


def _rotated(raw: Raw, rho: float) -> Tensor:
    x = _paper_50d(raw, rho)
    return x @ rotation(raw.dim).to(x)


def _reweighted(raw: Raw, factors: Tensor) -> Tensor:
    """The modes of the model with other weights."""
    weights = raw.q.weights * factors.to(raw.q.weights)
    kept = weights > 0
    return raw.draws_of(GaussianMixture(raw.q.means[kept], raw.q.covariances[kept], weights[kept]))


def _mode_lost(raw: Raw, share: float) -> Tensor:
    return _reweighted(raw, 1 - share * (torch.arange(25) == 7).double())


def _two_weights(raw: Raw, weight: float) -> Tensor:
    return _reweighted(raw, torch.tensor([weight, 1 - weight]))


def _twelve_weights(raw: Raw, by: float) -> Tensor:
    return _reweighted(raw, torch.linspace(1 - by, 1 + by, 12))


def _ball(raw: Raw, share: float, center: float = 0.0) -> Tensor:
    """Some rows come from a small ball instead."""
    return torch.where(raw.rows(share), center + 0.3 * raw.normal(raw.dim), raw.x)


def _elsewhere(raw: Raw, share: float) -> Tensor:
    return torch.where(raw.rows(share), 0.3 * raw.x + 1, raw.x)


def _hole(raw: Raw, radius: float) -> Tensor:
    """The points within 1 of the center fill the ring that is left of it, evenly."""
    center = torch.tensor([0.8, -0.4]).to(raw.x)
    r = (raw.x - center).norm(dim=-1, keepdim=True)
    outward = (radius**2 + (1 - radius**2) * r**2).sqrt()
    return torch.where(r < 1, center + (raw.x - center) * outward / r, raw.x)


def _wobble(raw: Raw, strength: float) -> Tensor:
    """A normal density times 1 + strength sin: as the sine is odd, turning signs is enough."""
    kept = raw.uniform(1) < (1 + strength * (6 * raw.x).sin()) / 2
    return torch.where(kept, raw.x, -raw.x)


def _patch(raw: Raw, contrast: float) -> Tensor:
    factor = torch.ones(SIDE, SIDE)
    factor[2 : 2 + _PATCH, 3 : 3 + _PATCH] = contrast
    return raw.x * factor.flatten().to(raw.x)


def _corner(raw: Raw, share: float) -> Tensor:
    corner = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    corner[:_PATCH, :_PATCH] = True
    return raw.x.masked_fill(raw.rows(share) & corner.flatten().to(raw.x.device), 0.0)


def _blur(raw: Raw, share: float) -> Tensor:
    """Every pixel goes a part of the way to the mean of its four neighbors."""
    image: Tensor = raw.x.unflatten(-1, (SIDE, SIDE))
    wider = torch.nn.functional.pad(image, (1, 1, 1, 1), mode="replicate")
    neighbors = torch.stack([wider.roll(by, along) for along in (-1, -2) for by in (-1, 1)])
    return image.lerp(neighbors.mean(0)[..., 1:-1, 1:-1], share).flatten(-2)


_STEPS = torch.arange(-4.0, 5.0, 2.0, dtype=torch.float64)
_GRID = GaussianMixture(torch.cartesian_prod(_STEPS, _STEPS), 0.3**2)
_TWO = GaussianMixture([10 * [-2.0], 10 * [2.0]])
_TWELVE = GaussianMixture(10 * rotation(12)[:, :4], 0.5**2)
_THREE = GaussianMixture(3 * torch.eye(5, dtype=torch.float64)[:3])
_ROTATED = GaussianMixture(mixture(50).model.means @ rotation(50))
_NARROW = narrow(20, _CONDITION)
_MACHINE = random_rbm(50, 40, seed=0).to(torch.float32)

ZOO = (  # kind, name, model, truth, strength, n; the model is N(0, I) unless the name says otherwise
    Fault("mean", "mean of x1 is {}", normal(50), lambda raw, s: raw.put(0, raw.first + s), 0.35, 200),
    Fault("mean", "every mean is {}", normal(50), lambda raw, s: raw.x + s, 0.04, 400),
    Fault("mean", "ill-conditioned normal, {} sd along a short axis", _NARROW, _off_axis, 0.35, 150),
    Fault("mean", "t(5) model, every mean is {}", Student(10, 5), lambda raw, s: raw.x + s, 0.08, 200),
    Fault("spread", "variance of x1 is {}", normal(50), _first_variance, 1.7, 120),
    Fault("scale", "everything times {}", normal(30), lambda raw, s: s * raw.x, 1.025, 400),
    Fault("pair", "correlation of x1 and x2 is {}", normal(30), _pair, 0.35, 200),
    Fault("factor", "correlation of every pair is {}", normal(30), _factor, 0.025, 200),
    Fault(
        "factor", "chain, correlation of neighbors {} for 0.5", chain(40, 0.5), _drawn_from(chain), 0.57, 100
    ),
    Fault("tails", "multivariate t({})", normal(20), _student, 10, 150),
    Fault("tails", "Laplace margins, strength {:g}", normal(15), _laplace, 1.0, 80),
    Fault("tails", "uniform margins, strength {:g}", normal(10), _uniform, 0.8, 100),
    Fault("tails", "values clipped at ±{:g}", normal(10), lambda raw, s: raw.x.clamp(-s, s), 2.2, 150),
    Fault("tails", "{:.0%} of x1 too large by 4", normal(10), _outliers, 0.02, 200),
    Fault("skew", "chi-square({}) margins", normal(10), _chi_square, 30, 40),
    Fault("dependence", "spread of x2 grows with x1, strength {}", normal(5), _spread_of_second, 0.25, 250),
    Fault("dependence", "sizes of x1 and x2 depend, strength {}", normal(5), _sizes, 0.85, 300),
    Fault("dependence", "ring of x1 and x2, chi-square({})", normal(6), _ring, 4, 200),
    Fault("dependence", "sign of x1 x2 x3, strength {}", normal(4), _three_signs, 0.5, 300),
    Fault("dependence", "banana of curvature {}", normal(3), _banana, 0.4, 200),
    Fault("dependence", "banana of curvature {} for 0.5", Banana(2, 0.5), _drawn_from(Banana), 0.7, 150),
    Fault("dependence", "RBM, weights perturbed by {}", _MACHINE, _machines, 0.01, 1000),
    Fault("mixture", "paper's modes in 2-D, correlation {}", mixture(2).model, _paper, 0.5, 75),
    Fault("mixture", "paper's modes in 10-D, correlation {}", mixture(10).model, _paper, 0.5, 300),
    Fault("mixture", "paper's modes in 25-D, correlation {}", mixture(25).model, _paper, 0.5, 500),
    Fault("mixture", "paper's modes in 50-D, correlation {}", mixture(50).model, _paper_50d, 0.5, 200),
    Fault("mixture", "paper's modes in 50-D rotated, correlation {}", _ROTATED, _rotated, 0.5, 500),
    Fault("cell", "{:.0%} of one mode of 25 lost", _GRID, _mode_lost, 1.0, 400),
    Fault("cell", "two far modes, weight {} for 0.5", _TWO, _two_weights, 0.6, 300),
    Fault("cell", "twelve modes, weights off by up to {:.0%}", _TWELVE, _twelve_weights, 0.4, 300),
    Fault("cluster", "{:.0%} of rows in a ball between three modes", _THREE, _ball, 0.05, 200),
    Fault("cluster", "{:.0%} of rows in a ball", normal(5), lambda raw, s: _ball(raw, s, 0.8), 0.06, 200),
    Fault("cluster", "{:.0%} of rows are 0.3 x + 1", normal(20), _elsewhere, 0.03, 300),
    Fault("local", "hole of radius {} in the plane", normal(2), _hole, 0.5, 300),
    Fault("local", "density times 1 + {} sin 6x", normal(1), _wobble, 0.5, 250),
    Fault("local", "values rounded to {}", normal(2), lambda raw, s: s * (raw.x / s).round(), 0.5, 300),
    Fault("image", "8 x 8 images, a patch times {}", images(), _patch, 1.15, 100),
    Fault("image", "8 x 8 images, blurred by {}", images(), _blur, 0.04, 100),
    Fault("image", "8 x 8 images, {:.0%} without a corner", images(), _corner, 0.25, 200),
)
