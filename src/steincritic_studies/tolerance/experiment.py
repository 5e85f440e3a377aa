"""Level on the boundary of each null hypothesis, with the ordinary test as the control that fails; power."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from steincritic.data.points import ScoredPoints, score_points
from steincritic.gof.combined import Combined
from steincritic.gof.contamination import Contamination
from steincritic.gof.fisher_ball import FisherBall
from steincritic.gof.kernel import Ksd
from steincritic.gof.moment_box import MomentBox
from steincritic.gof.power import trial_seeds
from steincritic.gof.test import GofTest
from steincritic.lenses import Moments
from steincritic.rng import derive
from steincritic.stein.kernels import IMQ
from steincritic_studies.study import Context, Outcome, Study
from steincritic_studies.tolerance import problems as p
from steincritic_studies.tolerance.figures import draw, table

LEVEL = 0.05
_ORDINARY = Combined(critics=None, lenses=(Moments(),), draws=199, reference=199, cache=False)
PUBLISHED = Contamination(0.1, standardize=False, width=1.0)  # weight around 0, as in [liu2025]


@dataclass(frozen=True, kw_only=True)
class Job:
    kind: str  # "box", "fisher", "fisher, network", "foreign" or "machine"
    problem: str
    n: int
    size: float  # by how much the data are off
    runs: int
    part: int = 0
    control: bool = False  # the ordinary test instead
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Runs of the level, in parts, and of the power; sizes of samples."""

    runs: int = 2000
    parts: int = 10
    trials: int = 100
    n: int = 1000
    sizes: tuple[int, ...] = (1000, 4000, 16_000)
    control_n: int = 20_000
    beyond: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1)  # added to the tolerance
    foreign: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    networks: bool = True


def jobs_of(config: Tolerance, seed: int) -> list[Job]:
    each = config.runs // config.parts
    nulls = [("box", name, config.n, p.TOLERANCE) for name in p.BOX]
    nulls += [("fisher", name, config.n, p.DELTA) for name in p.FISHER]
    if config.networks:
        nulls += [("fisher, network", name, config.n, p.DELTA) for name in p.FISHER]
    nulls += [("foreign", name, config.n // 2, p.SHARE) for name in p.FOREIGN]
    jobs = [
        Job(kind=kind, problem=name, n=n, size=size, runs=each, part=part, seed=seed)
        for kind, name, n, size in nulls
        for part in range(config.parts)
    ]
    jobs += [
        Job(
            kind=kind,
            problem=name,
            n=config.control_n,
            size=size,
            runs=config.trials,
            control=True,
            seed=seed,
        )
        for kind, name, _, size in nulls
        if kind != "fisher, network"
    ]
    for kind, name, size in (
        ("box", "normal, one mean", p.TOLERANCE),
        ("box", "normal, one spread", p.TOLERANCE),
        ("fisher", "normal, one mean", p.DELTA),
    ):
        jobs += [
            Job(kind=kind, problem=name, n=n, size=size + more, runs=config.trials, part=99, seed=seed)
            for n in config.sizes
            for more in config.beyond
        ]
    jobs += [
        Job(kind="machine", problem=name, n=config.n // 2, size=share, runs=config.trials, seed=seed)
        for name in _MACHINE
        for share in config.foreign
    ]
    return jobs


def run(config: Tolerance, context: Context) -> Outcome:
    start = time.perf_counter()
    rows = context.sweep(run_job, jobs_of(config, context.seed))
    return Outcome({"rows": list(rows)}, {"total": time.perf_counter() - start})


def run_job(job: Job) -> dict[str, Any]:
    start = time.perf_counter()
    model, data, test = _SETUPS[job.kind](job)
    cuda = torch.cuda.is_available() and job.kind == "fisher, network"
    own = derive(job.seed, job.kind, job.problem, job.n, str(job.size), job.part)
    datasets = [data(derive(own, k)) for k in range(job.runs)]
    points = ScoredPoints.stack([score_points(model, x) for x in datasets])
    if cuda:
        points = points.to(device="cuda", dtype=torch.float32)
    tested = _ORDINARY if job.control else test
    results = tested.run(model, points, level=LEVEL, seeds=trial_seeds(own, job.runs))
    lower = [r.settings.get("lower", r.settings.get("at_least")) for r in results]
    return {
        "kind": job.kind,
        "problem": job.problem,
        "n": job.n,
        "size": job.size,
        "part": job.part,
        "control": job.control,
        "tests": job.runs,
        "rejected": sum(r.rejected for r in results),
        "lower": None if lower[0] is None else sum(lower) / len(lower),
        "seconds": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if cuda else "CPU",
    }


Setup = tuple[Any, Callable[[int], torch.Tensor], GofTest]  # model, data by seed, test


def _box(job: Job) -> Setup:
    kind, change = p.BOX[job.problem]
    model = p.Columns(kind)
    return model, lambda seed: change(model.sample(job.n, seed=seed), job.size), MomentBox(p.TOLERANCE)


def _fisher(job: Job) -> Setup:
    model, change = p.Columns("normal"), p.FISHER[job.problem]
    test = FisherBall(p.DELTA) if job.kind.endswith("network") else FisherBall(p.DELTA, network=None)
    return model, lambda seed: change(model.sample(job.n, seed=seed), job.size), test


def _foreign(job: Job) -> Setup:
    model, test = p.FOREIGN[job.problem](), Contamination(p.SHARE)
    place = p.worst_place(model, test, job.seed)

    def data(seed: int) -> torch.Tensor:
        return p.with_foreign(model.sample(job.n, seed=seed).double(), place, job.size, seed)

    return model, data, test


def _machine(job: Job) -> Setup:
    model = p.machine(job.seed)

    def data(seed: int) -> torch.Tensor:
        return p.with_outliers(model.sample(job.n, seed=seed), job.size, seed)

    return model, data, _MACHINE[job.problem]


_SETUPS: dict[str, Callable[[Job], Setup]] = {
    "box": _box,
    "fisher": _fisher,
    "fisher, network": _fisher,
    "foreign": _foreign,
    "machine": _machine,
}
_MACHINE: dict[str, GofTest] = {
    "tolerance 10 %": Contamination(0.1),
    "tolerance 10 %, weight as published": PUBLISHED,
    "KSD": Ksd(kernel=IMQ(scale="median")),
}

STUDY = Study(
    name="tolerance",
    title="Tests with a tolerance: level on the boundary, power beyond it",
    takes="less than ten minutes on 16 cores, with a GPU for the critics",
    full=Tolerance(),
    tiny=Tolerance(
        runs=4,
        parts=1,
        trials=2,
        n=100,
        sizes=(100,),
        control_n=200,
        beyond=(0.1,),
        foreign=(0.2,),
        networks=False,
    ),
    run=run,
    table=table,
    figures=draw,
)
