"""The paper's Gaussian mixtures: all replicas of a scheme in one bank, and adaptive staging."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steincritic import MLP, Adaptive, ScoredPoints, Staged, Training, fit_bank, fixed
from steincritic.data import Problem, problem
from steincritic.rng import derive
from steincritic.training import FittedBank, Gap, Yardsticks
from studies.cells import Row, measured, spread
from studies.paper.figures import adaptive_table, draw_adaptive, draw_mixture, mixture_table
from studies.paper.power import CEILINGS, SplitPower, ceiling, split_powers
from studies.paper.published import GM_2D, GM_10D, GM_25D, Published
from studies.paper.selection import AFTER, Epochs, replica_seeds
from studies.record import hardware
from studies.study import Context, Outcome, Study

_TRAINING = Training(epochs=60, batch_size=200, learning_rate=1e-3)
_DRAWN = "staged 0.90"  # the scheme whose field is drawn


@dataclass(frozen=True, kw_only=True)
class Schemes:
    """Replicas of every scheme on one mixture; replica r of each has the same data and first weights."""

    problem: str
    schemes: Mapping[str, Staged | Adaptive]  # by the table's row names
    training: Training = _TRAINING
    replicas: int = 10
    trained: int = 2000
    measured: int = 20_000  # points of MSE_q, and of all that is drawn afresh
    followed: int | None = None  # of the points of MSE_q, those it is followed on through training; all
    width: int = 512


@dataclass(frozen=True, kw_only=True)
class MixtureTable(Schemes):
    """[repasky2023] section 6.1.2."""

    followed: int | None = 4000
    published: Mapping[str, Published]
    tested: int  # points of one test
    validated: int = 1000
    runs: int = 500
    draws: int = 500
    pool: int = 50
    field_epochs: tuple[int, ...] = ()  # at which the field of a critic is drawn


@dataclass(frozen=True, kw_only=True)
class AdaptiveStaging(Schemes):
    """[repasky2023] appendix B.5; validation points are drawn afresh at every look."""

    problem: str = "gm-25d"
    trained: int = 4000


@dataclass(frozen=True, kw_only=True)
class Job:
    """All replicas of one scheme."""

    config: Schemes
    scheme: str
    seed: int
    device: str

    @property
    def pair(self) -> Problem:
        return problem(self.config.problem).to(self.device, torch.float32)

    @property
    def replicas(self) -> list[int]:
        return replica_seeds(self.seed, self.config.replicas)

    def sets(self, n: int, name: str) -> ScoredPoints:
        """Data of every replica."""
        x = torch.stack([self.pair.data.sample(n, seed=derive(s, name)) for s in self.replicas])
        return ScoredPoints(x, self.pair.model.score(x))

    def fit(self, *, training: Training | None = None, **more: Any) -> FittedBank:
        config, pair = self.config, self.pair
        x = pair.model.sample(config.measured, seed=derive(self.seed, "mse"))
        x = x[: config.followed]
        yardsticks = more.pop("yardsticks", {})
        fitted = fit_bank(
            self.sets(config.trained, "train"),
            staging=config.schemes[self.scheme],
            seeds=[derive(s, "critic") for s in self.replicas],
            network=MLP(hidden=(config.width, config.width)),
            training=training or config.training,
            yardsticks=Yardsticks(gap_q=Gap(x, pair.gap(x)), **yardsticks),
            **more,
        )
        fitted.require_success()
        return fitted

    def row(self, fitted: FittedBank, curves: tuple[str, ...]) -> Row:
        """What a record says of the scheme in any case."""
        history = {key: fitted.history[key] for key in curves}
        means = {key: {"mean": v.mean(1).tolist(), "sd": v.std(1).tolist()} for key, v in history.items()}
        staging = asdict(self.config.schemes[self.scheme])
        return {"scheme": self.scheme, "staging": staging, "curves": means}


def _rows(job: Callable[[Job], Row], config: Schemes, context: Context) -> Outcome:
    common: dict[str, Any] = {"config": config, "seed": context.seed, "device": str(context.device)}
    rows = context.sweep(job, [Job(scheme=name, **common) for name in config.schemes])
    seconds = {part: sum(row["seconds"][part] for row in rows) for part in rows[0]["seconds"]}
    return Outcome({"rows": rows}, seconds, tuple(sorted({row["device"] for row in rows})))


# By name in the record: the rule of `Epochs.chosen`, the monitor, and the divergences of the test.
_WAYS = {
    "exact monitor": ("lowest monitor", "exact", ("exact", "probed")),
    "probed monitor": ("lowest monitor", "probed", ("probed",)),
    "common epoch": ("common epoch", "probed", ("probed",)),
}


def _table_row(job: Job) -> Row:
    """Error and power of the critics at the epochs that each rule chooses."""
    config, dim = job.config, job.pair.dim
    assert isinstance(config, MixtureTable)
    steps = -(-config.trained // config.training.batch_size)
    seeds = [derive(s, "critic") for s in job.replicas]
    epochs = Epochs(job.sets(config.validated, "validation"), seeds, steps)
    fitted = job.fit(observers=[epochs])
    start, exact_only = time.perf_counter(), dim <= 2  # as the paper is there
    names = [name for name in _WAYS if not (exact_only and name == "probed monitor")]
    chosen = {n: epochs.chosen(_WAYS[n][0], "exact" if exact_only else _WAYS[n][1]) for n in names}
    cases = [(n, way) for n in names for way in (("exact",) if exact_only else _WAYS[n][2])]
    test = SplitPower(n=config.tested, runs=config.runs, draws=config.draws, pool=config.pool)
    ways = [(epochs.at(chosen[n], fitted), way == "probed") for n, way in cases]
    powers = split_powers(ways, job.pair.data, job.pair.model, test, seed=derive(job.seed, "power"))
    rules: dict[str, Row] = {}
    x = job.pair.model.sample(config.measured, seed=derive(job.seed, "mse"))
    gap = Gap(x, job.pair.gap(x))
    for n in names:
        critics = epochs.at(chosen[n], fitted)
        mse_q = gap.error(critics.bank, critics.lam)
        rules[n] = {"epoch": spread(chosen[n]), "mse_q": spread(mse_q), "power": {}}
    for (n, way), rates in zip(cases, powers, strict=True):
        rules[n]["power"][way] = spread(rate.value for rate in rates)
    row = job.row(fitted, ("mse_q",)) | {"published": asdict(config.published[job.scheme]), "rules": rules}
    row["stopping_before_20"] = int((epochs.lowest("probed") <= AFTER).sum())
    seconds = {**fitted.seconds, "power": time.perf_counter() - start}
    return row | {"seconds": seconds, "device": hardware(job.device)}


def run(config: MixtureTable, context: Context) -> Outcome:
    outcome = _rows(_table_row, config, context)
    job = Job(config=config, scheme=next(iter(config.schemes)), seed=context.seed, device=str(context.device))
    test = SplitPower(n=config.tested, runs=config.runs, draws=config.draws, pool=config.pool)
    ceilings = {name: measured(ceiling(name, job.pair, test, seed=context.seed)) for name in CEILINGS}
    results = {**outcome.results, "ceilings": ceilings}
    if config.field_epochs:
        results["fields"] = _fields(replace(job, scheme=_DRAWN), config)
    return replace(outcome, results=results)


def _fields(job: Job, config: MixtureTable) -> dict[str, Any]:
    """The first replica's scaleless critic on a grid; the same training, stopped after some epochs."""
    axis = torch.linspace(-2.5, 3.0, 18, device=job.device)
    grid = torch.cartesian_prod(axis, axis)
    alone = replace(job, config=replace(config, replicas=1))
    critics = []
    for epochs in config.field_epochs:
        fitted = alone.fit(training=replace(config.training, epochs=epochs))
        critics.append({"epochs": epochs, "field": fitted.field(grid)[0]})
    return {"grid": grid, "optimal": job.pair.gap(grid), "critics": critics}


