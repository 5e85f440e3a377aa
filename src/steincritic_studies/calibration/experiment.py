"""The level of every method and threshold, measured on null data; with controls that must fail."""

import time
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

import torch
from torch import Tensor

from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, fold_sets, sample_points
from steincritic.data.problems import problem
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.combined import Combined
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.fssd import Fssd
from steincritic.gof.kernel import Ksd
from steincritic.gof.null import pooled_bootstrap, rank_pvalues
from steincritic.gof.power import Rate, Trials, calibrate
from steincritic.gof.split import Split, split_sizes
from steincritic.gof.test import GofTest
from steincritic.models.mixture import GaussianMixture
from steincritic.rng import Source, derive
from steincritic.training.fit import Training, fit_bank
from steincritic.training.fitted import FittedBank
from steincritic.training.pacing import DEFAULT_STAGING
from steincritic_studies.calibration.figures import calibration_table, draw_calibration
from steincritic_studies.study import Context, Outcome, Study

LEVELS = (0.01, 0.05, 0.10)
SIZES = {"gm-2d": 75, "gm-10d": 200, "skewed-1d": 20}
CONTROLS = ("naive cross-fit", "pool of 3n, not centred")  # seeds come from these names
METHODS = (
    "combined",
    "crossfit",
    "split, fresh",
    "split, permutation",
    "split, pooled",
    "split, bootstrap-t",
    "split, z",
    "KSD, wild",
    "KSD, fresh",
    "aggregated KSD, wild",
    "aggregated KSD, fresh",
    "FSSD, spectrum",
    "FSSD, fresh",
)
_SPLIT: dict[Literal["fresh", "permutation", "pooled", "bootstrap-t", "z"], bool] = {  # is it exact?
    "fresh": True,
    "permutation": True,
    "pooled": False,
    "bootstrap-t": False,
    "z": False,
}
_TOGETHER = 500
_POOLS = 10  # of null runs, each with its share of the tests of a row and as many null runs


