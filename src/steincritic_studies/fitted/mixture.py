"""Gaussian mixtures by expectation and maximization, many datasets at a time."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.models.mixture import GaussianMixture
from steincritic.rng import Source
from steincritic.shapes import Numbers

_LLOYD = 10  # rounds of k-means for the start
_TRIED = 4  # candidates for each center there
_RIDGE = 1e-3  # least variance of a component, in variances of a column


@dataclass(frozen=True)
class FitMixture:
    """Points to a mixture with full covariances; a function of the points alone.

    Args:
        components: how many.
        rounds: of expectation and maximization.
    """

    components: int
    rounds: int = 50

    def __call__(self, x: Numbers) -> GaussianMixture:
        weights, means, covariances = self._fitted(torch.as_tensor(x)[None])
        return GaussianMixture(means[0], covariances[0], weights[0])

    def scores(self, x: Tensor) -> Tensor:
        """(r, n, d): each dataset's points scored by the mixture fitted to it."""
        weights, means, covariances = self._fitted(x)
        points = x.double()
        _, linear, precision = natural = _natural(weights, means, covariances)
        shares = (_coefficients(*natural) @ _products(points).mT).softmax(-2).mT  # (r, n, k)
        pulled = (shares @ precision.flatten(-2)).unflatten(-1, precision.shape[-2:])
        scores: Tensor = shares @ linear - (pulled @ points[..., None])[..., 0]
        return scores.to(x)

    def _fitted(self, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (r, k), means (r, k, d) and covariances; found in standardized columns."""
        x = given.double()
        location, scale = x.mean(-2, keepdim=True), x.std(-2, keepdim=True)
        z = (x - location) / scale
        products, shares = _products(z), _k_means(z, self.components).mT  # (r, n, 1 + d + d^2), (r, k, n)
        for _ in range(self.rounds):
            weights, means, covariances = _maximized(shares @ products, x.shape[-1])
            shares = (_coefficients(*_natural(weights, means, covariances)) @ products.mT).softmax(-2)
        outer = scale[..., None] * scale[..., None, :]  # (r, 1, d, d)
        return weights, location + scale * means, covariances * outer


def _products(x: Tensor) -> Tensor:
    """(..., 1 + d + d^2): 1, x and x x', of which a normal log-density is a linear function."""
    square = (x[..., None] * x[..., None, :]).flatten(-2)
    return torch.cat([torch.ones_like(x[..., :1]), x, square], -1)


def _maximized(sums: Tensor, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """From the sums of products over each component, (r, k, 1 + d + d^2)."""
    count = sums[..., :1].clamp(min=1e-6)
    means, second = sums[..., 1 : 1 + d] / count, (sums[..., 1 + d :] / count).unflatten(-1, (d, d))
    covariances = second - means[..., None] * means[..., None, :]
    ridge = _RIDGE * torch.eye(d, dtype=sums.dtype)
    return (count / count.sum(-2, keepdim=True))[..., 0], means, covariances + ridge


def _natural(weights: Tensor, means: Tensor, covariances: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each component: the constant (r, k), Σ⁻¹μ (r, k, d) and Σ⁻¹."""
    precision = torch.linalg.inv(covariances)
    linear = (precision @ means[..., None])[..., 0]
    constant = weights.log() + 0.5 * (torch.logdet(precision) - (linear * means).sum(-1))
    return constant, linear, precision


def _coefficients(constant: Tensor, linear: Tensor, precision: Tensor) -> Tensor:
    """(r, k, 1 + d + d^2): with products, the log of weight times density, up to a constant."""
    return torch.cat([constant[..., None], linear, -0.5 * precision.flatten(-2)], -1)


def _k_means(x: Tensor, k: int) -> Tensor:
    """(r, n, k) of 0 and 1: greedy k-means++ by the same random numbers for every dataset, then Lloyd's."""
    source, rows = Source(0, "start"), torch.arange(len(x))
    near = torch.full(x.shape[:2], torch.inf, dtype=x.dtype)
    centers: list[Tensor] = []
    for j in range(k):
        odds = near if j else torch.ones_like(near)
        at = source.uniforms(_TRIED, dtype=torch.float64) * odds.sum(-1, keepdim=True)
        index = torch.searchsorted(odds.cumsum(-1), at).clamp(max=x.shape[1] - 1)  # (r, tried)
        tried = x[rows[:, None], index]
        reach = torch.minimum(near[:, None], torch.cdist(tried, x).square())  # (r, tried, n)
        best = reach.sum(-1).argmin(-1)
        centers.append(tried[rows, best])
        near = reach[rows, best]
    found = torch.stack(centers, 1)
    for _ in range(_LLOYD):
        own = torch.nn.functional.one_hot(torch.cdist(x, found).argmin(-1), k).to(x)
        count = own.sum(-2)[..., None]
        found = torch.where(count > 0, own.mT @ x / count.clamp(min=1), found)
    return torch.nn.functional.one_hot(torch.cdist(x, found).argmin(-1), k).to(x)
