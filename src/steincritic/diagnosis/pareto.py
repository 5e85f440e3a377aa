"""Pareto k-hat: can importance weights repair the draws of an approximation?"""

import math

import torch

from steincritic.errors import InputError
from steincritic.shapes import PerPoint

_USABLE = 0.7  # [vehtari2024]
_PRIOR = 10  # draws that a shape of 1/2 counts for


def pareto_k(log_weights: PerPoint) -> float:
    """Shape of the generalized Pareto law that the largest weights follow, as in PSIS [vehtari2024].

    The largest min(n / 5, 3 sqrt(n)) weights, by the estimate of [zhang2009].
    """
    values = log_weights.double().sort().values
    n = len(values)
    tail = math.ceil(min(n / 5, 3 * math.sqrt(n)))
    if tail < 5:
        raise InputError(f"Pareto k-hat needs at least 25 draws, got {n}")
    weights = (values - values[-1]).exp()
    excess = weights[-tail:] - weights[-tail - 1]
    if not float(excess[0]) > 0:
        return math.inf if float(excess[-1]) > 0 else -math.inf  # all but a few weights are alike
    return _shape(excess)


def _shape(x: PerPoint) -> float:
    """Zhang and Stephens' estimate for sorted excesses, drawn to 1/2 as if by ten more."""
    n = len(x)
    grid = 30 + math.isqrt(n)
    quartile = x[math.floor(n / 4 + 0.5) - 1]
    steps = torch.arange(1, grid + 1, dtype=torch.float64) - 0.5
    theta = 1 / x[-1] + (1 - (grid / steps).sqrt()) / (3 * quartile)
    k = torch.log1p(-theta[:, None] * x).mean(-1)  # (grid,)
    likelihood = n * ((-theta / k).log() - k - 1)
    best = (torch.softmax(likelihood, 0) * theta).sum()
    found = float(torch.log1p(-best * x).mean())
    return (n * found + _PRIOR * 0.5) / (n + _PRIOR)


def about_pareto_k(k: float) -> str:
    can = "below 0.7, importance weights can" if k < _USABLE else "at 0.7 or more, importance weights cannot"
    return f"Pareto k-hat of the weights posterior over approximation is {k:.2f}: {can} repair the draws."
