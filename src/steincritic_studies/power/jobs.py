"""One cell of a power curve as a job: a problem, a method, a sample size; and the methods by name."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from steincritic.data.problems import Problem, problem
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.combined import Combined
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.fssd import Fssd
from steincritic.gof.kernel import Ksd
from steincritic.gof.power import Rate, trials_of
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.models.base import Model
from steincritic.models.rbm import GaussianBernoulliRBM, block_gibbs, random_rbm
from steincritic.rng import Source, derive
from steincritic.stein.kernels import IMQ, RBF
from steincritic.training.fit import Training
from steincritic.training.pacing import DEFAULT_STAGING
from steincritic.training.staging import Staged, fixed
from steincritic_studies.paper.power import OptimalCritic, SplitPower, mean_power

MEDIAN = "KSD, median"
SELECTED = "KSD, δ = 2^-4"
_DRAWS = 499
FACTORS = tuple(2.0**k for k in range(-6, 3))  # of the squared median distance
SHARES = tuple(k / 10 for k in range(1, 10))  # of the points, to train on
STAGINGS: dict[str, Staged | Literal["auto"]] = {
    "auto": "auto",
    "0.5 to 0.001, by 0.80": Staged(initial=0.5, floor=1e-3, decay=0.80),  # the paper's, 10-D
    "0.5 to 0.001, by 0.85": Staged(initial=0.5, floor=1e-3, decay=0.85),
    "0.4 to 0.0005, by 0.80": Staged(initial=0.4, floor=5e-4, decay=0.80),  # 25-D and 50-D
    "0.4 to 0.0005, by 0.85": DEFAULT_STAGING,
    "0.4 to 0.0005, by 0.90": Staged(initial=0.4, floor=5e-4, decay=0.90),
    "fixed 0.001": fixed(1e-3),
    "fixed 0.01": fixed(1e-2),
    "fixed 0.1": fixed(0.1),
    "fixed 1": fixed(1.0),
}


@dataclass(frozen=True, kw_only=True)
class PowerJob:
    """Many tests of one method on one problem at one sample size."""

    problem: str  # a mixture's name, or "rbm"
    method: str
    n: int
    trials: int
    seed: int
    sigma: float = 0.0  # perturbation of the RBM's weights; data from the model itself at 0
    null_pool: int = 199
    tiny: bool = False


def run_power_job(job: PowerJob) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    rate = _rbm_rate(job, device) if job.problem == "rbm" else _mixture_rate(job, device)
    low, high = rate.interval()
    return {
        "problem": job.problem,
        "method": job.method,
        "n": job.n,
        "sigma": job.sigma,
        "rejections": rate.rejections,
        "trials": rate.trials,
        "power": rate.value,
        "interval": [low, high],
        "seconds": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }


def _mixture_rate(job: PowerJob, device: torch.device) -> Rate:
    pair = problem(job.problem).to(device, torch.float32)
    if job.method in _CEILINGS:
        return _CEILINGS[job.method](pair, job)
    x = torch.stack(
        [pair.data.sample(job.n, seed=derive(job.seed, "data", job.n, t)) for t in range(job.trials)]
    )
    return _rate(job, pair.model, x)


def _rbm_rate(job: PowerJob, device: torch.device) -> Rate:
    """Every trial has its own perturbation of all weights, [liu2016]; the model is the same throughout."""
    sweeps = 20 if job.tiny else 2000
    model = random_rbm(50, 40, seed=derive(job.seed, "machine"), sweeps=sweeps).to(device, torch.float32)
    source = Source(job.seed, "perturbation", f"{job.sigma:g}", job.n, device=device)
    parts = [
        _perturbed_draws(model, min(100, job.trials - done), job, source)
        for done in range(0, job.trials, 100)
    ]
    return _rate(job, model, torch.cat(parts))


def _perturbed_draws(
    model: GaussianBernoulliRBM, machines: int, job: PowerJob, source: Source
) -> torch.Tensor:
    noise = source.normals(machines, *model.weights.shape, dtype=model.weights.dtype)
    return block_gibbs(
        model.weights + job.sigma * noise,
        model.visible_bias,
        model.hidden_bias,
        job.n,
        sweeps=model.sweeps,
        source=source,
    )


def _rate(job: PowerJob, model: Model, x: torch.Tensor) -> Rate:
    test = tests_by_name(tiny=job.tiny)[job.method]
    if isinstance(test, CrossFit | Combined):
        test = replace(test, null_pool=max(job.null_pool, test.draws or 0))
    return trials_of(model, x, test, seed=derive(job.seed, "trials", job.n)).rate()


def tests_by_name(*, tiny: bool) -> dict[str, GofTest]:
    """What the names in the tables stand for: the default test, unless the name says otherwise."""
    training = Training(epochs=10) if tiny else Training()
    draws = 19 if tiny else _DRAWS
    split = Split(draws=draws, threshold="permutation", training=training)
    return {
        "combined": Combined(draws=19, reference=20, critics=None) if tiny else Combined(),
        "crossfit": CrossFit(draws=19, training=training, look=2) if tiny else CrossFit(draws=199),
        "split": split,
        MEDIAN: Ksd(draws=draws),
        SELECTED: Ksd(kernel=RBF(factor=2**-4), draws=draws),
        "KSD, IMQ median": Ksd(kernel=IMQ(scale="median"), draws=draws),
        "aggregated KSD": KsdAgg(draws=draws),
        "FSSD": Fssd(draws=draws, steps=5 if tiny else 100),
        **{f"KSD at {factor:g}": Ksd(kernel=RBF(factor=factor), draws=draws) for factor in FACTORS},
        **{f"split at {share:g}": replace(split, train=share) for share in SHARES},
        **{f"split with {name}": replace(split, staging=staging) for name, staging in STAGINGS.items()},
    }


def _optimal_critic(pair: Problem, job: PowerJob) -> Rate:
    critic = OptimalCritic(pair)
    config = SplitPower(n=job.n, runs=job.trials, draws=_DRAWS)
    return mean_power(lambda points, _: critic.witness(points), pair.data, pair.model, config, seed=job.seed)


def _likelihood_ratio(pair: Problem, job: PowerJob) -> Rate:
    config = SplitPower(n=job.n, runs=job.trials, draws=_DRAWS, threshold="fresh")
    return mean_power(
        lambda points, _: pair.log_likelihood_ratio(points.x), pair.data, pair.model, config, seed=job.seed
    )


_CEILINGS: dict[str, Callable[[Problem, PowerJob], Rate]] = {
    "optimal critic": _optimal_critic,
    "likelihood ratio": _likelihood_ratio,
}
