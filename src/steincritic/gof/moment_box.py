r"""MomentBox: is a column's mean or spread off by more than so much?

With $e_j$ the mean of column j less the model's, in standard deviations of the model, or the logarithm of
its spread over the model's, the null hypothesis is the box $|e_j| \le t_j$, with t and log(1 + t). For every
column $T_j = (|e_j| - t_j) / \sigma_j$, and the statistic is the largest. At $|e_j| = t_j$ its law is that
of $\max(Z, -Z - 2 t_j / \sigma_j)$, where Z is the studentized error; a bootstrap of the rows gives the
errors of all columns together (bootstrap-t), so that skewness and correlations count.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.arrays import check_finite
from steincritic.data.points import ScoredPoints, checked_draws
from steincritic.errors import InputError, ModelError, check_count, listed
from steincritic.gof.null import as_null_tensor, rank_pvalues
from steincritic.gof.result import GofResult, Tolerated
from steincritic.gof.test import EachAlone
from steincritic.models.base import Model, SamplingModel
from steincritic.models.bounded import UnboundedModel
from steincritic.rng import Source, derive

FEWEST = 20  # points
_PER_POINT, _DRAWS, _NUMBERS = 20, (20_000, 1_000_000), 20_000_000  # of the model: draws, least and most
_GROUPS = 2000  # of rows that are resampled together, at most
_PART = 2**22  # numbers at a time
_TINY = 1e-300
_NAMED = 6  # columns that a sentence names
Z95 = 1.96


@dataclass(frozen=True)
class MomentBox(EachAlone):
    """H0: no column's mean is off by more than so many standard deviations, no spread by that share.

    A spread is within 5 % if it is between 1/1.05 and 1.05 times the model's. The error of the model's draws
    counts; without a sampler, means and spreads of the model come from its scores (`diagnosis.by_scores`).

    Args:
        tolerance: 0.05 for 5 %.
        draws: bootstrap draws.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> x = q.sample(2000, seed=1) + 0.1
    >>> sc.gof_test(q, x, "ksd").rejected, sc.gof_test(q, x, tolerance=0.2).rejected
    (True, False)
    """

    name: ClassVar[str] = "moment-box"

    tolerance: float
    draws: int = 1999

    def __post_init__(self) -> None:
        t = self.tolerance
        if isinstance(t, bool) or not isinstance(t, int | float) or not 0 < t < 1:
            raise InputError(f"tolerance is a share in (0, 1), such as 0.05 for 5 %: got {t!r}")
        check_count(self.draws, name="draws")

    def _one(self, model: Model | None, points: ScoredPoints, seed: int, *, level: float) -> GofResult:
        if isinstance(model, UnboundedModel) and isinstance(model, SamplingModel):
            # in its own columns, whose means and spreads are asked for; no score is needed beside draws
            x = model.coordinates.constrain(points.x.double())[0]
            model, points = model.bounded, ScoredPoints(x, torch.zeros_like(x))
        n, d = points.x.shape
        if n < FEWEST:
            raise InputError(f"x has n = {n}; means and spreads of columns need at least {FEWEST} points")
        bounds = torch.tensor([self.tolerance] * d + [math.log1p(self.tolerance)] * d, dtype=torch.float64)
        if isinstance(model, SamplingModel):
            estimate = _beside_draws(model, points.x, bounds, self.draws, seed)
        else:
            estimate = _beside_scores(points, bounds, self.draws)
        beyond = (estimate.gap.abs() - bounds) / estimate.error
        gaps = Gaps.of(estimate, rank_pvalues(beyond, estimate.null), self.tolerance, level)
        return GofResult(
            statistic=float(beyond.max()),
            null_distribution=as_null_tensor(estimate.null),
            level=level,
            test=self.name,
            threshold="bootstrap-t" if estimate.notes == () else "jackknife",
            exact=False,
            n=n,
            seed=seed,
            notes=estimate.notes,
            settings=asdict(self) | {"columns": [asdict(gap) for gap in gaps.all]},
            examined=gaps,
            tolerance=gaps.tolerated(),
        )


@dataclass(frozen=True)
class Gap:
    """How far the mean (in standard deviations) or the spread (a ratio) of a column is off, with 95 %."""

    column: int
    kind: str  # "shift" or "spread"
    value: float
    low: float
    high: float
    pvalue: float  # that it is within the tolerance, adjusted for all columns

    def words(self, names: Sequence[str]) -> str:
        low, high = (f"{v:.3f}" if abs(v) < 0.1 else f"{v:.2f}" for v in (self.low, self.high))
        name = names[self.column]
        if self.kind == "shift":
            size = f"{self.value:.3f}" if abs(self.value) < 0.1 else f"{self.value:.2f}"
            return f"the mean of {name} is off by {size} of a standard deviation ({low} to {high})"
        interval = f"{self.low:.3f} to {self.high:.3f}"
        return f"{name} spreads {self.value:.3f} times as much as the model says ({interval})"


@dataclass(frozen=True)
class Gaps:
    """Those of all columns, the furthest beyond the tolerance first."""

    all: tuple[Gap, ...]
    tolerance: float
    level: float

    @classmethod
    def of(cls, estimate: "_Estimate", pvalues: Tensor, tolerance: float, level: float) -> "Gaps":
        reach = Z95 * estimate.error
        ends = torch.stack([estimate.gap, estimate.gap - reach, estimate.gap + reach], 1)
        d = len(estimate.gap) // 2
        ends[d:] = ends[d:].exp()
        order = ((estimate.gap.abs() - estimate.bounds) / estimate.error).argsort(descending=True).tolist()
        kinds = ("shift", "spread")
        gaps = [(j % d, kinds[j // d], ends[j].tolist(), float(pvalues[j])) for j in order]
        every = tuple(Gap(j, kind, value, low, high, p) for j, kind, (value, low, high), p in gaps)
        return cls(every, tolerance, level)

    @property
    def beyond(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.all if gap.pvalue <= self.level)

    def tolerated(self, names: Sequence[str] | None = None) -> Tolerated:
        labels = names or [f"x{1 + gap.column}" for gap in sorted(self.all, key=lambda gap: gap.column)[::2]]
        off = {gap.column for gap in self.beyond}
        within = [name for j, name in enumerate(labels) if j not in off]
        rest = next((gap for gap in self.all if gap.column not in off), None)
        shown = listed(within, _NAMED)
        return Tolerated(
            f"no column's mean off by more than {self.tolerance:g} of a standard deviation, no column's "
            f"spread by more than {100 * self.tolerance:g} %",
            tuple(f"Beyond the tolerance: {gap.words(labels)}." for gap in self.beyond),
            "" if rest is None else f"Not shown to be beyond it: {shown}; furthest, {rest.words(labels)}.",
        )


@dataclass(frozen=True, eq=False)
class _Estimate:
    gap: Tensor  # (2 d,) of means, then of logarithms of spreads
    error: Tensor
    bounds: Tensor
    null: Tensor  # (b,) the largest value beyond the bounds, of columns that lie on them
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Moments:
    """(..., 2 d): means and logarithms of spreads of (..., d) columns, with standard errors."""

    value: Tensor
    error: Tensor

    @classmethod
    def of(cls, powers: Tensor, n: int) -> "_Moments":
        """From the means of z, z², z³ and z⁴, (..., 4, d)."""
        m1, m2, m3, m4 = powers.unbind(-2)
        variance = (m2 - m1.square()).clamp(min=_TINY)
        fourth = m4 - 4 * m3 * m1 + 6 * m2 * m1.square() - 3 * m1**4
        error = torch.cat([variance, ((fourth / variance.square()).clamp(min=1) - 1) / 4], -1)
        value = torch.cat([m1, variance.log() / 2], -1)
        return cls(value, (error / n).sqrt().clamp(min=1e-12))


def _beside_draws(model: SamplingModel, x: Tensor, bounds: Tensor, draws: int, seed: int) -> _Estimate:
    n, d = x.shape
    location, scale, powers, count = _of_model(model, x, derive(seed, "model"))
    theirs = _Moments.of(powers, count)
    z = (x.double() - location) / scale
    groups = min(n, _GROUPS)
    label = torch.arange(n, device=z.device) % groups
    powers = torch.stack([z, z.square(), z**3, z**4], 1)  # (n, 4, d), and their sums in groups of rows
    sums = torch.zeros(groups, *powers.shape[1:], dtype=z.dtype, device=z.device).index_add_(0, label, powers)
    sizes = torch.bincount(label, minlength=groups).to(z)
    mine = _Moments.of((sums.sum(0) / n).cpu(), n)
    gap = mine.value - theirs.value
    gap[:d] /= theirs.value[d:].exp()
    model_error = theirs.error.clone()  # a mean is measured in spreads, which have an error too
    model_error[:d] = (model_error[:d].square() + (gap[:d] * model_error[d:]).square()).sqrt()
    error = torch.hypot(mine.error, model_error)
    side, twice = torch.where(gap < 0, -1.0, 1.0), 2 * bounds / error
    source, null = Source(seed, "moment box", device=x.device), []
    for again in _resampled(sums, sizes, draws, source):
        moments = _Moments.of(again, n)
        noise = model_error * source.normals(*moments.value.shape, dtype=torch.float64).cpu()
        z = side * (moments.value - mine.value + noise) / torch.hypot(moments.error, model_error)
        null.append(torch.maximum(z, -z - twice).amax(-1))
    return _Estimate(gap, error, bounds, torch.cat(null))


def _of_model(model: SamplingModel, x: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Location and scale of the model's first draws, and by them the mean powers of all its draws."""
    n, d = x.shape
    least, most = _DRAWS
    count = min(max(_PER_POINT * n, least), most, max(least, _NUMBERS // d))
    size, total = max(1000, _PART // d), torch.zeros(4, d, dtype=torch.float64)
    location = scale = torch.zeros(d, dtype=torch.float64)
    for part, start in enumerate(range(0, count, size)):
        y = checked_draws(model, min(size, count - start), derive(seed, part), dim=d)
        check_finite(y, name="model.sample(n)")
        y = y.to("cpu", torch.float64)
        if not part:
            location, scale = y.mean(0), y.std(0)
            if not bool((scale > 0).all()):
                raise ModelError(
                    "a column of the model's draws is constant: it has no spread to compare with"
                )
        z = (y - location) / scale
        total += torch.stack([z.pow(k).sum(0) for k in (1, 2, 3, 4)])
    return location.to(x.device), scale.to(x.device), total / count, count


def _resampled(sums: Tensor, sizes: Tensor, draws: int, source: Source) -> Iterator[Tensor]:
    """(b, 4, d) mean powers of as many groups, drawn with replacement; some at a time."""
    groups, flat = len(sums), sums.flatten(1)
    for start in range(0, draws, rows := max(1, _PART // groups)):
        index = source.integers(groups, min(rows, draws - start), groups)
        counts = torch.zeros(index.shape, dtype=sums.dtype, device=sums.device)
        counts.scatter_add_(1, index, torch.ones_like(counts))
        means = (counts @ flat) / (counts @ sizes)[:, None]
        yield means.view(-1, *sums.shape[1:]).cpu()


def _beside_scores(points: ScoredPoints, bounds: Tensor, draws: int) -> _Estimate:
    """By the scores at the points; the null is that of as many Student variables, by Bonferroni."""
    from steincritic.diagnosis.by_scores import compare, student_quantile  # which builds on tests

    standard = points.to("cpu", torch.float64)
    location, scale = standard.x.mean(0), standard.x.std(0).clamp(min=_TINY)
    compared = compare(ScoredPoints((standard.x - location) / scale, standard.score * scale))
    if compared is None or compared.rough:
        raise InputError(
            "the model cannot be sampled, and scores alone do not tell the sizes of means and spreads here: "
            'give it a sampler, or ask by tolerance="fisher:0.1"'
        )
    many = len(bounds)
    gap, error = (torch.cat([part["shift"], part["spread"]]) for part in (compared.values, compared.errors))
    shares = [1 - (k + 0.5) / draws / many for k in range(draws)]
    null = torch.tensor([student_quantile(share, compared.freedom) for share in shares], dtype=torch.float64)
    note = "The model cannot be sampled: its means and spreads come from scores, so sizes are approximate."
    return _Estimate(gap, error.clamp(min=1e-12), bounds, null, (note,))
