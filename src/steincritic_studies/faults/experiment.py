"""Are planted faults found, and is nothing found where there is none? Points, coordinates, regions."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.diagnosis.check import check
from steincritic.diagnosis.check_result import CheckResult
from steincritic.gof.choose import gof_test
from steincritic.gof.combined import Combined
from steincritic.gof.power import Rate
from steincritic.models.mixture import GaussianMixture
from steincritic.rng import derive, generator
from steincritic_studies.faults.figures import draw_faults, faults_table
from steincritic_studies.study import Context, Outcome, Study

FDR = 0.1
_FOREIGN = 0.03  # share of rows from elsewhere
_WRONG = 7  # the wrong column
_WIDER = 1.3  # its standard deviation, the model says 1
_KEPT = 0.45  # share of rows kept outside the region


@dataclass(frozen=True, kw_only=True)
class FaultJob:
    kind: str
    n: int
    start: int
    stop: int
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class PlantedFaults:
    """Standard normal models, and data that differ from them in one way.

    points: 3 % of the rows come from another normal, with mean 1.5 in ten coordinates and half the
    spread. coordinate: column 8 is wider by 1.3. region: outside of x1 > 0.5 and x2 < 0 fewer than half
    of the rows are kept. none: draws of the model.
    """

    counts: tuple[tuple[str, int, int], ...] = (  # kind, n, runs
        ("points", 1000, 200),
        ("coordinate", 500, 100),
        ("region", 1000, 100),
        ("none", 500, 100),
    )
    together: int = 5
    tiny: bool = False


_DIMS = {"points": 20, "coordinate": 30, "region": 5, "none": 5}


def run(config: PlantedFaults, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = [
        FaultJob(
            kind=kind,
            n=n,
            start=first,
            stop=min(first + config.together, runs),
            seed=context.seed,
            tiny=config.tiny,
        )
        for kind, n, runs in config.counts
        for first in range(0, runs, config.together)
    ]
    parts = context.sweep(run_fault_job, jobs)
    found: dict[str, list[dict[str, Any]]] = {}
    for job, part in zip(jobs, parts, strict=True):
        found.setdefault(job.kind, []).extend(part["runs"])
    rows = {kind: _SUMMARIES[kind](runs) | {"n": n} for kind, n, _ in config.counts for runs in [found[kind]]}
    return Outcome({"rows": rows, "fdr": FDR}, {"total": time.perf_counter() - start})


def run_fault_job(job: FaultJob) -> dict[str, Any]:
    return {"runs": [_one(job, k) for k in range(job.start, job.stop)]}


def _one(job: FaultJob, number: int) -> dict[str, Any]:
    seed = derive(job.seed, job.kind, number)
    model = GaussianMixture(torch.zeros(1, _DIMS[job.kind]))
    x = _PLANTED[job.kind](model, job.n, seed)
    tiny = Combined(draws=19, reference=20, critics=None, cache=False)
    test = gof_test(model, x, tiny if job.tiny else Combined(), seed=seed)
    diagnosis = check(model, x, fdr=FDR, seed=seed, test=test)
    return {"rejected": test.rejected} | _MEASURED[job.kind](diagnosis)


def _with_foreign_rows(model: GaussianMixture, n: int, seed: int) -> Tensor:
    x = model.sample(n, seed=seed).to(torch.float32)
    count = round(_FOREIGN * n)
    noise = torch.randn(count, x.shape[1], generator=generator(seed, "foreign"))
    x[:count] = 0.5 * noise + torch.where(torch.arange(x.shape[1]) < 10, 1.5, 0.0)
    return x


def _with_a_wrong_column(model: GaussianMixture, n: int, seed: int) -> Tensor:
    x = model.sample(n, seed=seed).to(torch.float32)
    x[:, _WRONG] *= _WIDER
    return x


def _with_a_dense_region(model: GaussianMixture, n: int, seed: int) -> Tensor:
    x = model.sample(4 * n, seed=seed).to(torch.float32)
    kept = torch.rand(len(x), generator=generator(seed, "kept")) < _KEPT
    return x[kept | torch.from_numpy(_region(x.numpy()))][:n]


def _region(x: np.ndarray) -> np.ndarray:
    inside: np.ndarray = (x[:, 0] > 0.5) & (x[:, 1] < 0.0)
    return inside


def _as_it_is(model: GaussianMixture, n: int, seed: int) -> Tensor:
    return model.sample(n, seed=seed).to(torch.float32)


def _measure_points(diagnosis: CheckResult) -> dict[str, Any]:
    flagged, planted = diagnosis.points.flagged, round(_FOREIGN * len(diagnosis.data))
    true = int((flagged < planted).sum())
    return {"false_share": (len(flagged) - true) / max(1, len(flagged)), "recall": true / planted}


def _measure_coordinate(diagnosis: CheckResult) -> dict[str, Any]:
    first = diagnosis.coordinates[0]
    return {"first": first.first == _WRONG, "significant": first in diagnosis.wrong_coordinates}


def _measure_region(diagnosis: CheckResult) -> dict[str, Any]:
    if not diagnosis.regions:
        return {"overlap": 0.0, "best": 0.0}
    x = GaussianMixture(torch.zeros(1, 5)).sample(20_000, seed=0).numpy()
    overlaps = [
        float((inside & _region(x)).sum() / (inside | _region(x)).sum())
        for inside in (region.holds(x) for region in diagnosis.regions)
    ]
    return {"overlap": overlaps[0], "best": max(overlaps)}


def _measure_lists(diagnosis: CheckResult) -> dict[str, Any]:
    missing = 0 if diagnosis.missing is None else len(diagnosis.missing)
    lists = (len(diagnosis.points), len(diagnosis.wrong_coordinates), len(diagnosis.regions), missing)
    return {"lists": any(lists)}


_PLANTED: dict[str, Callable[[GaussianMixture, int, int], Tensor]] = {
    "points": _with_foreign_rows,
    "coordinate": _with_a_wrong_column,
    "region": _with_a_dense_region,
    "none": _as_it_is,
}
_MEASURED: dict[str, Callable[[CheckResult], dict[str, Any]]] = {
    "points": _measure_points,
    "coordinate": _measure_coordinate,
    "region": _measure_region,
    "none": _measure_lists,
}


def _share(runs: list[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    rate = Rate(sum(map(holds, runs)), len(runs))
    return {"count": rate.rejections, "runs": rate.trials, "rate": rate.value, "interval": rate.interval()}


def _mean(runs: list[dict[str, Any]], name: str) -> dict[str, float]:
    values = [run[name] for run in runs]
    return {"mean": mean(values), "se": stdev(values) / len(values) ** 0.5}


_SUMMARIES: dict[str, Callable[[list[dict[str, Any]]], dict[str, Any]]] = {
    "points": lambda runs: {
        "rejected": _share(runs, lambda r: r["rejected"]),
        "false_discovery_rate": _mean(runs, "false_share"),
        "recall": _mean(runs, "recall"),
    },
    "coordinate": lambda runs: {
        "rejected": _share(runs, lambda r: r["rejected"]),
        "named_first": _share(runs, lambda r: r["first"]),
        "first_and_significant": _share(runs, lambda r: r["first"] and r["significant"]),
    },
    "region": lambda runs: {
        "rejected": _share(runs, lambda r: r["rejected"]),
        "first_rule_overlaps": _share(runs, lambda r: r["overlap"] >= 0.5),
        "some_rule_overlaps": _share(runs, lambda r: r["best"] >= 0.5),
        "overlap": _mean(runs, "overlap"),
    },
    "none": lambda runs: {
        "rejected": _share(runs, lambda r: r["rejected"]),
        "no_list": _share(runs, lambda r: not r["lists"]),
    },
}

STUDY = Study(
    name="planted-faults",
    title="Planted faults and what a diagnosis says of them",
    takes="a sweep of many jobs: hours on two cores",
    full=PlantedFaults(),
    tiny=PlantedFaults(
        counts=(("points", 60, 2), ("coordinate", 60, 2), ("region", 60, 2), ("none", 60, 2)),
        together=2,
        tiny=True,
    ),
    run=run,
    table=faults_table,
    figures=draw_faults,
)
