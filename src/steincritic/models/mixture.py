"""Gaussian mixtures, with the score in closed form."""

import math
from typing import Any

import torch
from torch import Tensor

from steincritic.errors import InputError, check_count
from steincritic.models.base import Described
from steincritic.rng import Source
from steincritic.shapes import Numbers, PerPoint, Points, counted


class GaussianMixture(Described):
    r"""$q = \sum_k \pi_k N(\mu_k, \Sigma_k)$.

    Args:
        means: (k, d).
        covariances: (k, d, d); (k, d) for diagonal ones; a number or (k,) for multiples of the identity.
        weights: (k,), normalized here; equal when left out.

    >>> q = GaussianMixture([[0.0, 0.0], [3.0, 0.0]], 1.0)
    >>> q.sample(2, seed=0).shape
    torch.Size([2, 2])
    """

    def __init__(self, means: Numbers, covariances: Numbers = 1.0, weights: Numbers | None = None) -> None:
        self.means = as_parameter(means, "means")
        if self.means.ndim != 2:
            raise InputError(f"means must have shape (k, d), got {tuple(self.means.shape)}")
        k, self.dim = self.means.shape
        compact = as_parameter(covariances, "covariances").to(self.means)
        self.covariances = _full_covariances(compact, k, self.dim)
        self.weights = torch.ones(k) if weights is None else as_parameter(weights, "weights")
        self.weights = self.weights.to(self.means)
        if self.weights.shape != (k,) or not bool((self.weights > 0).all()):
            raise InputError(f"weights must be {k} positive numbers, got {self.weights.tolist()}")
        self.weights = self.weights / self.weights.sum()
        if not torch.allclose(self.covariances, self.covariances.mT):
            raise InputError("covariances must be symmetric")
        factors, failed = torch.linalg.cholesky_ex(self.covariances)
        if bool(failed.any()):
            raise InputError(
                f"covariances[{int(failed.nonzero()[0])}] is not positive definite; every component "
                "needs a covariance with positive eigenvalues"
            )
        self._factors = factors  # (k, d, d) lower
        self._precisions = torch.cholesky_inverse(factors)
        log_det = 2 * factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self._log_scale = self.weights.log() - 0.5 * (log_det + self.dim * math.log(2 * math.pi))

    def _about(self) -> str:
        return counted(len(self.means), "component")

    def to(self, *args: Any) -> "GaussianMixture":
        """The same mixture on another device or in another dtype, with the same draws."""
        moved = GaussianMixture(self.means.to(*args), self.covariances.to(*args), self.weights.to(*args))
        moved.columns = self.columns
        return moved

    def with_noise(self, sd: Numbers) -> "GaussianMixture":
        """The mixture of x + sd * z with z standard normal: every covariance grows by sd².

        Args:
            sd: a number, or one per coordinate.
        """
        return GaussianMixture(self.means, self.covariances + noise_covariance(sd, self.means), self.weights)

    def log_prob(self, x: Points) -> PerPoint:
        return self._joint(_points(x, self.dim))[0].logsumexp(-1)

    def score(self, x: Points) -> Points:
        r"""$\sum_k r_k(x)\, \Sigma_k^{-1} (\mu_k - x)$ with responsibilities r."""
        log_joint, pull = self._joint(_points(x, self.dim))
        return (log_joint.softmax(-1)[..., None] * pull).sum(-2)

    def shares(self, x: Points) -> Tensor:
        """(n, k): how much of each point is owed to each component."""
        return self._joint(_points(x, self.dim))[0].softmax(-1)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        source = Source(seed, "mixture", device=self.means.device)
        component = source.choices(self.weights, n)
        z = source.normals(n, self.dim, dtype=self.means.dtype)
        x = torch.empty_like(z)
        for k, (mean, factor) in enumerate(zip(self.means, self._factors, strict=True)):
            rows = component == k
            x[rows] = mean + z[rows] @ factor.T
        return x

    def _joint(self, x: Points) -> tuple[Tensor, Tensor]:
        """log of weight times density (..., k), and Σ⁻¹(μ - x) (..., k, d), for each component."""
        away = self.means.to(x) - x[..., None, :]  # (..., k, d)
        pull = torch.einsum("...kd,kde->...ke", away, self._precisions.to(x))
        return self._log_scale.to(x) - 0.5 * (away * pull).sum(-1), pull


def as_parameter(value: Numbers, name: str) -> Tensor:
    """Finite real numbers of any shape as a float tensor; Python's numbers and integers become doubles."""
    try:
        tensor = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}") from None
    if tensor.is_complex():
        raise InputError(f"{name} must be real numbers, got {tensor.dtype}")
    tensor = tensor if tensor.is_floating_point() else tensor.to(torch.float64)
    if tensor.dtype == torch.float32 and isinstance(value, list | tuple | float):
        tensor = torch.as_tensor(value, dtype=torch.float64)  # Python numbers are doubles
    if not bool(tensor.isfinite().all()):
        raise InputError(f"{name} must be finite")
    return tensor


def noise_covariance(sd: Numbers, like: Tensor) -> Tensor:
    """(d, d), of noise with one standard deviation for all coordinates or one each; like (m, d)."""
    sds = as_parameter(sd, "sd").to(like)
    if sds.shape not in ((), like.shape[1:]):
        raise InputError(f"sd must be a number or {like.shape[1]} numbers, got {tuple(sds.shape)}")
    return torch.diag(sds.square().expand(like.shape[1]))


def _points(points: Points, dim: int) -> Points:
    x: Tensor = torch.as_tensor(points)
    if not x.is_floating_point():
        raise InputError(f"x must hold floating-point numbers, got {x.dtype}")
    if x.ndim < 2 or x.shape[-1] != dim:
        hint = "; for a single point pass x[None]" if x.shape == (dim,) else ""
        raise InputError(f"x must have shape (n, {dim}), got {tuple(x.shape)}{hint}")
    return x


def _full_covariances(covariances: Tensor, k: int, d: int) -> Tensor:
    if covariances.shape in ((), (k,)):
        return (covariances[..., None, None] * torch.eye(d).to(covariances)).expand(k, d, d)
    if covariances.shape == (k, d):
        return torch.diag_embed(covariances)
    if covariances.shape == (k, d, d):
        return covariances
    raise InputError(
        f"covariances must be a number, ({k},), ({k}, {d}) or ({k}, {d}, {d}); got {tuple(covariances.shape)}"
    )
