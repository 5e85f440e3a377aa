"""Gaussian mixtures by expectation and maximization, many datasets at a time."""

import math
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
        log_joint, pull = _joint(x.double(), weights, means, covariances)
        return (log_joint.softmax(-2)[..., None] * pull).sum(-3).to(x)

    def _fitted(self, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (r, k), means (r, k, d) and covariances; found in standardized columns."""
        x = given.double()
        location, scale = x.mean(-2, keepdim=True), x.std(-2, keepdim=True)
        z = (x - location) / scale
        shares = _k_means(z, self.components)  # (r, k, n)
        for _ in range(self.rounds):
            weights, means, covariances = _maximized(z, shares)
            shares = _joint(z, weights, means, covariances)[0].softmax(-2)
        outer = scale[..., None] * scale[..., None, :]  # (r, 1, d, d)
        return weights, location + scale * means, covariances * outer


def _maximized(x: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    count = shares.sum(-1).clamp(min=1e-6)  # (r, k)
    means = shares @ x / count[..., None]
    away = x[:, None] - means[..., None, :]  # (r, k, n, d)
    covariances = (shares[..., None] * away).mT @ away / count[..., None, None]
    ridge = _RIDGE * torch.eye(x.shape[-1], dtype=x.dtype)
    return count / count.sum(-1, keepdim=True), means, covariances + ridge


def _joint(x: Tensor, weights: Tensor, means: Tensor, covariances: Tensor) -> tuple[Tensor, Tensor]:
    """log of weight times density (r, k, n), and Σ⁻¹(μ - x) (r, k, n, d)."""
    factor = torch.linalg.cholesky(covariances)
    away = means[..., None, :] - x[:, None]
    pull = torch.cholesky_solve(away.mT, factor).mT
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    scale = weights.log() - 0.5 * (log_det + x.shape[-1] * math.log(2 * math.pi))
    return scale[..., None] - 0.5 * (away * pull).sum(-1), pull


def _k_means(x: Tensor, k: int) -> Tensor:
    """(r, k, n) of 0 and 1: greedy k-means++ by the same random numbers for every dataset, then Lloyd's."""
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
        own = torch.nn.functional.one_hot(torch.cdist(x, found).argmin(-1), k).mT.to(x)
        count = own.sum(-1, keepdim=True)
        found = torch.where(count > 0, own @ x / count.clamp(min=1), found)
    return torch.nn.functional.one_hot(torch.cdist(x, found).argmin(-1), k).mT.to(x)
