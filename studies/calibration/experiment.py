"""The level of every method and threshold, and of the default test; with controls that must fail."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import torch

from steincritic import (
    Combined,
    CrossFit,
    GofResult,
    GofTest,
    Ksd,
    KsdAgg,
    Rate,
    ScoredPoints,
    Split,
    Training,
    Trials,
    calibrate,
    fit_bank,
)
from steincritic.data import Frame, problem, sample_points
from steincritic.data.points import fold_sets
from steincritic.gof.null import pooled_bootstrap, rank_pvalues
from steincritic.gof.power import trial_seeds
from steincritic.gof.split import split_sizes
from steincritic.models import GaussianMixture
from steincritic.rng import Source, derive
from steincritic.training import FittedBank
from steincritic.training.pacing import DEFAULT_STAGING
from studies import show
from studies.baselines import Fssd
from studies.cells import Cell, Plan, Row, counted, rates, tiny_default
from studies.laws import LogGamma, Student, normal
from studies.record import Record
from studies.show import LEVEL
from studies.study import Study

MODELS: dict[str, Any] = {
    "gm-2d": problem("gm-2d").model,
    "gm-10d": problem("gm-10d").model,
    "skewed-1d": GaussianMixture([[0.0], [3.0]], [1.0, 4.0], [0.85, 0.15]),
    "skewed 5-D": LogGamma(5),
    "heavy-tailed 5-D": Student(5, 5),
    "normal 30-D": normal(30),
}
LEVELS = (0.01, 0.05, 0.10)
SIZES = {"gm-2d": 75, "gm-10d": 200, "skewed-1d": 20}
CONTROLS = ("naive cross-fit", "pool of 3n, not centred")  # seeds come from these names
EXACT = {  # methods, and whether their level is meant to be exact
    "combined": True,
    "crossfit": True,
    "split, fresh": True,
    "split, permutation": True,
    "split, pooled": False,
    "split, bootstrap-t": False,
    "KSD, wild": False,
    "KSD, fresh": True,
    "aggregated KSD, wild": False,
    "aggregated KSD, fresh": True,
    "FSSD, spectrum": False,
    "FSSD, fresh": True,
}
_DRAWS = 199
_POOLS = 10  # of null runs, each with its share of the tests of a row and as many null runs


@dataclass(frozen=True, kw_only=True)
class Calibration(Plan):
    """Null runs of every method on three problems, critics trained anew in each."""

    problems: tuple[str, ...] = tuple(SIZES)
    methods: tuple[str, ...] = (*EXACT, *CONTROLS)
    runs: int = 2000
    crossfit_runs: int = 10_000

    def cells(self) -> Iterator[Cell]:
        for name in self.problems:
            for method in self.methods:
                runs = self.crossfit_runs if method == "crossfit" else self.runs
                yield Cell(problem=name, method=method, n=SIZES[name], runs=runs, gpu=True)


@counted
def count(cell: Cell) -> Row:
    model = MODELS[cell.problem].to(torch.device(cell.device), torch.float32)
    trials = _trials(cell, model, derive(cell.seed, cell.problem, cell.method))
    rates = [(level, trials.rate(level)) for level in LEVELS]
    return {
        "problem": cell.problem,
        "n": cell.n,
        "method": cell.method,
        "exact": EXACT.get(cell.method, False),
        "control": cell.method in CONTROLS,
        "runs": len(trials.pvalues),
        "null_pool": trials.null_pool,
        "rates": [
            {"level": level, "rejections": rate.rejections, "rate": rate.value, "interval": rate.interval()}
            for level, rate in rates
        ],
        "uniformity": trials.uniformity(),
    }


def _trials(cell: Cell, model: GaussianMixture, seed: int) -> Trials:
    """Tests that take null runs from a pool share them in parts only, so that no one pool decides."""
    if cell.method in CONTROLS:
        control = _naive_crossfit if cell.method == CONTROLS[0] else _uncentered_pool
        pvalues = torch.tensor(control(model, cell, seed), dtype=torch.float64)
        draws = _DRAWS if cell.method == CONTROLS[1] else 10**9  # the normal law has no steps
        return Trials(test=cell.method, n=cell.n, pvalues=pvalues, draws=draws)
    test = _test(cell.method, tiny=cell.tiny)
    if not isinstance(test, CrossFit | Combined):
        return calibrate(model, cell.n, test, runs=cell.runs, seed=seed)
    each = max(1, cell.runs // _POOLS)
    parts = []
    for k in range(-(-cell.runs // each)):
        pool = derive(seed, "pool", k)
        part = replace(test, null_seed=pool, null_pool=max(each, test.draws or 0))
        parts.append(calibrate(model, cell.n, part, runs=each, seed=pool))
    return replace(
        parts[0],
        pvalues=torch.cat([part.pvalues for part in parts]),
        null_pool=sum(part.null_pool for part in parts),
    )


def _test(name: str, *, tiny: bool) -> GofTest:
    """A test by its name in the table: the test, and its threshold."""
    training, draws, steps = (Training(epochs=6), 19, 5) if tiny else (Training(), _DRAWS, 50)
    look = 1 if tiny else CrossFit.look
    family, _, threshold = name.partition(", ")
    tests: dict[str, Any] = {
        "combined": tiny_default(0, critics=False) if tiny else Combined(cache=False, stop_early=False),
        "crossfit": CrossFit(draws=draws, training=training, look=look, cache=False),
        "split": Split(draws=draws, training=training),
        "KSD": Ksd(draws=draws),
        "aggregated KSD": KsdAgg(draws=draws),
        "FSSD": Fssd(draws=draws, steps=steps),
    }
    test: GofTest = replace(tests[family], threshold=threshold) if threshold else tests[family]
    return test


def _standardized(model: GaussianMixture, cell: Cell, seed: int) -> tuple[Frame, list[ScoredPoints]]:
    """Null datasets, (t, n, d), some hundreds at a time, in the units of the model's draws."""
    frame = Frame.of(model.sample(2000, seed=derive(seed, "frame")))
    x = model.sample(cell.runs * cell.n, seed=derive(seed, "datasets")).view(cell.runs, cell.n, -1)
    return frame, [frame.enter(ScoredPoints(part, model.score(part))) for part in x.split(500)]


