"""Level and power by scores alone: of models that cannot be sampled, and of chains of dependent draws."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from steincritic import Combined, ScoredPoints
from steincritic.data import mixture, problem
from steincritic.gof.power import trial_seeds
from steincritic.gof.serial import slowness_if_any, stein_series
from steincritic.models import PairModel
from steincritic.rng import derive, generator
from studies.cells import Cell, Plan, Row, counted, rates, tests_by_scores
from studies.laws import Gamma, LogGamma, Student, narrow, normal, replaced, rotation
from studies.posteriors.models import EightSchools
from studies.record import Record
from studies.show import LEVEL, devices, document, high, pivot, rate_of
from studies.study import Study

NULLS: dict[str, Callable[[], Any]] = {
    "gm-2d": lambda: problem("gm-2d").model,
    "gm-10d": lambda: problem("gm-10d").model,
    "log gamma 5-D": lambda: LogGamma(5),
    "gamma 5-D": lambda: Gamma(5),
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
class WithoutDraws(Plan):
    """Null problems by sample size, and faults; every method on the same datasets, some in each part."""

    nulls: tuple[str, ...] = tuple(NULLS)
    sizes: tuple[int, ...] = (50, 200, 1000)
    parts: int = 4
    faults: tuple[str, ...] = tuple(FAULTS)
    fault_parts: int = 2
    each: int = 100
    methods: tuple[str, ...] = ("combined", "split", "ksd")
    peers: tuple[str, ...] = ("ksdagg",)  # on faults alone

    def cells(self) -> Iterator[Cell]:
        asked = [(name, n, part) for name in self.nulls for n in self.sizes for part in range(self.parts)]
        asked += [(name, 0, part) for name in self.faults for part in range(self.fault_parts)]
        for name, n, part in asked:
            for method in self.methods if n else self.methods + self.peers:
                yield Cell(problem=name, method=method, n=n, part=part, runs=self.each)


@counted
def count(cell: Cell) -> list[Row]:
    """Datasets are the same for every method; n is 0 for that of the fault."""
    fault = None if cell.n else FAULTS[cell.problem]
    model, n = (fault.model(), fault.n) if fault else (NULLS[cell.problem](), cell.n)
    place = cell.problem, cell.n, cell.part
    seed = derive(cell.seed, *place)
    x = model.sample(cell.runs * n, seed=derive(seed, "data")).to(torch.float64).view(cell.runs, n, -1)
    x = fault.spoil(x, generator(seed, "fault")) if fault else x
    points = ScoredPoints(x, model.score(x.flatten(0, 1)).view_as(x))
    test, seeds = tests_by_scores(tiny=cell.tiny)[cell.method], derive(cell.seed, *place, "tests")
    results = test.run(PairModel(model.score), points, level=LEVEL, seeds=trial_seeds(seeds, cell.runs))
    rejections = {cell.method: sum(result.rejected for result in results)}
    if cell.method == Combined.name:  # what its first step says, if it had the whole level
        rejections["lenses alone"] = sum(result.settings["quick_pvalue"] <= LEVEL for result in results)
    kind = "fault" if fault else "null"
    common = {"problem": cell.problem, "kind": kind, "n": n, "runs": cell.runs}
    return [common | {"method": name, "rejections": total} for name, total in rejections.items()]


def without_draws_table(record: Record) -> str:
    rows = record.results["rows"]

    def table(kind: str, first: str) -> str:
        of_kind = [row for row in rows if row["kind"] == kind]
        lines = {first: "problem", "n": "n"}
        return pivot(
            of_kind, lines, "method", lambda row: high(rate_of(row), is_null=kind == "null"), missing=""
        )

    return document(
        record,
        "Rejections of the model's own draws at level 0.05, and runs:",
        table("null", "model"),
        "Rejections of wrong draws:",
        table("fault", "fault"),
        "No test draws from the model. The combined test gives half of the level to its lenses and half to "
        "the split test that follows; the lenses alone have all of it. Rates of own draws are bold where an "
        f"exact test would lie below in 99.9 %. {devices(record)}",
    )


WITHOUT_DRAWS = Study(
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
    run=rates(count, by=("kind", "problem", "n", "method")),
    table=without_draws_table,
)


_DIM = 5
METHODS = ("by blocks", "as if independent")


@dataclass(frozen=True)
class Kind:
    """Autoregressive chains of a standard normal or a log-gamma law; the shift is for power."""

    chains: int
    steps: int  # before thinning
    keep: float  # correlation with the draw before
    thin: int = 1
    skewed: bool = False
    shift: float = 0.0  # of the first coordinate

    @property
    def worth(self) -> float:
        """Independent draws, for a mean."""
        kept = self.keep**self.thin
        return self.chains * self.steps / self.thin * (1 - kept) / (1 + kept)

    def draw(self, source: torch.Generator) -> Tensor:
        """(chains, steps, d)"""
        noise = torch.randn(self.chains, self.steps, _DIM, generator=source, dtype=torch.float64)
        x = noise.clone()
        for t in range(1, self.steps):
            x[:, t] = self.keep * x[:, t - 1] + math.sqrt(1 - self.keep**2) * noise[:, t]
        x = x[:, :: self.thin]
        if self.skewed:
            x = torch.as_tensor(stats.loggamma.ppf(stats.norm.cdf(x.numpy()), 2))
        x[..., 0] += self.shift
        return x

    def score(self, x: Tensor) -> Tensor:
        return LogGamma(_DIM).score(x) if self.skewed else -x


KINDS = {
    "one short chain": Kind(1, 200, 0.5),
    "one long chain": Kind(1, 1000, 0.9),
    "four short chains": Kind(4, 60, 0.3),
    "four slow chains": Kind(4, 250, 0.9),
    "four long chains": Kind(4, 500, 0.6),
    "eight chains": Kind(8, 500, 0.6),
    "thinned to a tenth": Kind(4, 1000, 0.9, thin=10),
    "hardly dependent": Kind(4, 100, 0.15),
    "alternating": Kind(4, 250, -0.6),
    "skewed": Kind(4, 250, 0.7, skewed=True),
    "independent": Kind(4, 100, 0.0),
    "one long chain, shifted by 0.5": Kind(1, 1000, 0.9, shift=0.5),
    "four long chains, shifted by 0.2": Kind(4, 500, 0.6, shift=0.2),
    "independent, shifted by 0.2": Kind(4, 100, 0.0, shift=0.2),
}


@dataclass(frozen=True, kw_only=True)
class LevelOfChains(Plan):
    kinds: tuple[str, ...] = tuple(KINDS)
    parts: int = 2
    each: int = 50

    def cells(self) -> Iterator[Cell]:
        for part in range(self.parts):
            for kind in self.kinds:
                yield Cell(problem=kind, part=part, runs=self.each)


@counted
def count_chains(cell: Cell) -> list[Row]:
    """As `check_draws` does it, and by the lenses alone as if draws were independent."""
    kind, seed = KINDS[cell.problem], derive(cell.seed, cell.problem, cell.part)
    usual = Combined(draws=39, reference=30, critics=None) if cell.tiny else Combined()
    counts, dependent = dict.fromkeys(METHODS, 0), 0
    for k in range(cell.runs):
        x = kind.draw(generator(seed, "chains", k)).flatten(0, 1)
        points = ScoredPoints(x, kind.score(x))
        slowness = slowness_if_any(stein_series(points, kind.chains), seed=derive(seed, "dependence", k))
        dependent += slowness > 1
        tests = replace(usual, slowness=slowness, chains=kind.chains), replace(usual, critics=None)
        for method, test in zip(METHODS, tests, strict=True):
            (result,) = test.run(None, points.alone(), level=LEVEL, seeds=[derive(seed, "test", k)])
            counts[method] += result.rejected
    common = {
        "kind": cell.problem,
        "runs": cell.runs,
        "n": len(points),
        "chains": kind.chains,
        "worth": kind.worth,
        "dependent": dependent,
    }
    return [common | {"method": method, "rejections": total} for method, total in counts.items()]


def chains_table(record: Record) -> str:
    rows = [
        row | {"worth": f"{row['worth']:.0f}", "dependent": f"{row['dependent'] / row['runs']:.2f}"}
        for row in record.results["rows"]
    ]
    lines = {"draws": "kind", "chains": "chains", "n": "n", "worth": "worth", "found dependent": "dependent"}
    return document(
        record,
        "Rejections at level 0.05, and runs, of autoregressive chains in five dimensions:",
        pivot(rows, lines, "method", lambda row: high(rate_of(row), is_null="shifted" not in row["kind"])),
        "Worth: independent draws, for a mean; alternating chains are worth more than they have. By blocks: "
        "as `check_draws` tests. As if independent: the same lenses with a sign per draw, without a critic. "
        f"Rates of right draws are bold where an exact test would lie below in 99.9 %. {devices(record)}",
    )


CHAINS = Study(
    name="level-of-chains",
    title="Draws that depend on each other: level and power",
    takes="15 minutes on one core",
    full=LevelOfChains(),
    tiny=LevelOfChains(kinds=("four short chains",), parts=1, each=2, tiny=True),
    run=rates(count_chains, by=("kind", "method")),
    table=chains_table,
)
