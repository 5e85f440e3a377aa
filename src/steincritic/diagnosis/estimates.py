"""Estimates with 95 % intervals: how data differ from draws of the model, by their plain statistics.

Standard errors come from influence functions, so none of them needs normal data.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steincritic.gof.power import Rate

_Z = 1.96  # normal quantile of 95 % intervals
OUTER = 0.01  # share of the model outside its central 99 %
_SURE = 3.0  # standard errors
_MORE = 1.5  # times as many points in the tails of the median column, for tails in all directions
FIFTH = 0.2  # share of a column that counts as its outer part when columns are extreme together


@dataclass(frozen=True)
class Estimate:
    """A statistic of the data with its 95 % interval, what the model says, and how far apart they are."""

    value: float
    low: float
    high: float
    expected: float
    gap: float  # in standard errors, that of what the model says included

    @classmethod
    def around(cls, value: float, error: float, expected: float, its_error: float = 0.0) -> "Estimate":
        """A normal interval; the model's value may have an error of its own."""
        gap = abs(value - expected) / max(math.hypot(error, its_error), 1e-300)
        return cls(value, value - _Z * error, value + _Z * error, expected, gap)

    @property
    def above(self) -> bool:
        return self.value > self.expected

    def reaches(self, other: float, errors: float) -> bool:
        """Whether so many standard errors reach another value."""
        low, high = (self.value + errors / _Z * (end - self.value) for end in (self.low, self.high))
        return low <= other <= high

    def narrowed(self, factor: float) -> "Estimate":
        """With errors that are smaller by a factor, as more rows were counted than were looked at."""
        low, high = (self.value + factor * (end - self.value) for end in (self.low, self.high))
        return Estimate(self.value, low, high, self.expected, self.gap / factor)

    def only_if(self, holds: bool) -> "Estimate":
        return self if holds else replace(self, gap=0.0)


def shift(x: Tensor, y: Tensor) -> Estimate:
    """Means of data x less that of draws y, in standard deviations of y; Welch's standard error."""
    scale = _positive(y.std())
    error = math.hypot(_error(x), _error(y)) / scale
    return Estimate.around(float(x.mean() - y.mean()) / scale, error, 0.0)


def spread(x: Tensor, y: Tensor) -> Estimate:
    """Standard deviation over that of the model, of (n,) or of all columns of (n, k) together.

    Normal for the logarithm, whose variance has the kurtosis in it.
    """
    logs = []
    for part in (x.view(len(x), -1), y.view(len(y), -1)):
        squares = (part - part.mean(0)).square().mean(-1)
        mean = _positive(squares.mean())
        logs.append((math.log(mean) / 2, _error(squares) / mean / 2))
    (log_x, error_x), (log_y, error_y) = logs
    log = Estimate.around(log_x - log_y, math.hypot(error_x, error_y), 0.0)
    return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high), 1.0, log.gap)


def correlation(x: Tensor, y: Tensor) -> Estimate:
    """Of the two columns of x and of y; Fisher's z with a standard error that holds for any law."""
    (z_x, error_x), (z_y, error_y) = _fisher(x), _fisher(y)
    z = Estimate.around(z_x, error_x, z_y, error_y)
    value, low, high, expected = (math.tanh(v) for v in (z.value, z.low, z.high, _or_zero(z_y, error_y)))
    return Estimate(value, low, high, expected, z.gap)


def skewness(x: Tensor, y: Tensor) -> Estimate:
    (g_x, error_x), (g_y, error_y) = _skewness(x), _skewness(y)
    return replace(Estimate.around(g_x, error_x, g_y, error_y), expected=_or_zero(g_y, error_y))


def _or_zero(value: float, error: float) -> float:
    """What draws of the model show of it: 0 where two standard errors reach that, as of most models it is."""
    return value if abs(value) > 2 * error else 0.0


def share(inside: Tensor, expected: float, draws: float = math.inf) -> Estimate:
    """Share of points, with Wilson's interval; what is expected comes from so many draws."""
    return counted_share(int(inside.sum()), len(inside), expected, draws)


def counted_share(count: int, n: int, expected: float, draws: float = math.inf) -> Estimate:
    """The same of counted points."""
    rate = Rate(count, n)
    low, high = rate.interval()
    reach = (high if expected > rate.value else low) - rate.value
    error = math.sqrt(expected * (1 - expected) / draws)
    gap = abs(rate.value - expected) / max(math.hypot(reach / _Z, error), 1e-300)
    return Estimate(rate.value, low, high, expected, gap)


def tail_share(x: Tensor, y: Tensor) -> Estimate:
    """Points outside the model's central 99 %; they differ only if they do at the data's own scale too."""
    raw, rescaled = _outside(x, y), _outside(_own_scale(x), _own_scale(y))
    return replace(raw, gap=_agreed(raw, rescaled))


