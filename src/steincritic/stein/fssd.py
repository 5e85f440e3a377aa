r"""The finite set Stein discrepancy: the Stein witness looked at in J places only [jitkrittum2017].

$$\xi(x, v) = k(x, v)\, s(x) + \nabla_x k(x, v), \qquad g(v) = E_p\, \xi(x, v), \qquad
  \mathrm{FSSD}^2 = \frac{1}{dJ} \sum_{j=1}^{J} |g(v_j)|^2$$

g is zero everywhere if p = q; where it is long, the model fails. Cost and memory grow as n J d.
"""

import math

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.shapes import Points
from steincritic.stein.kernels import Kernel, squared_scales

_CRITERION_FLOOR = 1e-2  # share of mean |τ|² added to the standard deviation, so that it cannot vanish


def stein_features(points: ScoredPoints, kernel: Kernel, squared_scale: Tensor, locations: Tensor) -> Tensor:
    r"""$\xi(x_i, v_j) = \varphi\, s(x_i) + 2 \varphi' (x_i - v_j)$, (..., n, J, d).

    Args:
        points: (..., n, d).
        squared_scale: of the kernel, () or (...).
        locations: v, (..., J, d).
    """
    away = points.x[..., :, None, :] - locations[..., None, :, :]  # (..., n, J, d)
    phi, first, _ = kernel.profile(away.square().sum(-1), squared_scale.to(away)[..., None, None])
    return phi[..., None] * points.score[..., :, None, :] + 2 * first[..., None] * away


def fssd(features: Tensor) -> Tensor:
    r"""The unbiased estimate, (..., n, J, d) to (...): $\tau_i \cdot \tau_j$ averaged over pairs i ≠ j.

    $$\frac{|\sum_i \tau_i|^2 - \sum_i |\tau_i|^2}{n (n - 1)}, \qquad
      \tau_i = \operatorname{vec}(\xi(x_i, v_1), \dots, \xi(x_i, v_J)) / \sqrt{dJ}$$
    """
    tau = _flat(features).to(torch.float64)  # (..., n, J d)
    n = tau.shape[-2]
    return (tau.sum(-2).square().sum(-1) - tau.square().sum((-2, -1))) / (n * (n - 1))


def power_criterion(features: Tensor) -> Tensor:
    r"""FSSD² over its standard deviation off the null, $\sigma^2 = 4 \operatorname{var}(\tau \cdot E \tau)$.

    At large n the power of the test grows with this ratio [jitkrittum2017].
    """
    tau = _flat(features)
    along = tau @ tau.mean(-2)[..., None]  # (n, 1)
    return fssd(features) / (2 * along.std() + _CRITERION_FLOOR * tau.square().sum(-1).mean())


def null_weights(features: Tensor) -> Tensor:
    r"""Weights ω of the limit law $n\, \mathrm{FSSD}^2 \to \sum_i \omega_i (Z_i^2 - 1)$ under the model.

    They are the eigenvalues of the covariance of τ; the smaller of the covariance and the Gram
    matrix is taken, as both have the same ones.
    """
    tau = _flat(features).to(torch.float64)
    tau = tau - tau.mean(-2, keepdim=True)
    n, size = tau.shape
    matrix = tau.mT @ tau if size <= n else tau @ tau.mT
    try:
        weights: Tensor = torch.linalg.eigvalsh(matrix / (n - 1))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        raise InputError(
            "the features of FSSD have no finite spectrum: look for extreme values of the data, or use ksd"
        ) from None
    return weights.clamp(min=0)


def stein_witness(points: ScoredPoints, kernel: Kernel, at: Points) -> Points:
    r"""$g(v) = \frac{1}{n} \sum_i [k(x_i, v)\, s(x_i) + \nabla_x k(x_i, v)]$ at each row v of `at`, (J, d).

    The arrow along which a critic would push the model at v; its length measures how far the model
    misses the data around v. Formed by matrix products, in memory n J.
    """
    at = at.to(points.x)
    (squared_scale,) = squared_scales([kernel], points.x)
    center = points.x.mean(0)
    x, v = points.x - center, at - center
    r = (x.square().sum(-1, keepdim=True) + v.square().sum(-1) - 2 * x @ v.mT).clamp(min=0)  # (n, J)
    phi, first, _ = kernel.profile(r, squared_scale.to(x))
    gradients = 2 * (first.mT @ x - first.sum(0)[:, None] * v)
    return (phi.mT @ points.score + gradients) / len(points)


def gaussian_locations(x: Tensor, normals: Tensor) -> Tensor:
    """Draws of the Gaussian fitted to points (..., n, d), from normals (J, n): (..., J, d).

    The mean plus a normal combination of the centered points has their mean and their covariance,
    also where that is singular.
    """
    mean = x.mean(-2, keepdim=True)
    return mean + normals.to(x) @ (x - mean) / math.sqrt(x.shape[-2] - 1)


def _flat(features: Tensor) -> Tensor:
    """τ: (..., n, J d)."""
    size = features.shape[-1] * features.shape[-2]
    return features.flatten(-2) / math.sqrt(size)
