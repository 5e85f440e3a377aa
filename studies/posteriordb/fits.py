"""Draws that often stand for a posterior: of normal fits, and of chains that stopped too early.

A variational fit maximizes the evidence lower bound over base draws that stay the same, so that L-BFGS can do
it [giordano2024]. The base draws have mean zero and unit covariance exactly, so a normal posterior is fitted
exactly.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from steincritic.rng import generator
from steincritic.shapes import Points
from studies.posteriordb.densities import DatabasePosterior

LAPLACE, MEAN_FIELD, FULL_RANK = FAMILIES = ("Laplace", "mean field", "full rank")
_BASE = 256  # base draws, and as many with the other sign
_STEPS = 300  # of L-BFGS
_FAR = 3.0  # how much wider than the posterior chains begin
_EARLY = 2  # steps per coordinate
Normal = tuple[Tensor, Tensor]  # mean (d,) and root (d, d): x = mean + root z


def fit(q: DatabasePosterior, family: str, near: Points) -> Normal:
    """The nearest normal of a family; `near` are draws, in whose units it is sought."""
    mean, root = _laplace(q, near)
    if family == LAPLACE:
        return mean, root
    if family == MEAN_FIELD:
        root = torch.cholesky_inverse(root).diagonal().rsqrt().diag()
    return _by_elbo(q, mean, root, mixed=family == FULL_RANK)


def sample(normal: Normal, n: int, *, seed: int) -> Points:
    mean, root = normal
    return mean + _normals(n, len(mean), generator(seed, "normal fit")) @ root.T


def _laplace(q: DatabasePosterior, near: Points) -> Normal:
    """The mode, and the inverse of the curvature there."""
    start, root = near.mean(0), torch.linalg.cholesky(torch.cov(near.T))
    y = torch.zeros(len(start), dtype=torch.float64, requires_grad=True)

    def energy(y: Tensor) -> Tensor:
        return -q.log_prob((start + root @ y)[None])[0]

    _minimize(lambda: energy(y), [y])
    curvature: Tensor = torch.autograd.functional.hessian(energy, y.detach())
    covariance = torch.cholesky_inverse(torch.linalg.cholesky((curvature + curvature.T) / 2))
    return start + root @ y.detach(), torch.linalg.cholesky(root @ covariance @ root.T)


def _by_elbo(q: DatabasePosterior, mean: Tensor, unit: Tensor, *, mixed: bool) -> Normal:
    """Maximize E log q + log det over means and scales, or triangles, in units of a first root."""
    d = len(mean)
    z = _normals(_BASE, d, generator(0, "base draws"))
    z = torch.cat([z, -z])
    z = torch.linalg.solve_triangular(torch.linalg.cholesky(z.T @ z / len(z)), z.T, upper=False).T
    shift, log_scale = (torch.zeros(d, dtype=torch.float64, requires_grad=True) for _ in range(2))
    below = torch.zeros(d, d, dtype=torch.float64, requires_grad=mixed)

    def moved() -> Normal:
        return mean + unit @ shift, unit @ (log_scale.exp().diag() + below.tril(-1))

    def loss() -> Tensor:
        place, root = moved()
        return -q.log_prob(place + z @ root.T).mean() - log_scale.sum()

    _minimize(loss, [shift, log_scale, below][: 3 if mixed else 2])
    with torch.no_grad():
        return moved()


def _minimize(loss: Callable[[], Tensor], parameters: list[Tensor]) -> None:
    search = torch.optim.LBFGS(
        parameters,
        max_iter=_STEPS,
        tolerance_grad=1e-7,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        search.zero_grad()
        value = loss()
        value.backward()
        return value

    search.step(closure)


def early_draws(q: DatabasePosterior, near: Points, n: int, *, seed: int) -> Points:
    """n draws, each the end of a random walk of its own that began far out and stopped too early.

    Steps have the best size for a normal law in coordinates of unit spread [roberts1997]. Some ten steps
    per coordinate would be needed to forget the start if coordinates were uncorrelated.
    """
    location, scale, source = near.mean(0), near.std(0), generator(seed, "early")
    d = len(scale)
    x = location + _FAR * scale * _normals(n, d, source)
    value = q.log_prob(x)
    for _ in range(_EARLY * d):
        step = x + 2.38 / d**0.5 * scale * _normals(n, d, source)
        new = q.log_prob(step)
        taken = torch.rand(n, generator=source, dtype=torch.float64).log() < new - value
        x, value = torch.where(taken[:, None], step, x), torch.where(taken, new, value)
    return x


def _normals(n: int, d: int, source: torch.Generator) -> Tensor:
    return torch.randn(n, d, generator=source, dtype=torch.float64)
