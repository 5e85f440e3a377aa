"""The 1-D mixture: the critic through training, and the three histograms of the bootstrap."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steincritic import MLP, ScoredPoints, Staged, Training, fit_bank
from steincritic.data import Problem, problem
from steincritic.gof.null import fresh_monte_carlo, pooled_bootstrap
from steincritic.models import GaussianMixture
from steincritic.rng import Source, derive
from steincritic.training import FittedBank
from studies.paper.figures import draw_one_dimension, one_dimension_table
from studies.study import Context, Outcome, Study


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

    partly = trained_for(config.partly_trained_epochs)
    results: dict[str, Any] = {
        "grid": grid[:, 0],
        "optimal": pair.gap(grid)[:, 0],
        "critics": [_curve(trained_for(epochs), grid) for epochs in config.shown_epochs],
        "partly_trained": _curve(partly, grid),
        "statistics": _statistics(partly, pair, config, context.seed),
    }
    return Outcome(results)


def _curve(fitted: FittedBank, grid: Tensor) -> dict[str, Any]:
    lam = fitted.history["lam"][:, 0]
    scaleless = fitted.field(grid)[0, :, 0]
    last = float(lam[-1])
    return {"epochs": len(lam), "lam": last, "scaleless": scaleless, "critic": scaleless / last}


def _statistics(fitted: FittedBank, pair: Problem, config: OneDimension, seed: int) -> dict[str, Any]:
    """The test statistic under p, under q afresh, and under q from a pool; histograms and quantiles."""
    n, count = config.tested, config.statistics

    def drawn(source: GaussianMixture, count: int, *name: str | int) -> Tensor:
        x = source.sample(count, seed=derive(seed, *name))
        return fitted.witness(ScoredPoints(x, pair.model.score(x)))[0]

    def fresh(source: GaussianMixture, name: str) -> Tensor:
        return fresh_monte_carlo(lambda size, part: drawn(source, size, name, part), n, draws=count)

    pool = drawn(pair.model, config.pool * n, "pool")
    bootstrap = Source(seed, "bootstrap", device=pool.device)
    sets = {
        "data": fresh(pair.data, "data"),
        "model, fresh": fresh(pair.model, "null"),
        "model, pooled": pooled_bootstrap(pool, n, draws=count, source=bootstrap),
    }
    both = torch.cat(list(sets.values()))
    edges = torch.linspace(float(both.min()), float(both.max()), 81, dtype=torch.float64)
    return {
        "edges": edges,
        "counts": {k: torch.histogram(v.double().cpu(), edges).hist for k, v in sets.items()},
        "mean": {k: float(v.mean()) for k, v in sets.items()},
        "quantile95": {k: float(v.quantile(0.95)) for k, v in sets.items()},
        "power": float((sets["data"] > sets["model, fresh"].quantile(0.95)).double().mean()),
    }


_FULL = OneDimension(
    staging=Staged(initial=1.0, floor=1e-3, decay=0.9, every=5),
    training=Training(epochs=60, batch_size=200, learning_rate=1e-3),
)
STUDY = Study(
    name="gm-1d",
    title="Gaussian mixture in 1 dimension",
    takes="6 seconds on an H200, minutes on two cores",
    full=_FULL,
    tiny=replace(
        _FULL,
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
