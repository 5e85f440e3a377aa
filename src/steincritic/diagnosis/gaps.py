r"""How far draws are from a posterior, by coordinate: a normal law is fitted to the score at the draws.

In coordinates y in which the draws have mean 0 and covariance I, with scores t, the best line
$t \approx -P (y - m)$ has

$$P = -\tfrac12 E[y t^\top + t y^\top], \qquad m = P^{-1} E[t].$$

A normal posterior has this precision and this mean, wherever the draws lie. Draws of any posterior have P = I
and m = 0 by Stein's identity, so that nothing is off where they are right. Far from the posterior its density
may be no hill, with a P that is not positive; then each coordinate has a line of its own.
"""

from dataclasses import dataclass

import torch
from scipy.special import stdtrit
from torch import Tensor
from torch.nn.functional import pad

from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints

_GROUPS = 32  # of the jackknife
_LEAST = 1e-6  # of a precision or a variance, beside the largest or beside those of the draws


@dataclass(frozen=True, eq=False)
class Gaps:
    """Of d coordinates; z is the value over its standard error, a jackknife of independent draws."""

    shift: Tensor  # (d,) mean of the draws less that of the posterior, in its standard deviations
    log_ratio: Tensor  # (d,) of the spread of the draws to that of the posterior
    shift_z: Tensor
    spread_z: Tensor

    @classmethod
    def of(cls, points: ScoredPoints) -> "Gaps":
        points = points.to("cpu", torch.float64)
        points = Frame.of(points.x).enter(points)
        n, d, groups = len(points), points.dim, min(_GROUPS, len(points) // 2)
        filled = points.map(lambda t: pad(t, (0, 0, 0, -n % groups)).view(-1, groups, d).transpose(0, 1))
        x, s = filled.x, filled.score  # (groups, ., d)
        sums = torch.cat([x.sum(1), s.sum(1), *((x.mT @ t).flatten(1) for t in (x, s))], -1)
        sizes = (torch.arange(n) % groups).bincount()
        whole = sums.sum(0)
        means = torch.cat([whole[None] / n, (whole - sums) / (n - sizes)[:, None]])
        found = _gaps(means, d)
        error = (found[1:] - found[1:].mean(0)).square().sum(0).mul((groups - 1) / groups).sqrt()
        return cls(*found[0], *(found[0] / torch.where(error > 0, error, torch.inf)))

    @property
    def bound(self) -> float:
        """A z that the largest of all exceeds with probability 0.05 where the draws are right."""
        return float(stdtrit(_GROUPS - 1, 1 - 0.025 / (2 * len(self.shift))))


def _gaps(means: Tensor, d: int) -> Tensor:
    """(g, 2, d) shifts and log ratios, from means (g, 2 d + 2 d^2) of x, s, xx' and xs'."""
    x, s, xx, xs = means.split([d, d, d * d, d * d], -1)
    own, product = (both.unflatten(-1, (d, d)) - x[:, :, None] * t[:, None] for both, t in ((xx, x), (xs, s)))
    values, vectors = torch.linalg.eigh(own)
    root, whiten = (
        vectors @ torch.diag_embed(values.clamp(min=_LEAST) ** power) @ vectors.mT for power in (0.5, -0.5)
    )
    yt = whiten @ product @ root
    precision = -(yt + yt.mT) / 2
    if float(torch.linalg.eigvalsh(precision[0])[0]) > _LEAST:
        values, vectors = torch.linalg.eigh(precision)
        covariance = root @ vectors @ torch.diag_embed(1 / values.clamp(min=_LEAST)) @ vectors.mT @ root
    else:
        along = [matrix.diagonal(dim1=-2, dim2=-1) for matrix in (own, -product)]
        covariance = torch.diag_embed(along[0].clamp(min=_LEAST).square() / along[1].clamp(min=_LEAST))
    variance, spread = (matrix.diagonal(dim1=-2, dim2=-1) for matrix in (covariance, own))
    away = -(covariance @ s[..., None])[..., 0]
    return torch.stack([away / variance.sqrt(), (spread.clamp(min=_LEAST) / variance).log() / 2], 1)
