"""Gaussian mixtures by expectation and maximization, many datasets at a time."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.models import GaussianMixture
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
        weights, means, covariances = self._fitted(torch.as_tensor(x)[None].double())
        return GaussianMixture(means[0], covariances[0], weights[0])

    def scores(self, x: Tensor) -> Tensor:
        """(r, n, d): each dataset's points scored by the mixture fitted to it."""
        points = x.double()
        shares, pulled = _shares(points, *self._fitted(points))
        return -(shares[..., None] * pulled).sum(1).to(x)

    def _fitted(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (r, k), means (r, k, d) and covariances; found in standardized columns."""
        location, scale = x.mean(-2, keepdim=True), x.std(-2, keepdim=True)
        z = (x - location) / scale
        ridge = _RIDGE * torch.eye(x.shape[-1], dtype=z.dtype)
        shares = _k_means(z, self.components).mT
        for _ in range(self.rounds):
            count = shares.sum(-1, keepdim=True).clamp(min=1e-6)  # (r, k, 1)
            weights, means = (count / count.sum(1, keepdim=True))[..., 0], shares @ z / count
            away = z[:, None] - means[:, :, None]  # (r, k, n, d)
            covariances = (shares[..., None] * away).mT @ away / count[..., None] + ridge
            shares, _ = _shares(z, weights, means, covariances)
        return weights, location + scale * means, covariances * scale[..., None] * scale[..., None, :]


def _shares(x: Tensor, weights: Tensor, means: Tensor, covariances: Tensor) -> tuple[Tensor, Tensor]:
    """(r, k, n) of each component in each point, and Σ⁻¹ (x - μ) there."""
    precision, away = torch.linalg.inv(covariances), x[:, None] - means[:, :, None]
    pulled = away @ precision
    log_weights = weights.log() + 0.5 * torch.logdet(precision)
    return (log_weights[..., None] - 0.5 * (away * pulled).sum(-1)).softmax(1), pulled


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