def _fit(points: ScoredPoints, cell: Cell, seed: int) -> FittedBank:
    training = Training(epochs=6) if cell.tiny else Training()
    seeds = [derive(seed, k) for k in range(len(points.x))]
    return fit_bank(points, staging=DEFAULT_STAGING, seeds=seeds, training=training)


def _naive_crossfit(model: GaussianMixture, cell: Cell, seed: int) -> list[float]:
    """Cross-fitted witness values as if they were independent: pooled z against the normal law."""
    folds, pvalues = 2, []
    for k, points in enumerate(_standardized(model, cell, seed)[1]):
        train, test = fold_sets(points, folds)
        values = _fit(train, cell, derive(seed, "fit", k)).witness(test)
        spread = values.view(len(points.x), folds, -1).std(-1).mean(-1, keepdim=True)
        values = values.view(len(points.x), -1) / spread
        z = values.mean(-1) / (values.std(-1) / values.shape[1] ** 0.5)
        pvalues += [1 - NormalDist().cdf(value) for value in z.tolist()]
    return pvalues


def _uncentered_pool(model: GaussianMixture, cell: Cell, seed: int) -> list[float]:
    """The released code's threshold: a pool of three times n, its own error ignored."""
    trained, tested = split_sizes(cell.n, Split())
    frame, datasets = _standardized(model, cell, seed)
    pvalues = []
    for k, points in enumerate(datasets):
        fitted = _fit(points[:trained], cell, derive(seed, "fit", k))
        values = fitted.witness(points[trained:]).mean(-1)
        for t, observed in enumerate(values):
            drawn = sample_points(model, 3 * tested, seed=derive(seed, "pool", k, t), like=points.x)
            pool = fitted[t : t + 1].witness(frame.enter(drawn))[0]
            source = Source(seed, "bootstrap", k, t, device=pool.device)
            null = pooled_bootstrap(pool, tested, draws=_DRAWS, source=source, centered=False)
            pvalues.append(float(rank_pvalues(observed[None], null)))
    return pvalues


