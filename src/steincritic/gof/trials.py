"""Many simulated datasets, one method: power and level, trained in banks.

A trial is one test of one dataset, with everything in it done anew. Critics of many trials are trained
together. Trials of the cross-fit test draw their null runs from one pool of runs on model datasets:
`draws` of them each, chosen at random. A pool no larger than `draws` is shared whole, as it is by the
cache in use.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steincritic.data.frame import model_frame
from steincritic.data.points import ScoredPoints
from steincritic.devices import best_device
from steincritic.errors import DoubtfulWarning, InputError, ModelError, check_count
from steincritic.gof.aggregated import ksdagg_test
from steincritic.gof.crossfit import DRAWS, NullRuns, check_folds
from steincritic.gof.fssd import fssd_test
from steincritic.gof.kernel import ksd_test
from steincritic.gof.null import check_draws
from steincritic.gof.panel import CrossFit, panel
from steincritic.gof.power import Rate
from steincritic.gof.result import GofResult
from steincritic.gof.split import Split, split_sizes
from steincritic.gof.thresholds import THRESHOLDS, ModelWitness, Request, choose_threshold
from steincritic.models.base import SamplingModel, as_model
from steincritic.rng import derive, generator
from steincritic.training.fit import fit_bank
from steincritic.training.suggest import suggest_stagings

_TOGETHER = 500  # critics of split tests trained in one bank


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """The p-values of many tests of one method, at one sample size."""

    method: str
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

    def __repr__(self) -> str:
        rate = self.rate()
        low, high = rate.interval()
        return (
            f"Trials({self.method}, n={self.n}: {rate.rejections} of {rate.trials} rejected at 0.05, "
            f"rate {rate.value:.3f} in [{low:.3f}, {high:.3f}])"
        )


def power(
    model: Any,
    data: SamplingModel,
    n: int,
    *,
    method: str = "crossfit",
    trials: int = 400,
    seed: int = 0,
    config: Any = None,
    null_pool: int | None = None,
) -> Trials:
    """How often a method rejects the model on datasets of n draws from `data`.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0]])
    >>> sc.power(q, sc.models.GaussianMixture([[1.0]]), 30, method="ksd", trials=20).rate().value
    1.0
    """
    check_count(n, name="n", least=2)
    check_count(trials, name="trials")
    datasets = torch.stack(
        [torch.as_tensor(data.sample(n, seed=derive(seed, "dataset", t))) for t in range(trials)]
    )
    return trials_of(model, datasets, method=method, seed=seed, config=config, null_pool=null_pool)


def calibrate(
    method: str,
    model: Any,
    n: int,
    runs: int = 2000,
    *,
    seed: int = 0,
    config: Any = None,
    null_pool: int | None = None,
) -> Trials:
    """The size of a method: `power` on the model's own draws, with five null runs a trial in the pool."""
    model = as_model(model)
    if not isinstance(model, SamplingModel):
        raise ModelError("calibration draws datasets from the model, which has no sample(n, seed=0)")
    return power(
        model,
        model,
        n,
        method=method,
        trials=runs,
        seed=derive(seed, "calibrate"),
        config=config,
        null_pool=null_pool or 5 * runs,
    )


def trials_of(
    model: Any,
    datasets: Tensor,
    *,
    method: str,
    seed: int = 0,
    config: Any = None,
    null_pool: int | None = None,
) -> Trials:
    """The p-value of each of (t, n, d) datasets."""
    if datasets.ndim != 3:
        raise InputError(f"datasets must have shape (t, n, d), got {tuple(datasets.shape)}")
    if method not in _RUNNERS:
        raise InputError(f"method must be one of {', '.join(_RUNNERS)}; got {method!r}")
    model = as_model(model)
    x = datasets.to(best_device(datasets))
    points = ScoredPoints(x, model.score(x.flatten(0, 1)).view_as(x))
    pvalues, draws, shared = _RUNNERS[method](model, points, seed, config, null_pool)
    return Trials(method=method, n=len(points), pvalues=pvalues, draws=draws, null_pool=shared)


