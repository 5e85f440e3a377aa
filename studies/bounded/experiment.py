"""Level and power of the default test on models with bounds, with a control that must fail.

The control tests the very same draws by scores alone in the columns themselves (KSD with its wild bootstrap).
Stein's identity lacks its boundary term there, so it rejects right data.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Beta, Dirichlet, Exponential, Gamma, HalfNormal, Independent, Uniform

from steincritic import Combined, Ksd, Model, Rate
from steincritic.gof.power import trials_of
from steincritic.models import BoundedModel, PairModel, SamplingModel, as_model
from steincritic.rng import Source, derive
from steincritic.shapes import Points
from studies import show
from studies.cells import Cell, Plan, Row, counted, joined, rates, tiny_default
from studies.record import Record
from studies.study import Study


@dataclass(frozen=True)
class Family:
    """A model by one of its parameters.

    Args:
        change: of the parameter, in words.
        make: from a tensor of one number, on the device of the model.
    """

    name: str
    change: str
    make: Callable[[Tensor], Any]
    value: float
    changed: float

    def on(self, device: torch.device) -> tuple[BoundedModel, SamplingModel]:
        """The model, and what data follow where the parameter is changed."""
        values = torch.tensor([[self.value], [self.changed]], dtype=torch.float64, device=device)
        return tuple(as_model(self.make(value)) for value in values)  # type: ignore


@dataclass(frozen=True)
class Visits:
    """Two columns with bounds of their own: wait > 0, share in (0, 1).

    share is uniform, wait given share exponential with mean slow / (1 + share).
    """

    slow: float = 1.0

    def score(self, x: Points) -> Points:
        wait, share = x.unbind(-1)
        return torch.stack([-(1 + share) / self.slow, 1 / (1 + share) - wait / self.slow], -1)

    def sample(self, n: int, seed: int) -> Tensor:
        u = 1 - Source(seed, "visits").uniforms(n, 2, dtype=torch.float64)
        wait = -u[:, 0].log() * self.slow / (1 + u[:, 1])
        return torch.stack([wait, u[:, 1]], -1)


def _visits(slow: Tensor) -> BoundedModel:
    law = Visits(float(slow))
    return BoundedModel(PairModel(law.score, law.sample, dim=2), [(0, None), (0, 1)])


def _uniform(cut: Tensor) -> Any:
    """Two columns, of which the first lacks a part at both ends."""
    whole = torch.zeros_like(cut)
    return Independent(Uniform(torch.cat([cut, whole]), 1 - torch.cat([cut, whole])), 1)


def _gamma(shape: Tensor) -> Gamma:
    return Gamma(shape, 1.0)


def _dirichlet(first: Tensor) -> Dirichlet:
    return Dirichlet(torch.cat([first, first.new_tensor([3.0, 4.0, 5.0])]))


def _above_zero(sd: Tensor) -> Any:
    return stats.truncnorm(-0.5 / float(sd), float("inf"), loc=0.5, scale=float(sd))


def _within(sd: Tensor) -> Any:
    return stats.truncnorm(-0.2 / float(sd), 0.8 / float(sd), loc=0.2, scale=float(sd))


FAMILIES = (
    Family("exponential", "mean 1 to 1.25", Exponential, 1.0, 0.8),
    Family("uniform, 2 columns", "one column on 3/4 of its interval", _uniform, 0.0, 0.125),
    Family("beta", "first shape 2 to 2.5", lambda shape: Beta(shape, 3.0), 2.0, 2.5),
    Family("gamma, shape 0.5", "shape to 0.625", _gamma, 0.5, 0.625),
    Family("half-normal", "scale 1 to 1.25", HalfNormal, 1.0, 1.25),
    Family("Dirichlet, 4 parts", "first parameter 2 to 2.5", _dirichlet, 2.0, 2.5),
    Family("normal above 0", "scale 1 to 1.25", _above_zero, 1.0, 1.25),
    Family("normal in (0, 1)", "scale 0.3 to 0.375", _within, 0.3, 0.375),
    Family("bounds= of a pair, 2 columns", "mean of one column by 25 %", _visits, 1.0, 1.25),
)
TURNED = (  # changes the other way, of power alone
    Family("gamma, shape 0.5, less", "shape to 0.375", _gamma, 0.5, 0.375),
    Family("normal in (0, 1), less", "scale 0.3 to 0.225", _within, 0.3, 0.225),
)
_NAMED = {family.name: family for family in (*FAMILIES, *TURNED)}
_MANY = ("exponential", "Dirichlet, 4 parts")  # with 2,000 runs
_WITHOUT_DRAWS = ("exponential", "bounds= of a pair, 2 columns")
_CHANGED, _BY_SCORES = "changed", "scores alone"  # kind of data, method
_POOL = 400  # null sets of each part of the tests
DEMANDED = 0.8  # power at a change of 25 %, n = 300


@dataclass(frozen=True, kw_only=True)
class BoundedSupports(Plan):
    """Families by name: tests of their own draws, and of draws with a changed parameter.

    Args:
        runs: of one part of the tests.
        parts: of the families with many tests of own draws.
    """

    families: tuple[str, ...] = tuple(_NAMED)
    sizes: tuple[int, ...] = (100, 300)
    power_at: int = 300
    runs: int = 400
    parts: int = 5

    def cells(self) -> Iterator[Cell]:
        for name in self.families:
            sizes = () if _NAMED[name] in TURNED else self.sizes
            for method in ("default", _BY_SCORES) if name in _WITHOUT_DRAWS else ("default",):
                for kind, n in [*(("own", n) for n in sizes), (_CHANGED, self.power_at)]:
                    many = name in _MANY and method == "default" and kind == "own"
                    for k in range(self.parts if many else 1):
                        yield Cell(
                            problem=name, method=method, kind=kind, n=n, runs=self.runs, part=k, gpu=True
                        )


@counted
def count(cell: Cell) -> Row:
    device = torch.device(cell.device)
    draws, changed = cell.method != _BY_SCORES, cell.kind == _CHANGED
    model, other = _NAMED[cell.problem].on(device)
    seed = derive(cell.seed, "bounded", cell.problem, cell.n, cell.part, int(changed), int(draws))
    x = (other if changed else model).sample(cell.runs * cell.n, seed=derive(seed, "data"))
    x = x.view(cell.runs, cell.n, -1)
    tested: Model = model if draws else BoundedModel(PairModel(model.score), model.coordinates)
    test = Combined(null_seed=seed, null_pool=_POOL if draws else None, cache=False)
    test = tiny_default(seed, critics=draws) if cell.tiny else test
    rejections = {"combined": trials_of(tested, x, test, seed=seed, device=device).rate().rejections}
    if not changed and draws and not cell.part:
        raw = trials_of(PairModel(model.score), x, Ksd(draws=199), seed=seed, device=device)
        rejections["control"] = raw.rate().rejections
    return {
        "family": cell.problem,
        "n": cell.n,
        "changed": changed,
        "draws": draws,
        "tests": cell.runs,
        "null_sets": _POOL if draws else 0,
        "rejections": rejections,
    }


def bounded_table(record: Record) -> str:
    level, power = [], []
    rows = [
        row | {"rates": {name: Rate(count, row["tests"]) for name, count in row["rejections"].items()}}
        for row in record.results["rows"]
    ]
    for row in joined(rows, by=("family", "n", "changed", "draws")):
        rate, how = row["rates"]["combined"], "default" if row["draws"] else _BY_SCORES
        sizes = how, str(row["n"]), str(row["tests"])
        if row["changed"]:
            low, high = rate.interval()
            reached = show.bold("no", True) if rate.value < record.results["demanded"] else "yes"
            numbers = f"{rate.value:.3f}", f"{low:.3f} to {high:.3f}", reached if row["draws"] else "–"
            power.append([row["family"], record.results["changes"][row["family"]], *sizes, *numbers])
        else:
            control = f"{row['rates']['control'].value:.3f}" if "control" in row["rates"] else "–"
            level.append([row["family"], *sizes, *show.in_band(rate, row["null_sets"]), control])
    control = "control: KSD of raw columns"
    return show.document(
        record,
        show.markdown(["model", "how", "n", "tests", "rejected", "99.9 % band", "inside", control], level),
        "Share of tests of the model's own draws that reject at level 0.05; the control tests the same draws "
        "by scores alone without the change of variables.",
        show.markdown(["model", "change", "how", "n", "tests", "power", "95 % interval", "reached"], power),
        f"Power where one parameter is changed by 25 %; demanded: {record.results['demanded']}. "
        f"{show.devices(record)}",
    )


STUDY = Study(
    name="bounded",
    title="Models on half-lines, in boxes and on simplexes: level and power",
    takes="a few minutes on an H200, about 2 hours on one core",
    full=BoundedSupports(),
    tiny=BoundedSupports(
        families=("exponential", "Dirichlet, 4 parts"), sizes=(20,), power_at=20, runs=6, parts=2, tiny=True
    ),
    run=rates(
        count,
        more=lambda config: {
            "changes": {name: _NAMED[name].change for name in config.families},
            "demanded": DEMANDED,
        },
    ),
    table=bounded_table,
)
