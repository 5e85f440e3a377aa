"""Many datasets, one test: its power, its level, and the rate with an interval.

Each dataset is tested as `gof_test` would test it with the same seed, by the same code. Critics of many
datasets train together. Cross-fit tests share their null runs, as they do through the cache in use;
`CrossFit(null_pool=...)` lets each choose its own from a larger pool.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints, checked_draws, checked_score
from steincritic.devices import DeviceLike, resolve_device
from steincritic.display import GRAY, RED, axes, panel
from steincritic.engine import EngineName, using
from steincritic.errors import InputError, ModelError, check_count, check_level
from steincritic.gof.choose import TestName, choose_test
from steincritic.gof.combined import Combined
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.test import GofTest
from steincritic.models.base import Model, ModelLike, SamplingModel, as_model
from steincritic.models.bounded import coordinates_of, unbounded
from steincritic.models.coordinates import entered
from steincritic.rng import derive, generator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = 0.01, 0.05, 0.1  # shown in a notebook


@dataclass(frozen=True)
class Rate:
    """Rejections among independent tests."""

    rejections: int
    trials: int

    @property
    def value(self) -> float:
        return self.rejections / self.trials

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Wilson's interval, which stays inside [0, 1] and is right near its ends.

        >>> tuple(round(end, 3) for end in Rate(0, 100).interval())
        (0.0, 0.037)
        """
        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        n, p = self.trials, self.value
        center = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, center - half), min(1.0, center + half)

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.rejections} of {self.trials} rejected: {self.value:.3f} ({low:.3f} to {high:.3f})"

    def _repr_html_(self) -> str:
        return panel([str(self)])

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.rejections + other.rejections, self.trials + other.trials)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trials:
    """The p-values of one test on many datasets of one size."""

    test: str
    n: int
    pvalues: Tensor  # (t,)
    draws: int  # null draws of each test, so p-values are multiples of 1/(draws + 1)
    null_pool: int = 0  # null runs that the tests choose theirs from; 0 where each has its own

    def rate(self, level: float = 0.05) -> Rate:
        """Rejections at a level: power on other data, size on draws of the model."""
        return Rate(int((self.pvalues <= level).sum()), len(self.pvalues))

    def uniformity(self, *, seed: int = 0) -> float:
        """Kolmogorov-Smirnov p-value of the p-values' uniformity, their steps smoothed at random.

        Tests that share a pool of null runs compare two samples, theirs and the pool, so the distance has the
        law of t r / (t + r) independent ones.
        """
        noise = torch.rand(len(self.pvalues), generator=generator(seed, "smoothing"), dtype=torch.float64)
        from scipy import stats  # slow to import, so only where it is needed

        smooth = (self.pvalues - noise / (self.draws + 1)).numpy()
        t, r = len(smooth), self.null_pool
        return float(stats.kstwo.sf(stats.kstest(smooth, "uniform").statistic, t * r // (t + r) if r else t))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The share of datasets rejected at each level; on the diagonal where the model is right."""
        ax = axes(ax, 4.0, 3.5)
        share = torch.arange(1, len(self.pvalues) + 1) / len(self.pvalues)
        ax.step([0.0, *self.pvalues.sort().values.tolist(), 1.0], [0.0, *share.tolist(), 1.0], where="post")
        ax.lines[-1].set(color=RED, label=f"{self.test}, n = {self.n}")
        ax.plot([0, 1], [0, 1], color=GRAY, linestyle="--", label="if the model is right")
        ax.set(xlabel="level", ylabel="share of datasets rejected", xlim=(0, 1), ylim=(0, 1.02))
        ax.legend(frameon=False, loc="lower right")
        return ax

    def _repr_html_(self) -> str:
        rows = [(f"{level:g}", str(self.rate(level))) for level in _LEVELS]
        what = f"{len(self.pvalues)} datasets of {self.n} points, test {self.test}."
        return panel([what], rows=rows, head=("level", "rate, with 95 % confidence"))

    def __repr__(self) -> str:
        rate = self.rate()
        low, high = rate.interval()
        return (
            f"Trials({self.test}, n={self.n}: {rate.rejections} of {rate.trials} rejected at 0.05, "
            f"rate {rate.value:.3f} in [{low:.3f}, {high:.3f}])"
        )


def power(
    model: ModelLike,
    data: ModelLike,
    n: int,
    test: GofTest | TestName | None = None,
    *,
    trials: int = 400,
    level: float = 0.05,
    seed: int = 0,
    device: DeviceLike = None,
    engine: EngineName | None = None,
    address: str | None = None,
) -> Trials:
    """How often a test rejects the model on datasets of n draws from `data`.

    Args:
        model: q: anything `as_model` takes.
        data: p: a model that can be sampled.
        test: as for `gof_test`.
        engine, address: where null sets are looked at, as for `gof_test`.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0]])
    >>> sc.power(q, sc.models.GaussianMixture([[1.0]]), 30, "ksd", trials=20).rate().value
    1.0
    """
    check_count(n, name="n", least=2)
    check_count(trials, name="trials")
    source = _sampled(as_model(data), "data")
    draws = [checked_draws(source, n, derive(seed, "dataset", t), dim=None) for t in range(trials)]
    with using(engine, address):
        return trials_of(model, torch.stack(draws), test, level=level, seed=seed, device=device)


def calibrate(
    model: ModelLike,
    n: int,
    test: GofTest | TestName | None = None,
    *,
    runs: int = 2000,
    level: float = 0.05,
    seed: int = 0,
    device: DeviceLike = None,
    engine: EngineName | None = None,
    address: str | None = None,
) -> Trials:
    """The size of a test: `power` on the model's own draws.

    Cross-fit tests choose their null runs from a pool of five per run, unless the test says otherwise, so
    that no few of them decide.
    """
    adapted = _sampled(as_model(model), "the model")
    chosen, _ = choose_test(test, adapted, n)
    if isinstance(chosen, CrossFit | Combined) and chosen.null_pool is None:
        chosen = replace(chosen, null_pool=5 * runs)
    seed = derive(seed, "calibrate")
    options: dict[str, Any] = {"device": device, "engine": engine, "address": address}
    return power(adapted, adapted, n, chosen, trials=runs, level=level, seed=seed, **options)


def trials_of(
    model: ModelLike,
    datasets: Tensor,
    test: GofTest | TestName | None = None,
    *,
    level: float = 0.05,
    seed: int = 0,
    device: DeviceLike = None,
) -> Trials:
    """The p-value of each of (t, n, d) datasets."""
    check_level(level)
    if datasets.ndim != 3:
        raise InputError(f"datasets must have shape (t, n, d), got {tuple(datasets.shape)}")
    column_model = as_model(model)
    adapted, within = unbounded(column_model), coordinates_of(column_model)
    x = datasets.to(resolve_device(device, datasets))
    if within is not None:
        x = entered(within, x.flatten(0, 1)).unflatten(0, x.shape[:2])
    points = ScoredPoints(x, checked_score(adapted, x.flatten(0, 1)).to(x).view_as(x))
    chosen, _ = choose_test(test, adapted, len(points))
    results = chosen.run(adapted, points, level=level, seeds=trial_seeds(seed, len(x)))
    return Trials(
        test=chosen.name,
        n=len(points),
        pvalues=torch.tensor([result.pvalue for result in results], dtype=torch.float64),
        draws=results[0].settings.get("draws") or len(results[0].null_distribution),
        null_pool=results[0].settings.get("null_pool", 0),
    )


def trial_seeds(seed: int, count: int) -> Sequence[int]:
    """The seed of each dataset's test: `gof_test` with it gives the same p-value."""
    return [derive(seed, "test", t) for t in range(count)]


def _sampled(model: Model, name: str) -> SamplingModel:
    if not isinstance(model, SamplingModel):
        raise ModelError(
            f"datasets are drawn from {name}, which has no sample(n, seed=0); pass (score, sample)"
        )
    return model