# p-values, null draws of each test, null runs that the tests share
Runner = Callable[[Any, ScoredPoints, int, Any, int | None], tuple[Tensor, int, int]]


def _crossfit(
    model: Any, points: ScoredPoints, seed: int, config: CrossFit | None, null_pool: int | None
) -> tuple[Tensor, int, int]:
    config = config or CrossFit()
    check_folds(len(points), config)
    draws = config.draws or DRAWS[points.x.device.type]
    check_draws(draws, 0.5)
    frame = model_frame(model, points, seed=0)
    seeds = [derive(seed, "observed", t) for t in range(len(points.x))]
    observed = panel(frame.enter(points), seeds, config)
    pool = NullRuns(model, frame, points, config).runs(0, max(draws, null_pool or draws))
    source = generator(seed, "null choice")
    pvalues = []
    for t in range(len(observed)):
        chosen = torch.randperm(len(pool), generator=source)[:draws]
        values = observed[t : t + 1].joined(pool[chosen]).statistic()
        pvalues.append((int((values[1:] >= values[0]).sum()) + 1) / (draws + 1))
    return torch.tensor(pvalues, dtype=torch.float64), draws, len(pool)


def _split(
    model: Any, points: ScoredPoints, seed: int, config: Split | None, null_pool: int | None
) -> tuple[Tensor, int, int]:
    config = config or Split()
    parts = [
        _split_together(model, ScoredPoints(x, score), derive(seed, "part", k), config)
        for k, (x, score) in enumerate(
            zip(points.x.split(_TOGETHER), points.score.split(_TOGETHER), strict=True)
        )
    ]
    return torch.cat(parts), config.draws, 0


def _split_together(model: Any, points: ScoredPoints, seed: int, config: Split) -> Tensor:
    """Datasets are independent draws in no order, so their first points train and the others are tested."""
    trained, tested = split_sizes(len(points), config)
    frame = model_frame(model, points[:trained], seed=0)
    train, seeds = frame.enter(points[:trained]), [derive(seed, "critic", t) for t in range(len(points.x))]
    staging: Any = config.staging
    if staging == "auto":
        staging = suggest_stagings(train, seeds=seeds, training=config.training, network=config.network)
    fitted = fit_bank(
        train,
        staging=staging,
        seeds=seeds,
        network=config.network,
        training=config.training,
    )
    fitted.require_success()
    name = choose_threshold(config.threshold, model, n=tested, dim=points.dim, draws=config.draws)
    values = fitted.witness(frame.enter(points[trained:])).to(torch.float64)
    pvalues = []
    for t, own in enumerate(values):
        one = fitted[t : t + 1]
        draw = ModelWitness(
            model,
            lambda drawn, one=one: one.witness(frame.enter(drawn))[0],  # type: ignore[misc]
            like=points.x,
            seed=derive(seed, "model", t),
        )
        request = Request(draws=config.draws, pool=config.pool, level=0.05, seed=derive(seed, "null", t))
        null = THRESHOLDS[name](own, draw, request)
        larger = int((null.null_distribution >= null.statistic).sum())
        pvalues.append((larger + 1) / (config.draws + 1))
    return torch.tensor(pvalues, dtype=torch.float64)


def _one_by_one(test: Callable[..., GofResult]) -> Runner:
    def run(
        model: Any, points: ScoredPoints, seed: int, config: Any, null_pool: int | None
    ) -> tuple[Tensor, int, int]:
        results = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoubtfulWarning)
            for t, (x, score) in enumerate(zip(points.x, points.score, strict=True)):
                results.append(
                    test(model, ScoredPoints(x, score), seed=derive(seed, "test", t), config=config)
                )
        pvalues = torch.tensor([result.pvalue for result in results], dtype=torch.float64)
        return pvalues, len(results[0].null_distribution), 0

    return run


_RUNNERS: dict[str, Runner] = {
    "crossfit": _crossfit,
    "split": _split,
    "ksd": _one_by_one(ksd_test),
    "ksdagg": _one_by_one(ksdagg_test),
    "fssd": _one_by_one(fssd_test),
}
