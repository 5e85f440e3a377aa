"""Level on the boundary of each null hypothesis, with the ordinary test as the control that fails; power."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from steincritic import Combined, FisherBall, GofTest, MomentBox, ScoredPoints
from steincritic.data import score_points
from steincritic.gof.power import trial_seeds
from steincritic.lenses import Moments
from steincritic.report.style import FIXED
from steincritic.rng import Source, derive
from steincritic.shapes import Points
from studies import show
from studies.cells import Cell, Plan, Row, counted, joined, rates
from studies.laws import replaced
from studies.record import Record
from studies.show import LEVEL
from studies.study import Study

TOLERANCE, DELTA = 0.05, 0.2


@dataclass(frozen=True)
class Law:
    """Independent columns with mean 0 and spread 1: normal, Student (6 degrees) or Gamma (shape 4)."""

    kind: str
    dim: int = 5

    def score(self, x: Points) -> Points:
        if self.kind == "normal":
            return -x
        if self.kind == "student":  # variance 6/4
            scale = math.sqrt(1.5)
            y = x * scale
            return -7 * y / (6 + y.square()) * scale
        y = x * 2 + 4  # Gamma(4): mean 4, spread 2
        return 2 * (3 / y.clamp(min=1e-6) - 1)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, self.kind)
        if self.kind == "normal":
            return source.normals(n, self.dim, dtype=torch.float64)
        if self.kind == "student":
            z = source.normals(7, n, self.dim, dtype=torch.float64)
            return z[0] / z[1:].square().mean(0).sqrt() / math.sqrt(1.5)
        u = 1 - source.uniforms(4, n, self.dim, dtype=torch.float64)
        return (-u.log().sum(0) - 4) / 2


def first_shifted(x: Points, by: float) -> Points:
    return replaced(x, 0, x[:, :1] + by)


def first_widened(x: Points, by: float) -> Points:
    return replaced(x, 0, x[:, :1] * by)


# by name: the model, and its draws turned into data that are off by a size
Problems = dict[str, tuple[str, Callable[[Points, float], Points]]]
BOX: Problems = {
    "normal, one mean": ("normal", first_shifted),
    "normal, one spread": ("normal", lambda x, size: first_widened(x, 1 + size)),
    "normal, all means and spreads": ("normal", lambda x, size: x * (1 + size) + size),
    "Student, all means and spreads": ("student", lambda x, size: x * (1 + size) + size),
    "Gamma, all means, spreads too small": ("gamma", lambda x, size: x / (1 + size) + size),
}
FISHER: Problems = {
    "normal, one mean": ("normal", first_shifted),
    # σ with (σ - 1/σ)² = δ²: the Fisher divergence of N(0, σ²) from N(0, 1)
    "normal, one spread": ("normal", lambda x, d: first_widened(x, (d + math.sqrt(d**2 + 4)) / 2)),
}
_ORDINARY = "ordinary"  # method of the control
_BEYOND = 99  # part of the cells of the power; those of the level count from 0
_TESTS: dict[str, GofTest] = {
    "box": MomentBox(TOLERANCE),
    "fisher": FisherBall(DELTA, network=None),
    "fisher, network": FisherBall(DELTA),
    _ORDINARY: Combined(critics=None, lenses=(Moments(),), draws=199, reference=199, cache=False),
}


@dataclass(frozen=True, kw_only=True)
class Tolerance(Plan):
    """Runs of the level, in parts, and of the power; sizes of samples."""

    runs: int = 2000
    parts: int = 10
    trials: int = 100
    n: int = 1000
    sizes: tuple[int, ...] = (1000, 4000, 16_000)
    control_n: int = 20_000
    beyond: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1)  # added to the tolerance

    def cells(self) -> Iterator[Cell]:
        nulls = [("box", name, TOLERANCE) for name in BOX]
        kinds = ("fisher",) if self.tiny else ("fisher", "fisher, network")
        nulls += [(kind, name, DELTA) for kind in kinds for name in FISHER]
        for kind, name, size in nulls:
            network = kind == "fisher, network"
            boundary = Cell(
                kind=kind, problem=name, n=self.n, size=size, runs=self.runs // self.parts, gpu=network
            )
            yield from (replace(boundary, part=part) for part in range(self.parts))
            if not network:
                yield replace(boundary, method=_ORDINARY, n=self.control_n, runs=self.trials)
        for kind, name, size in (
            ("box", "normal, one mean", TOLERANCE),
            ("box", "normal, one spread", TOLERANCE),
            ("fisher", "normal, one mean", DELTA),
        ):
            for n in self.sizes:
                for more in self.beyond:
                    yield Cell(kind=kind, problem=name, n=n, size=size + more, runs=self.trials, part=_BEYOND)


@counted
def count(cell: Cell) -> Row:
    law, change = (BOX if cell.kind == "box" else FISHER)[cell.problem]
    model, seed = Law(law), derive(cell.seed, cell.kind, cell.problem, cell.n, str(cell.size), cell.part)
    datasets = [change(model.sample(cell.n, seed=derive(seed, k)), cell.size) for k in range(cell.runs)]
    points = ScoredPoints.stack([score_points(model, x) for x in datasets])
    if cell.device != "cpu":
        points = points.to(device=cell.device, dtype=torch.float32)
    test = _TESTS[cell.method or cell.kind]
    results = test.run(model, points, level=LEVEL, seeds=trial_seeds(seed, cell.runs))
    lower = [r.settings.get("lower", r.settings.get("at_least")) for r in results]
    return {
        "kind": cell.kind,
        "problem": cell.problem,
        "n": cell.n,
        "size": cell.size,
        "part": cell.part,
        "control": cell.method == _ORDINARY,
        "tests": cell.runs,
        "rejected": sum(r.rejected for r in results),
        "lower": None if lower[0] is None else sum(lower) / len(lower),
    }


def table(record: Record) -> str:
    rows = record.results["rows"]
    controls = {(row["kind"], row["problem"]): row for row in rows if row["control"]}
    boundary = [row for row in rows if row["part"] != _BEYOND and not row["control"]]

    def bound(row: Row) -> float:
        return show.rate_bound(LEVEL, row["tests"])

    def rejected(row: Row) -> str:
        return f"{_rate(row):.4f}" + ("" if _rate(row) <= bound(row) else " (above)")

    def ordinary(row: Row) -> str:
        control = controls.get((row["kind"].split(",")[0], row["problem"]))
        return f"{_rate(control):.2f} (n = {control['n']:,})" if control else "–"

    data: show.Columns = {"test": "{kind}", "data": "{problem}", "off by": "{size:g}"}
    level: show.Columns = {
        "n": "{n}",
        "tests": "{tests}",
        "rejected": rejected,
        "at most (99.9 %)": lambda row: f"{bound(row):.4f}",
        "ordinary test": ordinary,
    }
    power: show.Columns = {
        "n": "{n:,}",
        "rejected": lambda row: f"{_rate(row):.2f}",
        "mean lower bound of the divergence": lambda row: (
            "–" if row["lower"] is None else f"{row['lower']:.4f}"
        ),
    }
    return show.document(
        record,
        "Data that are wrong by exactly as much as is tolerated: share of tests that reject at level 0.05. "
        "The control is the ordinary test (lens of moments) of such data.",
        show.listing(joined(boundary, by=("kind", "problem")), {**data, **level}),
        "Power against the sample size and how far off the data are.",
        show.listing((row for row in rows if row["part"] == _BEYOND), {**data, **power}),
        show.devices(record),
    )


def _rate(row: Row) -> float:
    return float(row["rejected"] / row["tests"])


def draw(record: Record, folder: Path) -> list[Path]:
    """The power of the box against n."""
    rows = [row for row in record.results["rows"] if row["part"] == _BEYOND and row["kind"] == "box"]
    sizes, path = sorted(show.unique(rows, "size")), folder / "tolerance.png"
    with show.picture(path, 6.6, 2.9, ncols=2, sharey=True, layout="constrained") as axes:
        for ax, name in zip(axes, show.unique(rows, "problem"), strict=True):
            for size, color in zip(sizes, FIXED[-len(sizes) :], strict=True):
                places = [row for row in rows if (row["problem"], row["size"]) == (name, size)]
                x, y = [row["n"] for row in places], [_rate(row) for row in places]
                ax.plot(x, y, "o-", ms=4, color=color, label=f"off by {size:g}")
            ax.set(xlabel="n; 0.05 is tolerated", xscale="log", title=name)
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=2)
        axes[0].set(ylabel="rejected", ylim=(-0.03, 1.03))
    return [path]


STUDY = Study(
    name="tolerance",
    title="Tests with a tolerance: level on the boundary, power beyond it",
    takes="less than ten minutes on 16 cores, with a GPU for the critics",
    full=Tolerance(),
    tiny=Tolerance(runs=4, parts=1, trials=2, n=100, sizes=(100,), control_n=200, beyond=(0.1,), tiny=True),
    run=rates(count),
    table=table,
    figures=draw,
)
