"""The paper's Gaussian-mixture tables: every scheme and replica of a table in one bank."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.data.problems import Problem, problem
from steincritic.gof.power import Rate
from steincritic.rng import derive
from steincritic.training.checkpoint import Checkpoint
from steincritic.training.fit import Training, Yardsticks, always, fit_bank
from steincritic.training.fitted import FittedBank
from steincritic.training.objective import Gap
from steincritic.training.staging import Staged, Staging, fixed
from steincritic_studies.paper.figures import draw_mixture, mixture_table
from steincritic_studies.paper.power import OptimalCritic, SplitPower, mean_power, split_power
from steincritic_studies.paper.published import GM_2D, GM_10D, GM_25D, MSE_SCALE, Published
from steincritic_studies.study import Context, Outcome, Study


@dataclass(frozen=True, kw_only=True)
class MixtureTable:
    """[repasky2023] section 6.1.2. `schemes` maps the table's row names to stagings."""

    problem: str
    schemes: Mapping[str, Staged]
    published: Mapping[str, Published]
    tested: int  # points of one test
    replicas: int = 10
    trained: int = 2000
    validated: int = 1000
    mse_points: int = 20_000
    epochs: int = 60
    batch_size: int = 200
    learning_rate: float = 1e-3
    width: int = 512
    runs: int = 500
    draws: int = 500
    pool: int = 50
    fields: Mapping[str, tuple[int, ...]] | None = None  # scheme -> epochs at which to draw its field

    @property
    def training(self) -> Training:
        return Training(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            selection="monitor",
        )

    @property
    def network(self) -> MLP:
        return MLP(hidden=(self.width, self.width))

    @property
    def power(self) -> SplitPower:
        return SplitPower(n=self.tested, runs=self.runs, draws=self.draws, pool=self.pool)


def run(config: MixtureTable, context: Context) -> Outcome:
    pair = problem(config.problem).to(context.device, torch.float32)
    seeds = [derive(context.seed, "replica", r) for r in range(config.replicas)]
    fitted = _fit(config, pair, seeds, context)
    start = time.perf_counter()
    exact = _powers(config, fitted, pair, config.power, context.seed)
    stochastic = (  # the paper, too, is exact up to two dimensions
        _powers(config, fitted, pair, replace(config.power, probe=True), context.seed) if pair.dim > 2 else {}
    )
    rows = [
        _row(config, name, k, fitted, exact[name], stochastic.get(name))
        for k, name in enumerate(config.schemes)
    ]
    results: dict[str, Any] = {"rows": rows, "ceilings": _ceilings(config, pair, context.seed)}
    seconds = {**fitted.seconds, "power": time.perf_counter() - start}
    if config.fields:
        results["fields"] = _fields(config, pair, seeds[0])
    return Outcome(results, seconds)


def _fit(config: MixtureTable, pair: Problem, seeds: list[int], context: Context) -> FittedBank:
    """Replica r of every scheme sees the same data and starts from the same weights."""
    train = _scored_sets(pair, config.trained, [derive(s, "train") for s in seeds])
    validation = _scored_sets(pair, config.validated, [derive(s, "validation") for s in seeds])
    schemes = len(config.schemes)
    q_points = pair.model.sample(config.mse_points, seed=derive(context.seed, "mse"))
    stagings: list[Staging] = [s for s in config.schemes.values() for _ in seeds]
    return fit_bank(
        _repeat(train, schemes),
        staging=stagings,
        seeds=[derive(s, "critic") for s in seeds] * schemes,
        network=config.network,
        training=config.training,
        yardsticks=Yardsticks(
            validation=always(_repeat(validation, schemes)),
            gap_q=Gap(q_points, pair.gap(q_points)),
        ),
        callbacks=context.callbacks,
        checkpoint=Checkpoint(context.checkpoint, 60.0) if context.checkpoint else None,
    )


def _powers(
    config: MixtureTable, fitted: FittedBank, pair: Problem, power: SplitPower, seed: int
) -> dict[str, list[Rate]]:
    rates = split_power(fitted, pair.data, pair.model, power, seed=seed)
    r = config.replicas
    return {name: rates[k * r : (k + 1) * r] for k, name in enumerate(config.schemes)}


def _row(
    config: MixtureTable,
    name: str,
    k: int,
    fitted: FittedBank,
    exact: list[Rate],
    stochastic: list[Rate] | None,
) -> dict[str, Any]:
    members = slice(k * config.replicas, (k + 1) * config.replicas)
    history = {key: value[:, members] for key, value in fitted.history.items()}
    stop = history["monitor"].argmin(0)  # (replicas,)
    selected = history["mse_q"].gather(0, stop[None])[0]
    return {
        "scheme": name,
        "staging": config.schemes[name],
        "published": config.published.get(name),
        "power_exact": _spread([rate.value for rate in exact]),
        "power_stochastic": stochastic and _spread([rate.value for rate in stochastic]),
        "mse_q": _spread(selected.tolist()),
        "mse_q_published_scale": _spread((MSE_SCALE * selected).tolist()),
        "stopping_epoch": _spread((stop + 1).double().tolist()),
        "curves": {
            key: {"mean": history[key].mean(1), "sd": history[key].std(1)}
            for key in ("mse_q", "monitor", "lam")
        },
    }