@dataclass(frozen=True, kw_only=True)
class CalibrationJob:
    problem: str
    method: str
    runs: int
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Null runs of every method on three problems, critics trained anew in each."""

    problems: tuple[str, ...] = tuple(SIZES)
    methods: tuple[str, ...] = (*METHODS, *CONTROLS)
    runs: int = 2000
    crossfit_runs: int = 10_000
    tiny: bool = False


def run(config: Calibration, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = [
        CalibrationJob(
            problem=name,
            method=method,
            runs=config.crossfit_runs if method == "crossfit" else config.runs,
            seed=context.seed,
            tiny=config.tiny,
        )
        for name in config.problems
        for method in config.methods
    ]
    rows = context.sweep(run_calibration_job, jobs)
    seconds = {"total": time.perf_counter() - start, "jobs": sum(row["seconds"] for row in rows)}
    return Outcome({"rows": list(rows), "levels": LEVELS}, seconds)


def run_calibration_job(job: CalibrationJob) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    model = null_model(job.problem).to(device, torch.float32)
    n, seed = SIZES[job.problem], derive(job.seed, job.problem, job.method)
    if job.method in _CONTROLS:
        trials = _CONTROLS[job.method](model, n, job, seed)
        exact = False
    else:
        test, exact = tests_by_name(tiny=job.tiny)[job.method]
        if isinstance(test, CrossFit | Combined):
            trials = _pooled_trials(test, model, n, job.runs, seed=seed)
        else:
            trials = calibrate(model, n, test, runs=job.runs, seed=seed)
    return {
        "problem": job.problem,
        "n": n,
        "method": job.method,
        "exact": exact,
        "control": job.method in _CONTROLS,
        "runs": len(trials.pvalues),
        "null_pool": trials.null_pool,
        "rates": [_rate(trials.rate(level), level) for level in LEVELS],
        "uniformity": trials.uniformity(),
        "seconds": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }


def _pooled_trials(
    test: CrossFit | Combined, model: GaussianMixture, n: int, runs: int, *, seed: int
) -> Trials:
    """Tests of datasets that share their null runs in parts only, so that no one pool decides."""
    each = max(1, runs // _POOLS)
    parts = []
    for k in range(-(-runs // each)):
        own = derive(seed, "pool", k)
        part = replace(test, null_seed=own, null_pool=max(each, test.draws or 0))
        parts.append(calibrate(model, n, part, runs=each, seed=own))
    return replace(
        parts[0],
        pvalues=torch.cat([part.pvalues for part in parts]),
        null_pool=sum(part.null_pool for part in parts),
    )


def _rate(rate: Rate, level: float) -> dict[str, Any]:
    return {"level": level, "rejections": rate.rejections, "rate": rate.value, "interval": rate.interval()}


def null_model(name: str) -> GaussianMixture:
    if name == "skewed-1d":
        return GaussianMixture([[0.0], [3.0]], [1.0, 4.0], [0.85, 0.15])
    return problem(name).model


def tests_by_name(*, tiny: bool) -> dict[str, tuple[GofTest, bool]]:
    """The tests of the table, and whether their level is meant to be exact."""
    training, draws, steps = (Training(epochs=6), 19, 5) if tiny else (Training(), 199, 50)
    crossfit = CrossFit(draws=draws, cache=False)
    return {
        "combined": (
            Combined(draws=19, reference=20, critics=None)
            if tiny
            else Combined(cache=False, stop_early=False),
            True,
        ),
        "crossfit": (replace(crossfit, training=training, look=1) if tiny else crossfit, True),
        **{
            f"split, {threshold}": (Split(draws=draws, threshold=threshold, training=training), exact)
            for threshold, exact in _SPLIT.items()
        },
        "KSD, wild": (Ksd(draws=draws), False),
        "KSD, fresh": (Ksd(draws=draws, threshold="fresh"), True),
        "aggregated KSD, wild": (KsdAgg(draws=draws), False),
        "aggregated KSD, fresh": (KsdAgg(draws=draws, threshold="fresh"), True),
        "FSSD, spectrum": (Fssd(draws=draws, steps=steps), False),
        "FSSD, fresh": (Fssd(draws=draws, threshold="fresh", steps=steps), True),
    }


def _naive_crossfit(model: GaussianMixture, n: int, job: CalibrationJob, seed: int) -> Trials:
    """Cross-fitted witness values as if they were independent: pooled z against the normal law."""
    training = Training(epochs=6) if job.tiny else Training()
    config = CrossFit(folds=2, training=training, look=1 if job.tiny else 5)
    parts: list[Tensor] = []
    for x in _datasets(model, n, job.runs, seed).split(_TOGETHER):
        train, test = fold_sets(_standardized(model, x, seed), config.folds)
        fitted = _fit(train, replace(Split(), training=training), derive(seed, "fit", len(parts)))
        values = fitted.witness(test)
        values = values.view(len(x), -1) / values.view(len(x), config.folds, -1).std(-1).mean(
            -1, keepdim=True
        )
        z = values.mean(-1) / (values.std(-1) / values.shape[1] ** 0.5)
        parts.append(z.double().cpu())
    normal = NormalDist()
    pvalues = torch.tensor([1 - normal.cdf(float(z)) for z in torch.cat(parts)], dtype=torch.float64)
    return Trials(test=job.method, n=n, pvalues=pvalues, draws=10**9)


def _uncentered_pool(model: GaussianMixture, n: int, job: CalibrationJob, seed: int) -> Trials:
    """The released code's threshold: a pool of three times n, its own error ignored."""
    config = Split(training=Training(epochs=6) if job.tiny else Training())
    trained, tested = split_sizes(n, config)
    draws, pvalues = 199, []
    for k, x in enumerate(_datasets(model, n, job.runs, seed).split(_TOGETHER)):
        points = _standardized(model, x, seed)
        fitted = _fit(points[:trained], config, derive(seed, "fit", k))
        values = fitted.witness(points[trained:]).mean(-1)
        for t, observed in enumerate(values):
            drawn = sample_points(model, 3 * tested, seed=derive(seed, "pool", k, t), like=x)
            pool = fitted[t : t + 1].witness(_frame(model, seed).enter(drawn))[0]
            source = Source(seed, "bootstrap", k, t, device=pool.device)
            null = pooled_bootstrap(pool, tested, draws=draws, source=source, centered=False)
            pvalues.append(float(rank_pvalues(observed[None], null)))
    return Trials(test=job.method, n=n, pvalues=torch.tensor(pvalues, dtype=torch.float64), draws=draws)


def _datasets(model: GaussianMixture, n: int, runs: int, seed: int) -> Tensor:
    return model.sample(runs * n, seed=derive(seed, "datasets")).view(runs, n, -1)


def _frame(model: GaussianMixture, seed: int) -> Frame:
    return Frame.of(model.sample(2000, seed=derive(seed, "frame")))


def _standardized(model: GaussianMixture, x: Tensor, seed: int) -> ScoredPoints:
    return _frame(model, seed).enter(ScoredPoints(x, model.score(x)))


def _fit(points: ScoredPoints, config: Split, seed: int) -> FittedBank:
    return fit_bank(
        points,
        staging=DEFAULT_STAGING,
        seeds=[derive(seed, k) for k in range(len(points.x))],
        network=config.network,
        training=config.training,
    )


_CONTROLS = {"naive cross-fit": _naive_crossfit, "pool of 3n, not centred": _uncentered_pool}

STUDY = Study(
    name="calibration",
    title="Level of every method on null data",
    takes="50 minutes on an H200, hours on two cores",
    full=Calibration(),
    tiny=Calibration(
        problems=("skewed-1d",),
        methods=("combined", "crossfit", "split, fresh", "KSD, wild", *CONTROLS),
        runs=8,
        crossfit_runs=8,
        tiny=True,
    ),
    run=run,
    table=calibration_table,
    figures=draw_calibration,
)
