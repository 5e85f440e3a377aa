"""Power against sample size, bandwidth, split and perturbation, in 50 dimensions and on the RBM."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from steincritic_studies.power.figures import draw_power, power_table
from steincritic_studies.power.jobs import FACTORS, MEDIAN, SELECTED, SHARES, PowerJob, run_power_job
from steincritic_studies.power.timings import timings
from steincritic_studies.study import Context, Outcome, Study

NEURAL = ("combined", "crossfit", "split")
KERNEL = (MEDIAN, SELECTED, "aggregated KSD", "FSSD")
CEILINGS = ("optimal critic", "likelihood ratio")


@dataclass(frozen=True, kw_only=True)
class PowerCurves:
    """Cells of one or more curves: each method at each place of the horizontal axis.

    Args:
        axis: what varies: "n", "method" or "sigma".
        few: methods that are slow and saturate, with the trials that they get instead.
        published: curves from the literature, as {name: {place: power}}.
        timed: sample sizes at which one test of each method is timed.
    """

    problem: str
    axis: str
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    sigmas: tuple[float, ...] = (0.0,)
    trials: int = 400
    large: int = 1500  # from this n on, trials are a quarter
    few: Mapping[str, int] = field(default_factory=dict)
    null_pool: int = 800
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    timed: tuple[int, ...] = ()
    tiny: bool = False

    def jobs(self, seed: int) -> list[PowerJob]:
        return [
            PowerJob(
                problem=self.problem,
                method=method,
                n=n,
                sigma=sigma,
                trials=self._trials(method, n),
                null_pool=self.null_pool if n < self.large else 199,
                seed=seed,
                tiny=self.tiny,
            )
            for n in self.sizes
            for sigma in self.sigmas
            for method in self.methods
        ]

    def _trials(self, method: str, n: int) -> int:
        trials = min(self.trials, self.few.get(method, self.trials))
        return trials if n < self.large else max(1, trials // 4)


def run(config: PowerCurves, context: Context) -> Outcome:
    start = time.perf_counter()
    rows = context.sweep(run_power_job, config.jobs(context.seed))
    results: dict[str, Any] = {
        "rows": list(rows),
        "published": config.published,
        "timings": timings(config.problem, config.timed, context),
    }
    return Outcome(results, {"total": time.perf_counter() - start, "jobs": _seconds(rows)})


def _seconds(rows: Sequence[Mapping[str, Any]]) -> float:
    return float(sum(row["seconds"] for row in rows))


def _tiny(config: PowerCurves) -> PowerCurves:
    return replace(
        config,
        sizes=(30,),
        sigmas=config.sigmas[:2],
        methods=config.methods[:3],
        trials=6,
        few={},
        null_pool=19,
        timed=(),
        tiny=True,
    )


_50D = PowerCurves(
    problem="gm-50d",
    axis="n",
    methods=NEURAL + KERNEL + CEILINGS,
    sizes=(100, 200, 300, 500, 1000, 1500, 2500),
    few={"FSSD": 100},
    timed=(100, 500, 1000, 2500),
)
_EASY = replace(
    _50D,
    problem="gm-50d-easy",
    methods=(*NEURAL, MEDIAN, SELECTED, "aggregated KSD", *CEILINGS),
    sizes=(100, 200, 300, 500, 1000),
    trials=200,
    null_pool=199,
    timed=(),
)
_FACTORS = tuple(f"KSD at {factor:g}" for factor in FACTORS)
_BANDWIDTH = PowerCurves(
    problem="gm-50d", axis="method", methods=("split", "crossfit", *_FACTORS), sizes=(1500,), null_pool=199
)
_SPLITS = PowerCurves(
    problem="gm-50d-easy",
    axis="method",
    methods=(*(f"split at {share:g}" for share in SHARES), SELECTED, "crossfit"),
    sizes=(500,),
)
_RBM_PUBLISHED = {
    "aggregated KSD [schrab2022]": {"0": 0.07, "0.01": 0.345, "0.02": 0.995, "0.03": 1.0, "0.04": 1.0},
    "KSD, IMQ median [schrab2022]": {"0": 0.055, "0.01": 0.21, "0.02": 0.795, "0.03": 1.0, "0.04": 1.0},
    "LSD [schrab2022inc]": {"0": 0.03, "0.01": 0.10, "0.02": 0.61, "0.03": 0.96, "0.04": 1.0},
    "FSSD [schrab2022inc]": {"0": 0.02, "0.01": 0.09, "0.02": 0.48, "0.03": 0.71, "0.04": 0.99},
}
_RBM = PowerCurves(
    problem="rbm",
    axis="sigma",
    methods=("combined", "crossfit", "aggregated KSD", "KSD, IMQ median", MEDIAN),
    sizes=(1000,),
    sigmas=(0.0, 0.01, 0.02, 0.03, 0.04),
    published=_RBM_PUBLISHED,
)
_RBM_SIZES = replace(_RBM, axis="n", sizes=(200, 400, 600, 800), sigmas=(0.02,), trials=100, null_pool=199)


@dataclass(frozen=True, kw_only=True)
class RbmBenchmark:
    """Power against the perturbation at n = 1000, and against n at sigma = 0.02."""

    by_sigma: PowerCurves
    by_size: PowerCurves


def run_rbm(config: RbmBenchmark, context: Context) -> Outcome:
    first, second = run(config.by_sigma, context), run(config.by_size, context)
    results = {**first.results, "rows": [*first.results["rows"], *second.results["rows"]]}
    return Outcome(results, {"total": first.seconds["total"] + second.seconds["total"]})


def _study(name: str, title: str, config: PowerCurves, takes: str) -> Study:
    return Study(
        name=name,
        title=title,
        takes=takes,
        full=config,
        tiny=_tiny(config),
        run=run,
        table=power_table,
        figures=draw_power,
    )


FIFTY_DIMENSIONS = _study("ksd-50d", "Power and time in 50 dimensions", _50D, "6 minutes on an H200")
FIFTY_DIMENSIONS_EASY = _study(
    "ksd-50d-easy", "Power in 50 dimensions, large difference", _EASY, "a minute on an H200"
)
BANDWIDTH = _study(
    "ksd-bandwidth",
    "Power of the kernel test by bandwidth, 50 dimensions, n = 1500",
    _BANDWIDTH,
    "20 seconds on an H200",
)
SPLITS = _study(
    "splits", "Power by share of training points, 50 dimensions, n = 500", _SPLITS, "40 seconds on an H200"
)
RBM = Study(
    name="rbm-benchmark",
    title="Perturbed restricted Boltzmann machine, 50 visible and 40 hidden units",
    takes="5 minutes on an H200",
    full=RbmBenchmark(by_sigma=_RBM, by_size=_RBM_SIZES),
    tiny=RbmBenchmark(by_sigma=_tiny(_RBM), by_size=_tiny(_RBM_SIZES)),
    run=run_rbm,
    table=power_table,
    figures=draw_power,
)
