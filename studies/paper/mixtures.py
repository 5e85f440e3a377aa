"""The paper's Gaussian mixtures: every scheme and replica of a table in one bank, and adaptive staging."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steincritic import MLP, Adaptive, ScoredPoints, Staged, Training, fit_bank, fixed
from steincritic.data import Problem, problem
from steincritic.rng import derive
from steincritic.training import FittedBank, Gap, Staging, Yardsticks, always
from steincritic.training.checkpoint import Checkpoint
from studies.cells import measured
from studies.paper.figures import adaptive_table, draw_adaptive, draw_mixture, mixture_table
from studies.paper.power import CEILINGS, SplitPower, ceiling, split_power
from studies.paper.published import GM_2D, GM_10D, GM_25D, Published
from studies.study import Context, Outcome, Study

_TRAINING = Training(epochs=60, batch_size=200, learning_rate=1e-3)
_MONITORED = replace(_TRAINING, selection="monitor")
_DRAWN = "staged 0.90"  # the scheme whose field is drawn


@dataclass(frozen=True, kw_only=True)
class Schemes:
    """Replicas of every scheme on one mixture; replica r of each has the same data and first weights."""

    problem: str
    schemes: Mapping[str, Staged | Adaptive]  # by the table's row names
    training: Training
    replicas: int = 10
    trained: int = 2000
    measured: int = 20_000  # points of MSE_q, and of all that is drawn afresh
    width: int = 512

    def pair(self, context: Context) -> Problem:
        return problem(self.problem).to(context.device, torch.float32)

    def seeds(self, context: Context) -> list[int]:
        return [derive(context.seed, "replica", r) for r in range(self.replicas)]

    def sets(self, pair: Problem, n: int, name: str, context: Context) -> ScoredPoints:
        """Data of every replica, for all schemes."""
        x = torch.stack([pair.data.sample(n, seed=derive(s, name)) for s in self.seeds(context)])
        return ScoredPoints(x, pair.model.score(x)).repeat(len(self.schemes))

    def fit(self, pair: Problem, context: Context, **yardsticks: Any) -> FittedBank:
        x = pair.model.sample(self.measured, seed=derive(context.seed, "mse"))
        stagings: list[Staging] = [s for s in self.schemes.values() for _ in range(self.replicas)]
        return fit_bank(
            self.sets(pair, self.trained, "train", context),
            staging=stagings,
            seeds=[derive(s, "critic") for s in self.seeds(context)] * len(self.schemes),
            network=MLP(hidden=(self.width, self.width)),
            training=self.training,
            yardsticks=Yardsticks(gap_q=Gap(x, pair.gap(x)), **yardsticks),
            callbacks=context.callbacks,
            checkpoint=Checkpoint(context.checkpoint, 60.0) if context.checkpoint else None,
        )

    def rows(self, fitted: FittedBank, curves: tuple[str, ...]) -> list[tuple[slice, dict[str, Any]]]:
        """The members of each scheme, and what a record says of it in any case."""
        rows = []
        for k, (name, staging) in enumerate(self.schemes.items()):
            members = slice(k * self.replicas, (k + 1) * self.replicas)
            history = {key: fitted.history[key][:, members] for key in curves}
            means = {key: {"mean": v.mean(1), "sd": v.std(1)} for key, v in history.items()}
            rows.append((members, {"scheme": name, "staging": staging, "curves": means}))
        return rows


@dataclass(frozen=True, kw_only=True)
class MixtureTable(Schemes):
    """[repasky2023] section 6.1.2."""

    training: Training = _MONITORED
    published: Mapping[str, Published]
    tested: int  # points of one test
    validated: int = 1000
    runs: int = 500
    draws: int = 500
    pool: int = 50
    field_epochs: tuple[int, ...] = ()  # at which the field of a critic is drawn


def run(config: MixtureTable, context: Context) -> Outcome:
    pair = config.pair(context)
    validation = always(config.sets(pair, config.validated, "validation", context))
    fitted = config.fit(pair, context, validation=validation)
    start = time.perf_counter()
    ways = {"exact": SplitPower(n=config.tested, runs=config.runs, draws=config.draws, pool=config.pool)}
    if pair.dim > 2:  # the paper, too, is exact up to two dimensions
        ways["stochastic"] = replace(ways["exact"], probe=True)
    powers: dict[str, Tensor] = {}
    for way, power in ways.items():
        rates = split_power(fitted, pair.data, pair.model, power, seed=context.seed)
        powers[way] = torch.tensor([rate.value for rate in rates], dtype=torch.float64)
    rows = []
    for members, row in config.rows(fitted, ("mse_q",)):
        stop = fitted.history["monitor"][:, members].argmin(0)  # (replicas,)
        mse_q = fitted.history["mse_q"][:, members].gather(0, stop[None])[0]
        row |= {
            "published": config.published[row["scheme"]],
            "power_exact": _spread(powers["exact"][members]),
            "power_stochastic": _spread(powers["stochastic"][members]) if "stochastic" in powers else None,
            "mse_q": _spread(mse_q),
            "stopping_epoch": _spread(stop + 1),
        }
        rows.append(row)
    ceilings = {name: measured(ceiling(name, pair, ways["exact"], seed=context.seed)) for name in CEILINGS}
    results: dict[str, Any] = {"rows": rows, "ceilings": ceilings}
    seconds = {**fitted.seconds, "power": time.perf_counter() - start}
    if config.field_epochs:
        results["fields"] = _fields(config, pair, context)
    return Outcome(results, seconds)


def _spread(values: Tensor) -> dict[str, Any]:
    """Mean over replicas with standard deviation and standard error, and the values themselves."""
    values = values.double().cpu()
    sd = float(values.std())
    return {"mean": float(values.mean()), "sd": sd, "se": sd / len(values) ** 0.5, "values": values}


def _fields(config: MixtureTable, pair: Problem, context: Context) -> dict[str, Any]:
    """The first replica's scaleless critic on a grid; the same training, stopped after some epochs."""
    axis = torch.linspace(-2.5, 3.0, 18, device=context.device)
    grid = torch.cartesian_prod(axis, axis)
    alone = replace(config, schemes={_DRAWN: config.schemes[_DRAWN]}, replicas=1)
    context = replace(context, callbacks=(), checkpoint=None)
    critics = []
    for epochs in config.field_epochs:
        training = replace(config.training, epochs=epochs, selection="last")
        fitted = replace(alone, training=training).fit(pair, context)
        critics.append({"epochs": epochs, "field": fitted.field(grid)[0]})
    return {"grid": grid, "optimal": pair.gap(grid), "critics": critics}