def calibration_table(record: Record) -> str:
    body = []
    for row in record.results["rows"]:
        problem = f"{row['problem']}, n = {row['n']}"
        kind = "control" if row["control"] else "exact" if row["exact"] else "approximate"
        cells = []
        for rate in row["rates"]:
            bound = show.rate_bound(rate["level"], row["runs"], row.get("null_pool") or 0)
            value = show.bold(f"{rate['rate']:.4f}", rate["rate"] > bound)
            cells.append(f"{value} ({bound:.4f})")
        body.append([problem, row["method"], kind, f"{row['runs']:,}", *cells, f"{row['uniformity']:.3g}"])
    rates = [f"rate at {level:g} (bound)" for level in record.results["levels"]]
    return show.document(
        record,
        show.markdown(["problem", "method", "level is", "runs", *rates, "uniformity p"], body),
        "Rejections among null datasets, critics trained anew in each; in brackets the one-sided 99.9 % "
        "bound on the rate of an exact test. The tests of a combined or cross-fit row choose their null runs "
        "from ten pools of as many, so the pools' own error is in its bound. Rates above the bound are bold. "
        f"Uniformity is a Kolmogorov-Smirnov test of the p-values. {show.devices(record)}",
    )


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
    run=rates(count, more=lambda config: {"levels": LEVELS}),
    table=calibration_table,
)


_SHARED = 400  # null sets of each part of the tests
_FAILING: dict[str, Callable[[GofResult], bool]] = {
    "any lens below the level": lambda r: min(reading.pvalue for reading in r.readings) <= LEVEL,
    "the level twice": lambda r: r.pvalue - r.spent <= LEVEL or r.settings["quick_pvalue"] <= LEVEL,
}


@dataclass(frozen=True, kw_only=True)
class Level(Plan):
    """The default test of draws of more models: sizes, each with its tests and their parts.

    Each part has null sets of its own, which its tests choose theirs from as they would from the cache; early
    stopping is on, as by default.
    """

    problems: tuple[str, ...] = tuple(MODELS)
    sizes: tuple[tuple[int, int, int], ...] = ((40, 400, 1), (200, 1000, 2), (1000, 400, 1))

    def cells(self) -> Iterator[Cell]:
        for name in self.problems:
            for n, runs, parts in self.sizes:
                for part in range(parts):
                    yield Cell(problem=name, n=n, runs=runs // parts, part=part, gpu=True)


@counted
def count_level(cell: Cell) -> Row:
    model = MODELS[cell.problem].to(torch.device(cell.device))
    seed = derive(cell.seed, cell.problem, cell.n, cell.part)
    x = model.sample(cell.runs * cell.n, seed=derive(seed, "data")).to(torch.float32)
    points = ScoredPoints(x, model.score(x).to(x)).cut(cell.n)
    test = tiny_default(seed) if cell.tiny else Combined(null_seed=seed, null_pool=_SHARED, cache=False)
    results = test.run(model, points, level=LEVEL, seeds=trial_seeds(seed, cell.runs))
    controls = {name: sum(map(fails, results)) for name, fails in _FAILING.items()}
    return {
        "problem": cell.problem,
        "n": cell.n,
        "trained": sum(result.spent > 0 for result in results),
        "tests": len(results),
        "null_sets": _SHARED,
        "rejections": {"combined": sum(result.rejected for result in results)} | controls,
    }


def level_table(record: Record) -> str:
    rows, body = record.results["rows"], []
    for row in rows:
        combined, *controls = row["rejections"].values()
        rate, *cells = show.in_band(Rate(combined, row["tests"]), row["null_sets"])
        failing = [f"{count / row['tests']:.4f}" for count in controls]
        body.append([row["problem"], str(row["n"]), str(row["tests"]), rate, *failing, *cells])
    return show.document(
        record,
        show.markdown(["model", "n", "tests", *rows[0]["rejections"], "99.9 % band", "inside"], body),
        "Share of tests of the model's own draws that reject at level 0.05, early stopping on, null sets "
        "chosen from shared ones as from the cache. The first control takes the smallest p-value of any "
        "lens and must lie above the band; the second gives the whole level to both steps. "
        f"{show.devices(record)}",
    )


LEVEL_STUDY = Study(
    name="level",
    title="The level of the default test on six null problems",
    takes="2 minutes on an H200",
    full=Level(),
    tiny=Level(problems=("gm-2d", "skewed 5-D"), sizes=((20, 10, 2),), tiny=True),
    run=rates(count_level, by=("problem", "n")),
    table=level_table,
)