def mean_tail_share(x: Tensor, y: Tensor) -> Estimate:
    """The same in the mean over columns; most of them must differ."""
    shares = []
    for t, u in ((x, y), (_own_scale(x), _own_scale(y))):
        outside = _is_outside(t, u).to(x)
        mean, error = float(outside.mean()), _error(outside.mean(-1))
        estimate = Estimate.around(mean, error, OUTER, math.sqrt(OUTER / u.numel()))
        shares.append(estimate.only_if(_typical(outside.mean(0) - OUTER, mean - OUTER)))
    raw, rescaled = shares
    return replace(raw, low=max(0.0, raw.low), gap=_agreed(raw, rescaled))


def mean_shift(x: Tensor, y: Tensor) -> Estimate:
    """Of standardized (n, k), the mean over columns; most of them must differ, and none the other way."""
    u, v = x.mean(-1), y.mean(-1)
    estimate = Estimate.around(float(u.mean() - v.mean()), math.hypot(_error(u), _error(v)), 0.0)
    shifts, error = x.mean(0) - y.mean(0), (x.var(0) / len(x) + y.var(0) / len(y)).sqrt()
    other_way = bool((shifts * math.copysign(1, estimate.value) < -_SURE * error).any())
    return estimate.only_if(not other_way and _typical(shifts, estimate.value))


def mean_spread(x: Tensor, y: Tensor) -> Estimate:
    """Of standardized (n, k), all columns together; most of them must differ."""
    estimate = spread(x, y)
    return estimate.only_if(_typical((x.std(0) / y.std(0)).log(), math.log(estimate.value)))


def radius_share(x: Tensor, y: Tensor) -> Estimate:
    """Points beyond the model's 99 % radius; in most columns and at the data's own covariance as well."""
    raw = _beyond(x.norm(dim=-1), y.norm(dim=-1))
    middle = float(_is_outside(_own_scale(x), _own_scale(y)).to(x).mean(0).median()) / OUTER
    raw = raw.only_if(middle >= _MORE if raw.above else middle <= 1 / _MORE)
    n, d = x.shape
    if n < 2 * d:
        return raw
    pieces = [part for part in y.split(n) if len(part) == n] or [y]  # with the error of n points in each
    rescaled = _beyond(_own_radius(x), torch.cat([_own_radius(part) for part in pieces]))
    return replace(raw, gap=_agreed(raw, rescaled))


def extreme_share(x: Tensor, y: Tensor) -> Estimate:
    """Points with both columns in their own outer fifth."""
    drawn, observed = (_is_outside(t, t, FIFTH).all(-1) for t in (y, x))
    return share(observed, float(drawn.double().mean()), len(y))


def _positive(value: Tensor) -> float:
    return max(float(value), torch.finfo(torch.float64).tiny)


def _fisher(x: Tensor) -> tuple[float, float]:
    z = (x - x.mean(0)) / x.std(0, correction=0).clamp(min=1e-300)
    r = max(-0.999999, min(0.999999, float(z.prod(-1).mean())))
    influence = z.prod(-1) - r * z.square().mean(-1)
    return math.atanh(r), _error(influence) / (1 - r**2)


def _skewness(x: Tensor) -> tuple[float, float]:
    z = (x - x.mean()) / x.std(correction=0).clamp(min=1e-300)
    g = float(z.pow(3).mean())
    influence = z.pow(3) - g - 3 * z - 1.5 * g * (z.square() - 1)
    return g, _error(influence)


def _own_scale(x: Tensor) -> Tensor:
    """Median 0 and the central 80 % of width 1: what spread there is, without the tails."""
    low, middle, high = (x.quantile(q, 0) for q in (0.1, 0.5, 0.9))
    return (x - middle) / (high - low).clamp(min=1e-300)


def _is_outside(x: Tensor, y: Tensor, share: float = OUTER) -> Tensor:
    return (x < y.quantile(share / 2, 0)) | (x > y.quantile(1 - share / 2, 0))


def _outside(x: Tensor, y: Tensor) -> Estimate:
    return share(_is_outside(x, y), OUTER, len(y))


def _beyond(x: Tensor, y: Tensor) -> Estimate:
    return share(x > y.quantile(1 - OUTER), OUTER, len(y))


def _own_radius(x: Tensor) -> Tensor:
    """Mahalanobis', by the points' own mean and covariance."""
    centered = x - x.mean(0)
    ridge = 1e-9 * torch.eye(x.shape[-1]).to(x)
    root = torch.linalg.cholesky(centered.T @ centered / len(x) + ridge)
    radius: Tensor = torch.linalg.solve_triangular(root, centered.T, upper=False).norm(dim=0)
    return radius


def _agreed(raw: Estimate, rescaled: Estimate) -> float:
    return min(raw.gap, rescaled.gap) if raw.above == rescaled.above else 0.0


def _typical(by_column: Tensor, whole: float) -> bool:
    """Whether a difference in all columns together is half as large, or more, in the median column."""
    return float(by_column.median()) * math.copysign(1, whole) >= abs(whole) / 2


def _error(values: Tensor) -> float:
    return float(values.std()) / math.sqrt(len(values))
