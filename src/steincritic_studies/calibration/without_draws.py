"""Level and power of the combined test of models that cannot be sampled, beside the tests it replaces."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.data.problems import mixture, problem
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.combined import Combined
from steincritic.gof.kernel import Ksd
from steincritic.gof.power import Rate, trial_seeds
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.models.density import PairModel
from steincritic.report.style import save, styled
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from steincritic.training.fit import Training
from steincritic_studies.calibration.level import LogGamma
from steincritic_studies.posteriors.models import EightSchools
from steincritic_studies.record import Record
from steincritic_studies.study import Context, Outcome, Study
from steincritic_studies.tables import devices, document, markdown, rate_bound
from steincritic_studies.zoo.models import Student, gaussian, normal, replaced, rotation

LEVEL = 0.05


@dataclass(frozen=True)
class GammaModel:
    """Independent Gamma(4) variables: skewed to the right, score 3 / x - 1."""

    dim: int

    def score(self, x: Points) -> Points:
        return 3 / x - 1

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = generator(seed, "gamma")
        u = torch.rand(4, n, self.dim, generator=source, dtype=torch.float64).clamp(min=1e-300)
        return -u.log().sum(0)


def narrow(dim: int, condition: float) -> Any:
    """A normal model whose covariance has this condition number, in no coordinate's direction."""
    axes = rotation(dim) * torch.logspace(-math.log10(condition) / 2, 0, dim, dtype=torch.float64)
    return gaussian(axes @ axes.T)


NULLS: dict[str, Callable[[], Any]] = {
    "gm-2d": lambda: problem("gm-2d").model,
    "gm-10d": lambda: problem("gm-10d").model,
    "log gamma 5-D": lambda: LogGamma(5),
    "gamma 5-D": lambda: GammaModel(5),
    "t(5) 5-D": lambda: Student(5, 5),
    "normal 30-D": lambda: normal(30),
    "narrow 5-D": lambda: narrow(5, 1e4),
    "eight schools": EightSchools,
}
Spoil = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Fault:
    """Draws of the model, (t, n, d), and what is done to them."""

    model: Callable[[], Any]
    spoil: Spoil
    n: int


def _pair(x: Tensor, source: torch.Generator) -> Tensor:
    r = 0.35
    return replaced(x, 1, r * x[..., :1] + math.sqrt(1 - r * r) * x[..., 1:2])


def _heavy(x: Tensor, source: torch.Generator) -> Tensor:
    """Independent t(5), of variance 1."""
    z = torch.randn(5, *x.shape, generator=source, dtype=x.dtype)
    return x / z.square().mean(0).sqrt() * math.sqrt(3 / 5)


def _skewed(x: Tensor, source: torch.Generator) -> Tensor:
    """The first coordinate a shifted log-normal one, of mean 0 and variance 1."""
    y = (0.3 * x[..., :1]).exp()
    v = math.exp(0.09)
    return replaced(x, 0, (y - math.sqrt(v)) / math.sqrt(v * (v - 1)))


def _cluster(x: Tensor, source: torch.Generator) -> Tensor:
    """One row in twenty is near (2, ..., 2)."""
    moved = torch.rand(*x.shape[:-1], 1, generator=source, dtype=x.dtype) < 0.05
    return torch.where(moved, 2 + 0.3 * x, x)


def _independent(x: Tensor, source: torch.Generator) -> Tensor:
    """Normals with the mean and standard deviation of each coordinate, as mean-field inference has it."""
    flat = x.flatten(0, 1)
    return flat.mean(0) + flat.std(0) * torch.randn(x.shape, generator=source, dtype=x.dtype)


def _along(dim: int, size: float) -> Spoil:
    """Shifted by a part of the standard deviation of the longest axis, along it."""
    return lambda x, source: x + size * rotation(dim)[:, -1]


def _mixture(x: Tensor, source: torch.Generator) -> Tensor:
    drawn = mixture(10).data.sample(x.shape[0] * x.shape[1], seed=source.initial_seed() % 2**31)
    return drawn.view_as(x).to(x)


FAULTS: dict[str, Fault] = {
    "one mean of 10 + 0.25": Fault(lambda: normal(10), lambda x, _: replaced(x, 0, x[..., :1] + 0.25), 200),
    "one spread of 10 x 1.25": Fault(lambda: normal(10), lambda x, _: replaced(x, 0, 1.25 * x[..., :1]), 200),
    "one pair of 10, 0.35": Fault(lambda: normal(10), _pair, 200),
    "t(5) tails, 5-D": Fault(lambda: normal(5), _heavy, 200),
    "one of 5 skewed": Fault(lambda: normal(5), _skewed, 200),
    "5 % in a cluster, 5-D": Fault(lambda: normal(5), _cluster, 200),
    "gm-10d": Fault(lambda: mixture(10).model, _mixture, 300),
    "narrow 3-D (1e4), 0.3 sd": Fault(lambda: narrow(3, 1e4), _along(3, 0.3), 500),
    "narrow 10-D (1e6), 0.2 sd": Fault(lambda: narrow(10, 1e6), _along(10, 0.2), 500),
    "eight schools, mean field": Fault(EightSchools, _independent, 200),
}


@dataclass(frozen=True, kw_only=True)
class WithoutDrawsJob:
    problem: str
    method: str
    n: int  # 0 for that of the fault
    part: int
    runs: int
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class WithoutDraws:
    """Null problems by sample size, and faults; every method on the same datasets, some in each part."""

    nulls: tuple[str, ...] = tuple(NULLS)
    sizes: tuple[int, ...] = (50, 200, 1000)
    parts: int = 4
    faults: tuple[str, ...] = tuple(FAULTS)
    fault_parts: int = 2
    each: int = 100
    methods: tuple[str, ...] = ("combined", "split", "ksd")
    peers: tuple[str, ...] = ("ksdagg",)  # on faults alone
    tiny: bool = False


