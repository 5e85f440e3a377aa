"""The 1-D mixture: the critic through training, and the three histograms of the bootstrap."""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.data.problems import Problem, problem
from steincritic.gof.null import fresh_monte_carlo, pooled_bootstrap
from steincritic.models.mixture import GaussianMixture
from steincritic.rng import Source, derive
from steincritic.training.fit import Training, fit_bank
from steincritic.training.fitted import FittedBank
from steincritic.training.staging import Staged
from steincritic_studies.paper.figures import draw_one_dimension, one_dimension_table
from steincritic_studies.study import Context, Outcome, Study


@dataclass(frozen=True, kw_only=True)
class OneDimension:
    """[repasky2023] appendix B.2 and section 5.1.1."""

    staging: Staged
    training: Training
    trained: int = 1000
    width: int = 512
    shown_epochs: tuple[int, ...] = (1, 10, 60)
    partly_trained_epochs: int = 5
    tested: int = 100
    statistics: int = 10_000
    pool: int = 50


def run(config: OneDimension, context: Context) -> Outcome:
    start = time.perf_counter()
    pair = problem("gm-1d").to(context.device, torch.float32)
    grid = torch.linspace(-4, 4, 161, device=context.device)[:, None]
    x = pair.data.sample(config.trained, seed=derive(context.seed, "train"))
    points = ScoredPoints(x, pair.model.score(x))

    def trained_for(epochs: int) -> FittedBank:
        return fit_bank(
            points,
            staging=config.staging,
            seeds=[derive(context.seed, "critic")],
            network=MLP(hidden=(config.width, config.width)),
            training=replace(config.training, epochs=epochs),
            callbacks=context.callbacks,
        )

    critics = [_curve(trained_for(epochs), epochs, grid, config) for epochs in config.shown_epochs]
    partly = trained_for(config.partly_trained_epochs)
    results: dict[str, Any] = {
        "grid": grid[:, 0],
        "optimal": pair.gap(grid)[:, 0],
        "critics": critics,
        "partly_trained": _curve(partly, config.partly_trained_epochs, grid, config),
        "statistics": _statistics(partly, pair, config, context.seed),
    }
    return Outcome(results, {"total": time.perf_counter() - start})


def _curve(fitted: FittedBank, epochs: int, grid: Tensor, config: OneDimension) -> dict[str, Any]:
    lam = float(fitted.history["lam"][-1, 0])
    scaleless = fitted.field(grid)[0, :, 0]
    return {"epochs": epochs, "lam": lam, "scaleless": scaleless, "critic": scaleless / lam}


def _statistics(fitted: FittedBank, pair: Problem, config: OneDimension, seed: int) -> dict[str, Any]:
    """The test statistic under p, under q afresh, and under q from a pool; histograms and quantiles."""
    n, count = config.tested, config.statistics

    def fresh(source: GaussianMixture, name: str) -> Tensor:
        def witness(size: int, part: int) -> Tensor:
            x = source.sample(size, seed=derive(seed, name, part))
            return fitted.witness(ScoredPoints(x, pair.model.score(x)))[0]

        return fresh_monte_carlo(witness, n, draws=count)

    x = pair.model.sample(config.pool * n, seed=derive(seed, "pool"))
    pool = fitted.witness(ScoredPoints(x, pair.model.score(x)))[0]
    sets = {
        "data": fresh(pair.data, "data"),
        "model, fresh": fresh(pair.model, "null"),
        "model, pooled": pooled_bootstrap(
            pool, n, draws=count, source=Source(seed, "bootstrap", device=pool.device)
        ),
    }
    low = min(float(values.min()) for values in sets.values())
    high = max(float(values.max()) for values in sets.values())
    edges = torch.linspace(low, high, 81, dtype=torch.float64)
    return {
        "edges": edges,
        "counts": {k: torch.histogram(v.double().cpu(), edges).hist for k, v in sets.items()},
        "mean": {k: float(v.mean()) for k, v in sets.items()},
        "quantile95": {k: float(v.quantile(0.95)) for k, v in sets.items()},
        "power": float((sets["data"] > sets["model, fresh"].quantile(0.95)).double().mean()),
    }


_STAGING = Staged(initial=1.0, floor=1e-3, decay=0.9, every=5)
_TRAINING = Training(epochs=60, batch_size=200, learning_rate=1e-3)

STUDY = Study(
    name="gm-1d",
    title="Gaussian mixture in 1 dimension",
    takes="6 seconds on an H200, minutes on two cores",
    full=OneDimension(staging=_STAGING, training=_TRAINING),
    tiny=OneDimension(
        staging=_STAGING,
        trained=100,
        training=Training(epochs=3, batch_size=50, learning_rate=1e-3),
        width=16,
        shown_epochs=(1, 2, 3),
        partly_trained_epochs=2,
        tested=20,
        statistics=200,
        pool=5,
    ),
    run=run,
    table=one_dimension_table,
    figures=draw_one_dimension,
)