def _spread(values: list[float]) -> dict[str, Any]:
    """Mean over replicas with standard deviation and standard error, and the values themselves."""
    tensor = torch.tensor(values, dtype=torch.float64)
    sd = float(tensor.std()) if len(values) > 1 else 0.0
    return {"mean": float(tensor.mean()), "sd": sd, "se": sd / len(values) ** 0.5, "values": values}


def _ceilings(config: MixtureTable, pair: Problem, seed: int) -> dict[str, Any]:
    """What the best critic and the best test of all reach on the same n."""
    optimal = OptimalCritic(pair)
    fresh = replace(config.power, threshold="fresh")
    rates = {
        "optimal critic": mean_power(
            lambda points, _: optimal.witness(points), pair.data, pair.model, config.power, seed=seed
        ),
        "likelihood ratio": mean_power(
            lambda points, _: pair.log_likelihood_ratio(points.x),
            pair.data,
            pair.model,
            fresh,
            seed=seed,
        ),
    }
    return {
        name: {"power": rate.value, "interval": rate.interval(), "trials": rate.trials}
        for name, rate in rates.items()
    }


def _fields(config: MixtureTable, pair: Problem, seed: int) -> dict[str, Any]:
    """The scaleless critic on a grid after some epochs; the same training, stopped there."""
    assert config.fields is not None
    axis = torch.linspace(-2.5, 3.0, 18, device=pair.model.means.device)
    grid = torch.cartesian_prod(axis, axis)
    points = _scored_sets(pair, config.trained, [derive(seed, "train")])
    drawn: dict[str, Any] = {"grid": grid, "optimal": pair.gap(grid), "critics": []}
    for name, epochs in config.fields.items():
        for count in epochs:
            fitted = fit_bank(
                points,
                staging=config.schemes[name],
                seeds=[derive(seed, "critic")],
                network=config.network,
                training=replace(config.training, epochs=count, selection="last"),
            )
            drawn["critics"].append({"scheme": name, "epochs": count, "field": fitted.field(grid)[0]})
    return drawn


def _scored_sets(pair: Problem, n: int, seeds: list[int]) -> ScoredPoints:
    x = torch.stack([pair.data.sample(n, seed=seed) for seed in seeds])
    return ScoredPoints(x, pair.model.score(x))


def _repeat(points: ScoredPoints, times: int) -> ScoredPoints:
    def repeated(t: Tensor) -> Tensor:
        return t.repeat(times, 1, 1)

    return ScoredPoints(repeated(points.x), repeated(points.score))


def _staged(initial: float, floor: float, decay: float) -> Staged:
    return Staged(initial=initial, floor=floor, decay=decay, every=10)


def _fixed(names: tuple[str, ...]) -> dict[str, Staged]:
    return {name: fixed(float(name)) for name in names}


_2D = MixtureTable(
    problem="gm-2d",
    schemes=_fixed(("1e-3", "1e-2", "1e-1", "1"))
    | {"staged 0.90": _staged(1.0, 5e-2, 0.90), "staged 0.95": _staged(1.0, 5e-2, 0.95)},
    published=GM_2D,
    tested=75,
    fields={"staged 0.90": (1, 10, 30)},
)
_10D = MixtureTable(
    problem="gm-10d",
    schemes=_fixed(("2.5e-4", "1e-3", "4e-3", "1.6e-2", "6.4e-2", "2.56e-1", "1.024"))
    | {"staged 0.80": _staged(0.5, 1e-3, 0.80), "staged 0.85": _staged(0.5, 1e-3, 0.85)},
    published=GM_10D,
    tested=200,
)
_25D = MixtureTable(
    problem="gm-25d",
    schemes=_fixed(("2.5e-4", "1e-3", "4e-3", "1.6e-2", "6.4e-2"))
    | {f"staged {decay:.2f}": _staged(0.4, 5e-4, decay) for decay in (0.80, 0.85, 0.90)},
    published=GM_25D,
    tested=500,
)


def _tiny(config: MixtureTable) -> MixtureTable:
    names = ("1e-3", "staged 0.90") if "staged 0.90" in config.schemes else ("1e-3", "staged 0.85")
    return replace(
        config,
        schemes={name: config.schemes[name] for name in names},
        fields={name: (1, 2) for name in config.fields} if config.fields else None,
        tested=40,
        replicas=2,
        trained=200,
        validated=100,
        mse_points=500,
        epochs=4,
        width=16,
        runs=20,
        draws=39,
        pool=5,
    )


def _study(name: str, title: str, config: MixtureTable, takes: str) -> Study:
    return Study(
        name=name,
        title=title,
        takes=takes,
        resumes=True,
        full=config,
        tiny=_tiny(config),
        run=run,
        table=mixture_table,
        figures=draw_mixture,
    )


STUDY_2D = _study(
    "gm-2d", "Gaussian mixture in 2 dimensions", _2D, "4 seconds on an H200, 20 minutes on two cores"
)
STUDY_10D = _study(
    "gm-10d", "Gaussian mixture in 10 dimensions", _10D, "5 seconds on an H200, much longer on two cores"
)
STUDY_25D = _study(
    "gm-25d", "Gaussian mixture in 25 dimensions", _25D, "7 seconds on an H200, much longer on two cores"
)
