"""E-values of single points, and the wealth of one who bets on them.

An e-value has mean at most one under the model. A gambler who starts with 1 and multiplies the
e-values of points as they come holds wealth W with P(sup W >= 1/level) <= level (Ville), however long
the stream is and however often the wealth is looked at.
"""

import math

import torch
from torch import Tensor

from steincritic.shapes import PerPoint


def soft_rank(own: PerPoint, others: Tensor, etas: Tensor) -> Tensor:
    r"""(n, k) log e-values of points among fresh model draws, one column per η.

    $$e = \frac{(m + 1)\, g(x)}{g(x) + \sum_{j=1}^m g(y_j)}, \qquad g = \exp(\eta w)$$

    Under the model x and its draws y_1 ... y_m are exchangeable given the critic. The m + 1 ratios that
    put each in the place of x then have one law, and their mean is one: E[e] = 1 exactly, for any w.

    Args:
        own: (n,) witness of the points.
        others: (n, m) witness of model draws, other ones for every point.
        etas: (k,) steepness; 0 is no bet.
    """
    tilted = etas * torch.cat([own[:, None], others], -1)[..., None]  # (n, m + 1, k)
    return math.log(tilted.shape[1]) + tilted[:, 0] - tilted.logsumexp(1)


def truncated(own: PerPoint, stakes: Tensor, *, bound: float, limit: float) -> Tensor:
    r"""(n, k) log e-values of bets on a truncated witness, one column per stake.

    $$e = 1 + c\,(v(x) - \delta), \qquad v = \max(-b, \min(w, b)), \quad c = \frac{\text{stake}}{b + \delta}$$

    E[e] <= 1 where δ >= E_q v, and e >= 0 for stakes up to one. Stein's identity is not asked for.

    Args:
        own: (n,) witness of the points.
        stakes: (k,) in [0, 1): shares of the largest bet that cannot ruin.
        bound: δ, see `mean_bound`.
        limit: b.
    """
    gain = own.clamp(-limit, limit) - bound
    return torch.log1p(stakes / (limit + bound) * gain[:, None])


def mean_bound(values: PerPoint, *, limit: float, error: float) -> float:
    r"""An upper bound on the mean of values in [-b, b], wrong with probability at most `error`.

    The empirical Bernstein bound [maurer2009], theorem 4, with variance $s^2$ and $L = \log(2/\text{error})$:
    $$\delta = \bar v + \sqrt{2 s^2 L / m} + \frac{7 \cdot 2b\, L}{3 (m - 1)}$$
    """
    m, log_term = len(values), math.log(2 / error)
    spread = math.sqrt(2 * float(values.var()) * log_term / m)
    return float(values.mean()) + spread + 14 * limit * log_term / (3 * (m - 1))


def wealth_path(log_wealths: Tensor, log_evalues: Tensor) -> tuple[Tensor, Tensor]:
    """Log wealth of every account, (n, k), and of all together, (n,), after each point.

    k accounts hold equal shares of the start, each bets in its own way, and what counts is their mean.
    """
    paths = log_wealths + log_evalues.cumsum(0)
    return paths, pooled_wealth(paths)


def pooled_wealth(log_wealths: Tensor) -> Tensor:
    """log of the mean over accounts (the last axis) of wealths given by their logs."""
    return log_wealths.logsumexp(-1) - math.log(log_wealths.shape[-1])
