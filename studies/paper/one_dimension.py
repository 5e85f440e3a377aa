"""The 1-D mixture: critics through training, statistics of partly trained ones, seconds of the bootstrap."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from steincritic import MLP, ScoredPoints, Staged, Training, fit_bank
from steincritic.critics import Bank
from steincritic.data import Problem, problem
from steincritic.gof.null import fresh_monte_carlo, pooled_bootstrap
from steincritic.models import GaussianMixture
from steincritic.rng import Source, derive
from steincritic.stein import stein_values
from steincritic.training import FittedBank
from studies.paper.figures import draw_one_dimension, one_dimension_table
from studies.study import Context, Outcome, Study

TEXT, CODE = "text", "released code"


@dataclass(frozen=True, kw_only=True)
class OneDimension:
    """[repasky2023] appendix B.2 and section 5.1.1."""

    staging: Staged
    training: Training
    trained: int = 1000
    width: int = 512
    critics: int = 5  # the first is shown
    shown_epochs: tuple[int, ...] = (1, 10, 60)
    tested_epochs: tuple[int, ...] = (5, 10, 15, 20)  # the last of the text's roles is shown
    tested: int = 100
    statistics: int = 10_000  # of the row that is shown, a fifth for the others
    pool: int = 50
    draws: int = 500  # null statistics that are timed
    timed: tuple[str, ...] = ("gm-1d", "gm-50d")
    repetitions: int = 5


def run(config: OneDimension, context: Context) -> Outcome:
    text = problem("gm-1d").to(context.device, torch.float32)
    roles = {TEXT: text, CODE: Problem("gm-1d", data=text.model, model=text.data)}
    grid = torch.linspace(-4, 4, 161, device=context.device)[:, None]
    rows = []
    for name, pair in roles.items():
        for epochs in config.tested_epochs:
            fitted = _trained(pair, epochs, config, context)
            is_shown = (name, epochs) == (TEXT, config.tested_epochs[-1])
            count = config.statistics if is_shown else config.statistics // 5
            statistics = _statistics(fitted, pair, config, count, context.seed)
            rows.append({"roles": name, **_curve(fitted, grid), **statistics})
    return Outcome(
        {
            "grid": grid[:, 0],
            "optimal": text.gap(grid)[:, 0],
            "critics": [
                _curve(_trained(text, epochs, config, context), grid) for epochs in config.shown_epochs
            ],
            "statistics": rows,
            "speed": [_speed(problem(name), config, context) for name in config.timed],
        }
    )


def _trained(pair: Problem, epochs: int, config: OneDimension, context: Context) -> FittedBank:
    x = pair.data.sample(config.trained, seed=derive(context.seed, "train"))
    return fit_bank(
        ScoredPoints(x, pair.model.score(x)),
        staging=config.staging,
        seeds=[derive(context.seed, "critic", k) for k in range(config.critics)],
        network=MLP(hidden=(config.width, config.width)),
        training=replace(config.training, epochs=epochs),
        callbacks=context.callbacks,
    )


def _curve(fitted: FittedBank, grid: Tensor) -> dict[str, Any]:
    """The first critic, by f and by λf."""
    scaleless, lam = fitted[:1].field(grid)[0, :, 0], float(fitted.lam[0])
    return {"epochs": fitted.history.epochs, "lam": lam, "scaleless": scaleless, "critic": scaleless / lam}


def _statistics(
    fitted: FittedBank, pair: Problem, config: OneDimension, count: int, seed: int
) -> dict[str, Any]:
    """The raw statistic, the mean of T_q f: under p, under q afresh, and under q from a pool.

    Histograms, quantiles and power are those of the first critic.
    """
    n = config.tested

    def drawn(critics: FittedBank, source: GaussianMixture, count: int, *name: str | int) -> Tensor:
        x = source.sample(count, seed=derive(seed, *name))
        return critics.witness(ScoredPoints(x, pair.model.score(x))) / critics.lam[:, None]

    def fresh(source: GaussianMixture, name: str) -> Tensor:
        return fresh_monte_carlo(lambda n, part: drawn(first, source, n, name, part)[0], n, draws=count)

    first = fitted[:1]
    pool = drawn(first, pair.model, config.pool * n, "pool")[0]
    bootstrap = Source(seed, "bootstrap", device=pool.device)
    sets = {
        "data": fresh(pair.data, "data"),
        "model, fresh": fresh(pair.model, "null"),
        "model, pooled": pooled_bootstrap(pool, n, draws=count, source=bootstrap),
    }
    both = torch.cat(list(sets.values()))
    edges = torch.linspace(float(both.min()), float(both.max()), 81, dtype=torch.float64)
    nulls = [name for name in sets if name != "data"]
    means = drawn(fitted, pair.data, config.statistics, "critics").mean(1)
    return {
        "statistics": count,
        "edges": edges,
        "counts": {name: torch.histogram(v.double().cpu(), edges).hist for name, v in sets.items()},
        "mean": {name: float(v.mean()) for name, v in sets.items()},
        "scaled_mean": float(fitted.lam[0] * sets["data"].mean()),
        "quantile95": {name: float(sets[name].quantile(0.95)) for name in nulls},
        "power": {name: float((sets["data"] > sets[name].quantile(0.95)).double().mean()) for name in nulls},
        "critics": {"mean": float(means.mean()), "sd": float(means.std())},
    }


def _speed(pair: Problem, config: OneDimension, context: Context) -> dict[str, Any]:
    """Seconds of the null statistics, draws of q and their scores counted; the critic need not be trained."""
    model, n, device = pair.model.to(context.device, torch.float32), config.tested, context.device
    network = MLP(hidden=(config.width, config.width))
    critic = Bank(network, network.init(pair.dim, [context.seed], dtype=torch.float32, device=device))

    def witness(count: int, part: int = 0) -> Tensor:
        x = model.sample(count, seed=part)
        return stein_values(model.score(x), *critic.field_and_divergence(x))[0]

    def pooled() -> Tensor:
        source = Source(context.seed, "timed", device=device)
        return pooled_bootstrap(witness(config.pool * n), n, draws=config.draws, source=source)

    ways = {"fresh": lambda: fresh_monte_carlo(witness, n, draws=config.draws), "pooled": pooled}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(1 + config.repetitions):  # the first warms up
        for name, way in ways.items():
            seconds = _seconds(way)
            if repetition:
                taken[name].append(seconds)
    middle = {name: median(values) for name, values in taken.items()}
    return {
        "problem": pair.name,
        "dim": pair.dim,
        "seconds": {**middle, "ratio": middle["fresh"] / middle["pooled"]},
    }


def _seconds(way: Callable[[], Tensor]) -> float:
    start = time.perf_counter()
    way().sum().item()  # a GPU has to be waited for
    return time.perf_counter() - start


_FULL = OneDimension(
    staging=Staged(initial=1.0, floor=1e-3, decay=0.9, every=5),
    training=Training(epochs=60, batch_size=200, learning_rate=1e-3),
)
STUDY = Study(
    name="gm-1d",
    title="Gaussian mixture in 1 dimension",
    takes="4 minutes on one core",
    full=_FULL,
    tiny=replace(
        _FULL,
        trained=100,
        training=Training(epochs=3, batch_size=50, learning_rate=1e-3),
        width=16,
        critics=2,
        shown_epochs=(1, 2, 3),
        tested_epochs=(1, 2),
        tested=20,
        statistics=200,
        pool=5,
        draws=50,
        repetitions=1,
    ),
    run=run,
    table=one_dimension_table,
    figures=draw_one_dimension,
)
