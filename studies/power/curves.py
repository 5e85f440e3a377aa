"""Power against sample size, bandwidth, split, staging and perturbation, in 50 dimensions and on the RBM."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from steincritic import RBF, Combined, CrossFit, GofTest, Ksd, Model, Split, Staged, fixed
from steincritic.data import problem
from steincritic.gof.power import trials_of
from steincritic.models import random_rbm
from steincritic.rng import Source, derive
from steincritic.training.pacing import DEFAULT_STAGING
from studies.cells import MEDIAN, SELECTED, Cell, Plan, Row, counted, measured, rates, tests
from studies.laws import perturbed_draws
from studies.paper.power import CEILINGS, SplitPower, ceiling
from studies.power.figures import MIDDLE, draw_power, power_table, staging_table
from studies.power.suggest import SuggestedSplit
from studies.power.timings import timings
from studies.study import Context, Outcome, Study

_LARGE = 1500  # from this n on, trials are a quarter
_FEW = {"FSSD": 100}  # trials of what is slow and saturates
_MANY, _POOL = 400, 800  # from so many trials on, they share so many null runs, whose error counts too
FACTORS = tuple(2.0**k for k in range(-6, 3))  # of the squared median distance
SHARES = tuple(k / 10 for k in range(1, 10))  # of the points, to train on
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
        if cell.method in CEILINGS:
            config = SplitPower(n=cell.n, runs=cell.runs, draws=499)
            return row | measured(ceiling(cell.method, pair, config, seed=cell.seed))
        seeds = [derive(cell.seed, "data", cell.n, t) for t in range(cell.runs)]
        model, x = pair.model, torch.stack([pair.data.sample(cell.n, seed=seed) for seed in seeds])
    test = tests_by_name(tiny=cell.tiny)[cell.method]
    if isinstance(test, CrossFit | Combined):
        pool = 19 if cell.tiny else _POOL if cell.runs >= _MANY else 199
        test = replace(test, null_pool=max(pool, test.draws or 0))
    trials = trials_of(model, x, test, seed=derive(cell.seed, "trials", cell.n), device=device)
    return row | measured(trials.rate())


def tests_by_name(*, tiny: bool) -> dict[str, GofTest]:
    """The tests of all studies, kernels of other bandwidths, and splits that are trained otherwise."""
    named = tests(tiny=tiny)
    split = named["split"]
    assert isinstance(split, Split)
    kernels = {f"KSD at {factor:g}": Ksd(kernel=RBF(factor=factor), draws=split.draws) for factor in FACTORS}
    shares = {f"split at {share:g}": replace(split, train=share) for share in SHARES}
    stagings: dict[str, GofTest] = {
        f"split with {name}": replace(split, staging=staging) if staging else SuggestedSplit(split)
        for name, staging in STAGINGS.items()
    }
    return named | kernels | shares | stagings


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
                    trials = min(self.trials, _FEW.get(method, self.trials))
                    runs = trials if n < _LARGE else trials // 4
                    yield Cell(problem=self.problem, method=method, n=n, size=sigma, runs=runs, gpu=True)


@dataclass(frozen=True, kw_only=True)
class PowerCurves(Plan):
    """Curves, beside those of the literature.

    Args:
        published: power by place on the axis, by method.
        timed: sample sizes at which one test of each method is timed, on the first curve's problem.
    """

    curves: tuple[Curve, ...]
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    timed: tuple[int, ...] = ()

    def cells(self) -> Iterator[Cell]:
        for curve in self.curves:
            yield from curve.cells()


def run(config: PowerCurves, context: Context) -> Outcome:
    outcome = rates(count_power)(config, context)
    timed = timings(config.curves[0].problem, config.timed, context)
    return replace(outcome, results={**outcome.results, "published": config.published, "timings": timed})


def _study(
    name: str,
    title: str,
    takes: str,
    *curves: Curve,
    published: Mapping[str, Mapping[str, float]] | None = None,
    timed: tuple[int, ...] = (),
) -> Study:
    short = [
        replace(curve, sizes=(30,), sigmas=curve.sigmas[:2], methods=curve.methods[:3], trials=6)
        for curve in curves
    ]
    full = PowerCurves(curves=curves, published=published or {}, timed=timed)
    return Study(
        name=name,
        title=title,
        takes=f"{takes} on an H200",
        full=full,
        tiny=replace(full, curves=tuple(short), timed=(), tiny=True),
        run=run,
        table=power_table,
        figures=draw_power,
    )


_NEURAL = ("combined", "crossfit", "split")
_KERNEL = (MEDIAN, SELECTED, "aggregated KSD")
FIFTY_DIMENSIONS = _study(
    "ksd-50d",
    "Power and time in 50 dimensions",
    "6 minutes",
    Curve(
        problem="gm-50d",
        methods=(*_NEURAL, *_KERNEL, "FSSD", *CEILINGS),
        sizes=(100, 200, 300, 500, 1000, 1500, 2500),
    ),
    timed=(100, 500, 1000, 2500),
)
FIFTY_DIMENSIONS_EASY = _study(
    "ksd-50d-easy",
    "Power in 50 dimensions, large difference",
    "a minute",
    Curve(
        problem="gm-50d-easy",
        methods=(*_NEURAL, *_KERNEL, *CEILINGS),
        sizes=(100, 200, 300, 500, 1000),
        trials=200,
    ),
)
BANDWIDTH = _study(
    "ksd-bandwidth",
    "Power of the kernel test by bandwidth, 50 dimensions, n = 1500",
    "20 seconds",
    Curve(
        problem="gm-50d",
        methods=("split", "crossfit", *(f"KSD at {factor:g}" for factor in FACTORS)),
        sizes=(1500,),
    ),
)
SPLITS = _study(
    "splits",
    "Power by share of training points, 50 dimensions, n = 500",
    "40 seconds",
    Curve(
        problem="gm-50d-easy",
        methods=(*(f"split at {share:g}" for share in SHARES), SELECTED, "crossfit"),
        sizes=(500,),
    ),
)
_RBM = Curve(
    problem="rbm",
    methods=("combined", "crossfit", "aggregated KSD", "KSD, IMQ median", MEDIAN),
    sizes=(1000,),
    sigmas=(0.0, 0.01, MIDDLE, 0.03, 0.04),
)
RBM = _study(
    "rbm-benchmark",
    "Perturbed restricted Boltzmann machine, 50 visible and 40 hidden units",
    "5 minutes",
    _RBM,
    replace(_RBM, sizes=(200, 400, 600, 800), sigmas=(MIDDLE,), trials=100),
    published={
        "aggregated KSD [schrab2022]": {"0": 0.07, "0.01": 0.345, "0.02": 0.995, "0.03": 1.0, "0.04": 1.0},
        "KSD, IMQ median [schrab2022]": {"0": 0.055, "0.01": 0.21, "0.02": 0.795, "0.03": 1.0, "0.04": 1.0},
        "LSD [schrab2022inc]": {"0": 0.03, "0.01": 0.10, "0.02": 0.61, "0.03": 0.96, "0.04": 1.0},
        "FSSD [schrab2022inc]": {"0": 0.02, "0.01": 0.09, "0.02": 0.48, "0.03": 0.71, "0.04": 0.99},
    },
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