def run(config: WithoutDraws, context: Context) -> Outcome:
    start = time.perf_counter()
    asked = [(name, n, part) for name in config.nulls for n in config.sizes for part in range(config.parts)]
    asked += [(name, 0, part) for name in config.faults for part in range(config.fault_parts)]
    common: dict[str, Any] = {"runs": config.each, "seed": context.seed, "tiny": config.tiny}
    jobs = [
        WithoutDrawsJob(problem=name, method=method, n=n, part=part, **common)
        for name, n, part in asked
        for method in (config.methods if n else config.methods + config.peers)
    ]
    parts = context.sweep(run_job, jobs)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (row for part in parts for row in part["rows"]):
        place = row["kind"], row["problem"], row["n"], row["method"]
        have = rows.get(place, {"runs": 0, "rejections": 0, "seconds": 0.0})
        rows[place] = row | {key: row[key] + have[key] for key in ("runs", "rejections", "seconds")}
    return Outcome({"rows": list(rows.values())}, {"total": time.perf_counter() - start})


def run_job(job: WithoutDrawsJob) -> dict[str, Any]:
    start = time.perf_counter()
    model, x = datasets(job)
    seeds = trial_seeds(derive(job.seed, job.problem, job.n, job.part, "tests"), job.runs)
    points = ScoredPoints(x, model.score(x.flatten(0, 1)).view_as(x))
    found = tests(tiny=job.tiny)[job.method].run(PairModel(model.score), points, level=LEVEL, seeds=seeds)
    rejections = {job.method: sum(result.rejected for result in found)}
    if job.method == Combined.name:  # what its first step says, if it had the whole level
        rejections["lenses alone"] = sum(result.settings["quick_pvalue"] <= LEVEL for result in found)
    common = {
        "problem": job.problem,
        "kind": "null" if job.n else "fault",
        "n": x.shape[1],
        "runs": job.runs,
        "seconds": time.perf_counter() - start,
        "device": "CPU",
    }
    return {"rows": [{"method": name, "rejections": count} | common for name, count in rejections.items()]}


def datasets(job: WithoutDrawsJob) -> tuple[Any, Tensor]:
    """The same for every method."""
    fault = FAULTS[job.problem] if not job.n else None
    model = (fault.model if fault else NULLS[job.problem])()
    n = fault.n if fault else job.n
    seed = derive(job.seed, job.problem, job.n, job.part)
    x = model.sample(job.runs * n, seed=derive(seed, "data")).to(torch.float64).view(job.runs, n, -1)
    return model, fault.spoil(x, generator(seed, "fault")) if fault else x


def tests(*, tiny: bool) -> dict[str, GofTest]:
    return {
        "combined": Combined(draws=39, reference=30) if tiny else Combined(),
        "split": Split(threshold="bootstrap-t", training=Training(epochs=2) if tiny else None),
        "ksd": Ksd(),
        "ksdagg": KsdAgg(),
    }


def without_draws_table(record: Record) -> str:
    rows = record.results["rows"]
    parts = []
    for kind, first in (("null", "model"), ("fault", "fault")):
        methods = list(dict.fromkeys(row["method"] for row in rows if row["kind"] == kind))
        cells = list(dict.fromkeys((row["problem"], row["n"]) for row in rows if row["kind"] == kind))
        found = {(row["problem"], row["n"], row["method"]): row for row in rows if row["kind"] == kind}
        body = [
            [name, str(n), *(_cell(found[name, n, m]) if (name, n, m) in found else "" for m in methods)]
            for name, n in cells
        ]
        parts.append(markdown([first, "n", *methods], body))
    return document(
        record,
        "Rejections of the model's own draws at level 0.05, and runs:",
        parts[0],
        "Rejections of wrong draws:",
        parts[1],
        "No test draws from the model. The combined test gives half of the level to its lenses and half to "
        "the split test that follows; the lenses alone have all of it. Rates of own draws are bold where an "
        f"exact test would lie below in 99.9 %. {devices(record)}",
    )


def _cell(row: dict[str, Any]) -> str:
    rate = Rate(row["rejections"], row["runs"]).value
    high = row["kind"] == "null" and rate > rate_bound(LEVEL, row["runs"])
    return f"{f'**{rate:.3f}**' if high else f'{rate:.3f}'} ({row['runs']})"


def draw_without_draws(record: Record, folder: Path) -> list[Path]:
    """Power by fault and test."""
    from matplotlib import pyplot

    rows = [row for row in record.results["rows"] if row["kind"] != "null"]
    faults = list(dict.fromkeys(row["problem"] for row in rows))
    with styled():
        figure, ax = pyplot.subplots(figsize=(5.5, 0.3 * len(faults) + 1.2))
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == method]
            places = [faults.index(row["problem"]) for row in own]
            ax.plot([row["rejections"] / row["runs"] for row in own], places, "o", label=method)
        ax.set_yticks(range(len(faults)), faults)
        ax.set(xlabel="power at level 0.05", xlim=(-0.03, 1.03))
        ax.invert_yaxis()
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        return [save(figure, folder / "power.png")]


STUDY = Study(
    name="level-without-draws",
    title="The combined test by scores alone: level and power",
    takes="jobs of 3 hours together on a CPU",
    full=WithoutDraws(),
    tiny=WithoutDraws(
        nulls=("gm-2d",),
        sizes=(40,),
        parts=1,
        faults=("narrow 3-D (1e4), 0.3 sd",),
        methods=("combined",),
        peers=("ksd",),
        fault_parts=1,
        each=2,
        tiny=True,
    ),
    run=run,
    table=without_draws_table,
    figures=draw_without_draws,
)
