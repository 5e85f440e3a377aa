"""Energies learned by their Stein discrepancy, and whether our own test finds them out."""

import time
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.gof.choose import gof_test
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.power import Rate
from steincritic.learning import FOR_PERCEPTRONS, EnergyMLP, Learning, fit_energy
from steincritic.models.mixture import GaussianMixture
from steincritic.models.perceptron_energy import PerceptronEnergy
from steincritic.rng import derive
from steincritic.training.fit import Training
from steincritic_studies.learning.figures import draw_learning, learning_table
from steincritic_studies.learning.toys import TOY_NAMES, toy
from steincritic_studies.study import Context, Outcome, Study

LEVEL = 0.05
ENERGY = EnergyMLP(hidden=(64, 64))
LEARNING = replace(FOR_PERCEPTRONS, critic=MLP(hidden=(64, 64)))
_TEST = CrossFit(cache=False)  # every model is tested once
_TINY_TEST = CrossFit(draws=19, training=Training(epochs=6), network=MLP(hidden=(8,)), look=1, cache=False)
_FRESH = 5_000  # points on which divergences are measured
_PIXELS = 80  # per side of the pictures of densities
_DOTS = 600  # data points in a picture


@dataclass(frozen=True, kw_only=True)
class LearnJob:
    density: str
    kind: str  # "learned", or "gaussian": the start of learning, which must be rejected
    number: int
    seed: int
    rows: int
    tested: int
    energy: EnergyMLP
    learning: Learning
    device: str = "cpu"
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class LearnedEnergies:
    """Densities in the plane; an energy learned from some rows, tested on others.

    The settings of learning were chosen on seeds that are not run here.
    """

    densities: tuple[str, ...] = TOY_NAMES
    runs: int = 20
    controls: int = 2
    rows: int = 50_000
    tested: int = 500
    energy: EnergyMLP = ENERGY
    learning: Learning = LEARNING
    tiny: bool = False


def run(config: LearnedEnergies, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = [
        LearnJob(
            density=density,
            kind=kind,
            number=number,
            seed=context.seed,
            rows=config.rows,
            tested=config.tested,
            energy=config.energy,
            learning=config.learning,
            device=context.device.type if context.engine == "serial" else "cpu",  # one job per core
            tiny=config.tiny,
        )
        for kind, runs in (("gaussian", config.controls), ("learned", config.runs))
        for number in range(runs)
        for density in config.densities
    ]
    parts = context.sweep(run_learn_job, jobs)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for job, part in zip(jobs, parts, strict=True):
        found.setdefault((job.density, job.kind), []).append(part)
    rows = [{"density": density, "kind": kind} | _summary(runs) for (density, kind), runs in found.items()]
    pictures = {density: found[density, "learned"][0]["picture"] for density in config.densities}
    results = {"rows": rows, "pictures": pictures, "level": LEVEL}
    return Outcome(results, {"total": time.perf_counter() - start})


def run_learn_job(job: LearnJob) -> dict[str, Any]:
    seed = derive(job.seed, "learn-ebm", job.density, job.number)
    law = toy(job.density)
    x = law.sample(job.rows, seed=derive(seed, "rows"))
    start = time.perf_counter()
    model = _learned(job, x, seed)
    seconds = {"learning": time.perf_counter() - start}
    start = time.perf_counter()
    fresh = law.sample(job.tested, seed=derive(seed, "tested"))
    config = _TINY_TEST if job.tiny else _TEST
    test = gof_test(model, fresh, config, LEVEL, seed, job.device)
    seconds["test"] = time.perf_counter() - start
    result = {"pvalue": test.pvalue, "rejected": test.rejected, "seconds": seconds}
    result |= _divergences(law, model, x.std(0), seed)
    return result | ({"picture": _picture(law, model, x)} if job.number == 0 else {})


def _learned(job: LearnJob, x: Tensor, seed: int) -> PerceptronEnergy:
    if job.kind == "gaussian":
        return job.energy.begin(x, seed)
    model = fit_energy(job.energy, x, learning=job.learning, seed=seed, device=job.device).model
    assert isinstance(model, PerceptronEnergy)
    return model.to("cpu", torch.float64)


def _divergences(law: GaussianMixture, model: PerceptronEnergy, scale: Tensor, seed: int) -> dict[str, float]:
    """KL(p | q) by the grid's constant, and E_p|s_q - s_p|² in units of the data's standard deviation."""
    x = law.sample(_FRESH, seed=derive(seed, "measured"))
    gap = scale * (model.score(x) - law.score(x))
    return {
        "kl": float((law.log_prob(x) - model.grid.log_prob(x)).mean()),
        "fisher": float((gap * gap).sum(-1).mean()),
        "fisher_of_data": float((scale * law.score(x)).square().sum(-1).mean()),
    }


def _picture(law: GaussianMixture, model: PerceptronEnergy, x: Tensor) -> dict[str, Any]:
    """The learned density over a box that holds the data, and some of the data."""
    low, high = x.amin(0) - 0.3, x.amax(0) + 0.3
    axes = [a + (b - a) * (torch.arange(_PIXELS) + 0.5) / _PIXELS for a, b in zip(low, high, strict=True)]
    places = torch.stack(torch.meshgrid(*axes, indexing="xy"), dim=-1).view(-1, 2).double()
    densities = {
        name: q.log_prob(places).exp().view(_PIXELS, _PIXELS)
        for name, q in (("law", law), ("model", model.grid))
    }
    return {
        "low": low.tolist(),
        "high": high.tolist(),
        "data": _rounded(x[:_DOTS]),
        **{name: _rounded(value) for name, value in densities.items()},
    }


def _rounded(value: Tensor) -> list[list[float]]:
    return [[float(f"{v:.4g}") for v in row] for row in value.tolist()]


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    rate = Rate(sum(run["rejected"] for run in runs), len(runs))
    return {
        "runs": rate.trials,
        "rejections": rate.rejections,
        "rate": rate.value,
        "interval": rate.interval(),
        "pvalues": [run["pvalue"] for run in runs],
        **{name: _mean([run[name] for run in runs]) for name in ("kl", "fisher", "fisher_of_data")},
        "seconds": {part: mean(run["seconds"][part] for run in runs) for part in ("learning", "test")},
    }


def _mean(values: list[float]) -> dict[str, float]:
    spread = stdev(values) if len(values) > 1 else 0.0
    return {"mean": mean(values), "se": spread / len(values) ** 0.5}


STUDY = Study(
    name="learn-ebm",
    title="Energies learned by their Stein discrepancy, tested on fresh data",
    takes="50 minutes on one core",
    full=LearnedEnergies(),
    tiny=LearnedEnergies(
        densities=("mixture", "moons"),
        runs=2,
        controls=1,
        rows=400,
        tested=60,
        energy=EnergyMLP(hidden=(8,)),
        learning=Learning(steps=4, batch_size=50, log_every=2),
        tiny=True,
    ),
    run=run,
    table=learning_table,
    figures=draw_learning,
)
