"""Stein's identity on a model's own draws, as numbers; what dependent draws are worth."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints
from steincritic.shapes import PerPoint, Points

FALSE_ALARM = 1e-3  # of all test functions together, for a right model
_TAIL_SHARE = 0.05  # of the sum of squares in one draw, from which on a mean is not nearly normal


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The worst of E_q[T_q f] = 0 over the test functions, in standard errors."""

    worst: float
    bound: float
    function: str
    heavy: bool  # only means that rest on a few draws exceed the bound
    ratio: float  # by which factor the score looks too large

    @property
    def holds(self) -> bool:
        return abs(self.worst) <= self.bound


_Function = tuple[str, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
_FUNCTIONS: tuple[_Function, ...] = (  # name, g, g'
    ("1", torch.ones_like, torch.zeros_like),
    ("x", lambda y: y, torch.ones_like),
    ("x²", torch.square, lambda y: 2 * y),
    ("tanh x", torch.tanh, lambda y: 1 - torch.tanh(y) ** 2),
)


def stein_identity(draws: ScoredPoints, slowness: float) -> Identity:
    r"""Studentized means of $T_q f = g(y_i) s_j + \delta_{ij} g'(y_i)$ for $f = g(y_i) e_j$, all i and j.

    Also of their sums over i = j, which see a wrong scale of the score √d times as well. Every mean has
    its share of the false-alarm probability (Bonferroni), half for the sums; those beyond their bound
    are looked at again for skewness and heavy tails. In standardized coordinates y.
    """
    inside = robust_frame(draws.x).enter(draws)
    y, s = inside.x, inside.score
    d = y.shape[1]
    bound_one = _normal_bound(FALSE_ALARM / 2, d + (len(_FUNCTIONS) - 1) * d * d)
    bound_sum = _normal_bound(FALSE_ALARM / 2, len(_FUNCTIONS))
    results = []
    for name, g, slope in _FUNCTIONS:
        gy, dy = g(y), slope(y)
        t = _studentized_means(gy, s, dy) / math.sqrt(slowness)  # (d, d)
        t = t[:1] if name == "1" else t  # the same e_j in every row
        for place in t.abs().flatten().topk(min(t.numel(), 16)).indices.tolist():
            i, j = divmod(place, d)
            values = gy[:, i] * s[:, j] + (dy[:, i] if i == j else 0)
            label = f"e_{j + 1}" if name == "1" else f"{name.replace('x', f'x_{i + 1}')} e_{j + 1}"
            results.append(_judged(values, float(t[i, j]), bound_one, label))
            if abs(float(t[i, j])) <= bound_one:
                break
        values = (gy * s + dy).sum(1)
        label = f"sum of {name.replace('x', 'x_i')} e_i"
        floor = 1e-14 * float(values.square().mean())
        error = math.sqrt(max(float(values.var()), floor) * slowness / len(values))
        mean = float(values.mean())
        results.append(_judged(values, mean / error if mean else 0.0, bound_sum, label))
    trusted = [r for r in results if not r[2]]
    worst, name, heavy = max(trusted, key=_excess, default=max(results, key=_excess))
    if abs(worst[0]) <= worst[1]:  # no mean that can be trusted is beyond its bound
        worst, name, heavy = max(results, key=_excess)
    ratio = -float((y * s).sum(1).mean()) / d
    return Identity(worst=worst[0], bound=worst[1], function=name, heavy=heavy, ratio=ratio or 1.0)


_Judged = tuple[tuple[float, float], str, bool]  # (t, bound), function, rests on a few draws


def _excess(result: _Judged) -> float:
    (t, bound), _, _ = result
    return abs(t) / bound


def _judged(values: PerPoint, t: float, bound: float, label: str) -> _Judged:
    """A mean beyond its bound, looked at again: Hall's transformation undoes the skewness of t.

    It is excused as heavy-tailed where one draw holds much of the spread and lies so far out that a few
    more like it, which were not seen, could have balanced the mean.
    """
    centered, root = values - values.mean(), math.sqrt(len(values))
    if abs(t) <= bound or float(centered.abs().amax()) <= 1e-6 * float(values.abs().amax()):
        return (t, bound), label, False
    skewness = float(centered.pow(3).mean() / centered.square().mean() ** 1.5)
    farthest = float(centered.abs().amax())
    share = farthest**2 / float(centered.square().sum())
    heavy = share > _TAIL_SHARE and farthest > 3 * abs(float(values.mean()))
    t += skewness * (2 * t * t + 1) / (6 * root) + skewness**2 * t**3 / (27 * len(values))
    return (t, bound), label, heavy


def _studentized_means(g: Tensor, s: Tensor, slope: Tensor) -> Tensor:
    """(d, d) means of g_i s_j + δ_ij slope_i over their standard errors, by products of matrices."""
    n = len(g)
    mean, square = g.T @ s / n, (g * g).T @ (s * s) / n
    diagonal = g * s + slope
    mean.diagonal().copy_(diagonal.mean(0))
    square.diagonal().copy_((diagonal * diagonal).mean(0))
    variance = (square - mean * mean).clamp_min(1e-14 * square)
    return torch.nan_to_num(mean / (variance / n).sqrt(), nan=0.0)


def _normal_bound(alarm: float, count: int) -> float:
    return NormalDist().inv_cdf(1 - alarm / (2 * count))


def robust_frame(x: Points) -> Frame:
    """Median and quartiles, which heavy tails do not move; where quartiles coincide, standard deviation."""
    ordered, usual = x.double().sort(0).values, Frame.of(x)
    low, middle, high = (ordered[int(q * (len(x) - 1))] for q in (0.25, 0.5, 0.75))
    return Frame(middle, torch.where(high > low, (high - low) / 1.35, usual.scale))
