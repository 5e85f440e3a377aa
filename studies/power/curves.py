"""Power against perturbation of the RBM, and by staging."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from steincritic import Combined, CrossFit, GofTest, Model, Split, Staged, fixed
from steincritic.data import problem
from steincritic.gof.power import trials_of
from steincritic.models import random_rbm
from steincritic.rng import Source, derive
from steincritic.training.pacing import DEFAULT_STAGING
from studies.cells import MEDIAN, Cell, Plan, Row, counted, measured, rates, tests
from studies.laws import perturbed_draws
from studies.power.figures import MIDDLE, draw_power, power_table, staging_table
from studies.power.suggest import SuggestedSplit
from studies.study import Study

_LARGE = 1500  # from this n on, trials are a quarter
_MANY, _POOL = 400, 800  # from so many trials on, they share so many null runs, whose error counts too
STAGINGS: dict[str, Staged | None] = {
    "auto": None,  # suggested from the data, by the rule of the study
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


@counted
def count_power(cell: Cell) -> Row:
    """Tests of a mixture, or of the RBM with its weights perturbed by `size`; data from itself at 0."""
    row = {"problem": cell.problem, "method": cell.method, "n": cell.n, "sigma": cell.size}
    device = torch.device(cell.device)
    model: Model
    if cell.problem == "rbm":
        model = random_rbm(50, 40, seed=derive(cell.seed, "machine"), sweeps=20 if cell.tiny else 2000)
        model = model.to(device, torch.float32)
        source = Source(cell.seed, "perturbation", f"{cell.size:g}", cell.n, device=device)
        # every trial has its own perturbation of all weights, [liu2016]; the model is the same throughout
        sets = [min(100, cell.runs - done) for done in range(0, cell.runs, 100)]
        x = torch.cat([perturbed_draws(model, cell.size, count, cell.n, source) for count in sets])
    else:
        pair = problem(cell.problem).to(device, torch.float32)
        seeds = [derive(cell.seed, "data", cell.n, t) for t in range(cell.runs)]
        model, x = pair.model, torch.stack([pair.data.sample(cell.n, seed=seed) for seed in seeds])
    test = tests_by_name(tiny=cell.tiny)[cell.method]
    if isinstance(test, CrossFit | Combined):
        pool = 19 if cell.tiny else _POOL if cell.runs >= _MANY else 199
        test = replace(test, null_pool=max(pool, test.draws or 0))
    trials = trials_of(model, x, test, seed=derive(cell.seed, "trials", cell.n), device=device)
    return row | measured(trials.rate())


def tests_by_name(*, tiny: bool) -> dict[str, GofTest]:
    """The tests of all studies, and splits that are trained otherwise."""
    named = tests(tiny=tiny)
    split = named["split"]
    assert isinstance(split, Split)
    stagings: dict[str, GofTest] = {
        f"split with {name}": replace(split, staging=staging) if staging else SuggestedSplit(split)
        for name, staging in STAGINGS.items()
    }
    return named | stagings


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Methods at each sample size and, on the RBM, each perturbation of the weights."""

    problem: str
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    sigmas: tuple[float, ...] = (0.0,)
    trials: int = 400

    def cells(self) -> Iterator[Cell]:
        for n in self.sizes:
            for sigma in self.sigmas:
                for method in self.methods:
                    runs = self.trials if n < _LARGE else self.trials // 4
                    yield Cell(problem=self.problem, method=method, n=n, size=sigma, runs=runs, gpu=True)


@dataclass(frozen=True, kw_only=True)
class PowerCurves(Plan):
    """Curves, beside those of the literature.

    Args:
        published: power by place on the axis, by method.
    """

    curves: tuple[Curve, ...]
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def cells(self) -> Iterator[Cell]:
        for curve in self.curves:
            yield from curve.cells()


_RBM = Curve(
    problem="rbm",
    methods=("combined", "crossfit", "aggregated KSD", "KSD, IMQ median", MEDIAN),
    sizes=(1000,),
    sigmas=(0.0, 0.01, MIDDLE, 0.03, 0.04),
)
_BENCHMARK = PowerCurves(
    curves=(_RBM, replace(_RBM, sizes=(200, 400, 600, 800), sigmas=(MIDDLE,), trials=100)),
    published={
        "aggregated KSD [schrab2022]": {"0": 0.07, "0.01": 0.345, "0.02": 0.995, "0.03": 1.0, "0.04": 1.0},
        "KSD, IMQ median [schrab2022]": {"0": 0.055, "0.01": 0.21, "0.02": 0.795, "0.03": 1.0, "0.04": 1.0},
        "LSD [schrab2022inc]": {"0": 0.03, "0.01": 0.10, "0.02": 0.61, "0.03": 0.96, "0.04": 1.0},
        "FSSD [schrab2022inc]": {"0": 0.02, "0.01": 0.09, "0.02": 0.48, "0.03": 0.71, "0.04": 0.99},
    },
)
_SHORT = [
    replace(curve, sizes=(30,), sigmas=curve.sigmas[:2], methods=curve.methods[:3], trials=6)
    for curve in _BENCHMARK.curves
]
RBM = Study(
    name="rbm-benchmark",
    title="Perturbed restricted Boltzmann machine, 50 visible and 40 hidden units",
    takes="5 minutes on an H200",
    full=_BENCHMARK,
    tiny=replace(_BENCHMARK, curves=tuple(_SHORT), tiny=True),
    run=rates(count_power, more=lambda config: {"published": config.published}),
    table=power_table,
    figures=draw_power,
)
# Does the suggested staging earn its place? Every staging has the same datasets, where power is not 0 or 1.
_METHODS = tuple(f"split with {name}" for name in STAGINGS)
STAGING = Study(
    name="auto-staging",
    title="Power of the split test by staging: suggested, by hand, fixed",
    takes="13 minutes on an H200 when stagings of 50 datasets were suggested together; longer one by one",
    full=PowerCurves(
        curves=(
            Curve(problem="gm-10d", methods=_METHODS, sizes=(500, 800)),
            Curve(problem="gm-25d", methods=_METHODS, sizes=(1000,)),
            Curve(problem="gm-50d", methods=_METHODS, sizes=(600, 800)),
            # fewer trials, as the machine's draws take most of the time
            Curve(problem="rbm", methods=_METHODS, sizes=(1000,), sigmas=(MIDDLE,), trials=200),
        )
    ),
    tiny=PowerCurves(
        curves=(
            Curve(
                problem="gm-10d", methods=("split with auto", "split with fixed 0.1"), sizes=(30,), trials=6
            ),
        ),
        tiny=True,
    ),
    run=rates(count_power),
    table=staging_table,
)