def _adaptive_row(job: Job) -> Row:
    def draws(step: int) -> Tensor:
        return job.pair.data.sample(job.config.measured, seed=derive(job.seed, "validation", step))

    def validation(step: int) -> ScoredPoints:
        x = draws(step)
        return ScoredPoints(x, job.pair.model.score(x))

    def gap_p(step: int) -> Gap:
        x = draws(step)
        return Gap(x, job.pair.gap(x))

    fitted = job.fit(yardsticks={"validation": validation, "gap_p": gap_p})
    lowest = {key: spread(fitted.history[key].min(0).values) for key in ("mse_p", "mse_q")}
    row = job.row(fitted, ("mse_p", "mse_q", "lam"))
    return row | {"lowest": lowest, "seconds": dict(fitted.seconds), "device": hardware(job.device)}


def run_adaptive(config: AdaptiveStaging, context: Context) -> Outcome:
    return _rows(_adaptive_row, config, context)


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
        followed=200,
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
        full=config,
        tiny=tiny,
        run=run,
        table=mixture_table,
        figures=draw_mixture,
    )


STUDY_2D = _study(2, _2D, "10 minutes")
STUDY_10D = _study(10, _10D, "half an hour")
STUDY_25D = _study(25, _25D, "half an hour")
ADAPTIVE = Study(
    name="adaptive",
    title="Adaptive staging in 25 dimensions",
    takes="13 seconds on an H200, much longer on two cores",
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