@dataclass(frozen=True, kw_only=True)
class AdaptiveStaging(Schemes):
    """[repasky2023] appendix B.5; validation points are drawn afresh at every look."""

    problem: str = "gm-25d"
    trained: int = 4000


def run_adaptive(config: AdaptiveStaging, context: Context) -> Outcome:
    pair = config.pair(context)

    def draws(step: int) -> Tensor:
        return pair.data.sample(config.measured, seed=derive(context.seed, "validation", step))

    def validation(step: int) -> ScoredPoints:
        x = draws(step)
        return ScoredPoints(x, pair.model.score(x))

    def gap_p(step: int) -> Gap:
        x = draws(step)
        return Gap(x, pair.gap(x))

    fitted = config.fit(pair, context, validation=validation, gap_p=gap_p)
    rows = []
    for members, row in config.rows(fitted, ("mse_p", "mse_q", "lam")):
        lowest = {key: _spread(fitted.history[key][:, members].min(0).values) for key in ("mse_p", "mse_q")}
        rows.append(row | {"lowest": lowest})
    return Outcome({"rows": rows}, fitted.seconds)


def _staged(initial: float, floor: float, *decays: float) -> dict[str, Staged]:
    return {f"staged {d:.2f}": Staged(initial=initial, floor=floor, decay=d, every=10) for d in decays}


def _fixed(*names: str) -> dict[str, Staged]:
    return {name: fixed(float(name)) for name in names}


_2D = MixtureTable(
    problem="gm-2d",
    schemes=_fixed("1e-3", "1e-2", "1e-1", "1") | _staged(1.0, 5e-2, 0.90, 0.95),
    published=GM_2D,
    tested=75,
    field_epochs=(1, 10, 30),
)
_10D = MixtureTable(
    problem="gm-10d",
    schemes=_fixed("2.5e-4", "1e-3", "4e-3", "1.6e-2", "6.4e-2", "2.56e-1", "1.024")
    | _staged(0.5, 1e-3, 0.80, 0.85),
    published=GM_10D,
    tested=200,
)
_25D = MixtureTable(
    problem="gm-25d",
    schemes=_fixed("2.5e-4", "1e-3", "4e-3", "1.6e-2", "6.4e-2") | _staged(0.4, 5e-4, 0.80, 0.85, 0.90),
    published=GM_25D,
    tested=500,
)
_ADAPTIVE = AdaptiveStaging(
    training=_TRAINING,
    schemes=_fixed("1e-3", "4e-3", "1.6e-2")
    | _staged(0.3, 5e-4, 0.85)
    | {
        "adaptive, monitor": Adaptive(initial=0.3, floor=5e-4, decay=0.70, every=10),
        "adaptive, true MSE_p": Adaptive(initial=0.3, floor=5e-4, decay=0.70, every=10, on="mse_p"),
    },
)


def _study(dim: int, config: MixtureTable, takes: str) -> Study:
    names = ("1e-3", _DRAWN if _DRAWN in config.schemes else "staged 0.85")
    tiny = replace(
        config,
        schemes={name: config.schemes[name] for name in names},
        field_epochs=(1, 2) if config.field_epochs else (),
        tested=40,
        replicas=2,
        trained=200,
        validated=100,
        measured=500,
        training=replace(config.training, epochs=4),
        width=16,
        runs=20,
        draws=39,
        pool=5,
    )
    return Study(
        name=f"gm-{dim}d",
        title=f"Gaussian mixture in {dim} dimensions",
        takes=f"{takes} on two cores",
        resumes=True,
        full=config,
        tiny=tiny,
        run=run,
        table=mixture_table,
        figures=draw_mixture,
    )


STUDY_2D = _study(2, _2D, "4 seconds on an H200, 20 minutes")
STUDY_10D = _study(10, _10D, "5 seconds on an H200, much longer")
STUDY_25D = _study(25, _25D, "7 seconds on an H200, much longer")
ADAPTIVE = Study(
    name="adaptive",
    title="Adaptive staging in 25 dimensions",
    takes="13 seconds on an H200, much longer on two cores",
    resumes=True,
    full=_ADAPTIVE,
    tiny=replace(
        _ADAPTIVE,
        replicas=2,
        trained=100,
        measured=200,
        width=8,
        training=Training(epochs=4, batch_size=20, learning_rate=1e-3),
    ),
    run=run_adaptive,
    table=adaptive_table,
    figures=draw_adaptive,
)
