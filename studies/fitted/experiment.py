"""Level and power of tests of fitted models, beside one that takes the fit for fixed, and beside [key2025].

What null sets each method has is said under the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from steincritic import Combined, Fitted, GofResult, GofTest, Ksd, Rate, ScoredPoints
from steincritic.data import score_points
from steincritic.models import FitNormal, GaussianMixture
from steincritic.report.style import ACCENT, GRAY
from steincritic.rng import Source, derive
from steincritic.shapes import Points
from studies import show
from studies.cells import Cell, Plan, Row, counted, joined, rates
from studies.fitted.mixture import FitMixture
from studies.laws import Student, normal
from studies.record import Record
from studies.show import LEVEL
from studies.study import Study

FAMILIES: dict[str, Callable[[Any], Any]] = {
    "normal, mean": FitNormal("identity"),
    "normal, mean and covariance": FitNormal("full"),
    "2 components": FitMixture(2),
    "5 components": FitMixture(5),
}
_POOL = 4000  # null sets that tests of a normal law choose theirs from
_REFITTED, _KSD = "refitted", "composite KSD"
_COLORS = {_REFITTED: ACCENT, "default": "#8e5ea2", _KSD: show.PALE, "naive": GRAY}
_WANTED = (0.03, 0.07)


@dataclass(frozen=True, kw_only=True)
class FittedCell(Cell):
    """Tests of one method; the problem is the family, the kind what data are drawn from."""

    d: int


@dataclass(frozen=True, kw_only=True)
class FittedModels(Plan):
    """Tests of each family and method, and how many of them make a job, with null sets of their own."""

    tests: Sequence[FittedCell]
    part: int = 50

    def cells(self) -> Iterator[FittedCell]:
        for cell in self.tests:
            size = cell.runs if _is_shared(cell.problem, cell.method) else min(cell.runs, self.part)
            for part in range(cell.runs // size):
                yield replace(cell, runs=size, part=part)


def _tests(family: str, d: int, n: int, truth: str, runs: Mapping[str, int]) -> list[FittedCell]:
    return [
        FittedCell(problem=family, kind=truth, d=d, n=n, method=method, runs=count)
        for method, count in runs.items()
    ]


def _all_tests() -> Iterator[FittedCell]:
    both: list[tuple[str, int, int, tuple[str, ...]]] = []
    both += [("normal, mean", d, 50, ("t(3)", "t(5)")) for d in (2, 5, 10, 20, 50)]
    both += [("normal, mean and covariance", d, 50, ("t(3)", "t(5)")) for d in (2, 5, 10, 20)]
    both += [("normal, mean and covariance", 10, 200, ("t(5)",))]
    both += [("normal, mean and covariance", 1, n, ("t(2)",)) for n in (20, 50)]
    for family, d, n, truths in both:
        power = {_REFITTED: 2000, _KSD: 500}
        level = power | {"naive": 200}
        level |= {"default": 2000} if (d, n) == (5, 50) and family.endswith("covariance") else {}
        yield from _tests(family, d, n, "null", level)
        for truth in truths:
            yield from _tests(family, d, n, truth, power)
    for family, n, runs, found in (
        ("2 components", 50, 2000, 200),
        ("2 components", 200, 250, 100),
        ("5 components", 200, 200, 50),
    ):
        level = {_REFITTED: runs, _KSD: min(runs, 500), "naive": 200 if n == 50 else 50}
        level |= {"default": 2000} if n == 50 else {}
        yield from _tests(family, 2, n, "null", level)
        for truth in ("skewed", "missing"):
            yield from _tests(family, 2, n, truth, {_REFITTED: found, _KSD: found})


def _is_shared(family: str, method: str) -> bool:
    return method == _REFITTED and family.startswith("normal")


@counted
def count(cell: FittedCell) -> Row:
    seed = derive(cell.seed, cell.problem, cell.kind, cell.d, cell.n, cell.part)
    shared = _is_shared(cell.problem, cell.method)
    results = _together(cell, seed) if shared else [_alone(cell, derive(seed, t)) for t in range(cell.runs)]
    lenses = {reading.lens for result in results for reading in result.readings}
    return {
        "family": cell.problem,
        "truth": cell.kind,
        "d": cell.d,
        "n": cell.n,
        "method": cell.method,
        "tests": cell.runs,
        "null_pool": _POOL if shared else 0,
        "rejections": sum(result.rejected for result in results),
        "by_lens": {
            lens: sum(r.pvalue <= LEVEL for result in results for r in result.readings if r.lens == lens)
            for lens in sorted(lenses)
        },
    }


def _alone(cell: FittedCell, seed: int) -> GofResult:
    """A test with null sets of its own, where usually tests of one shape have the same."""
    x, fit, few = _data(cell, seed), FAMILIES[cell.problem], 19 if cell.tiny else 99
    model = fit(x) if cell.method == "naive" else Fitted(fit, x)
    test: GofTest = Combined(critics=None, null_seed=derive(seed, "null"), cache=False)
    if cell.method == _KSD:
        test = Ksd(threshold="fresh", draws=few)
    elif cell.method != "default" or cell.tiny:
        test = replace(test, draws=few, reference=few + 1, stop_early=False)  # type: ignore[type-var]
    (result,) = test.run(model, score_points(model, x).alone(), level=LEVEL, seeds=[derive(seed, "test")])
    return result


def _data(cell: FittedCell, seed: int) -> Points:
    truth = truth_of(cell.problem, cell.kind, cell.d)
    x: Points = truth.sample(cell.n, seed=derive(seed, "data"))
    return x.double()


class _Shared(Fitted):
    """Its null sets are those of any data."""

    def anew(self, datasets: ScoredPoints) -> tuple[Fitted, ScoredPoints]:
        return self, datasets


def _together(cell: FittedCell, seed: int) -> list[GofResult]:
    """Tests of many datasets, with null sets of another member of the family: shifted, and with a covariance
    far from theirs where it is fitted."""
    x = torch.stack([_data(cell, derive(seed, t)) for t in range(cell.runs)])
    other = Source(seed, "another member").normals(cell.n, cell.d, dtype=torch.float64)
    fit = FAMILIES[cell.problem]
    if getattr(fit, "whole", False):
        other = other.cumsum(-1) * torch.linspace(1, 3, cell.d, dtype=torch.float64)
    model = _Shared(fit, other + 7)
    test = Combined(critics=None, stop_early=False, null_seed=seed, cache=False)
    test = replace(test, draws=19, reference=20) if cell.tiny else replace(test, null_pool=_POOL)
    seeds = [derive(seed, "test", t) for t in range(cell.runs)]
    return test.run(model, model.refit(x), level=LEVEL, seeds=seeds)


@dataclass(frozen=True)
class Skewed:
    """A mixture whose first component has gamma distributed columns of the same mean and spread."""

    mixture: GaussianMixture

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, "skewed")
        component = source.choices(self.mixture.weights, n)
        z = source.normals(n, self.mixture.dim, dtype=torch.float64)
        u = 1 - source.uniforms(2, n, self.mixture.dim, dtype=torch.float64)
        gamma = (-u.log()).sum(0)
        z = torch.where(component[:, None] == 0, (gamma - 2) / 2**0.5, z)
        factors = torch.linalg.cholesky(self.mixture.covariances)[component]
        x: Points = self.mixture.means[component] + (factors @ z[..., None])[..., 0]
        return x


def truth_of(family: str, truth: str, d: int) -> Any:
    """What the data are drawn from."""
    if truth.startswith("t("):
        return Student(d, int(truth[2:-1]), dtype=torch.float64)
    if family.startswith("normal"):
        return normal(d)
    mixture = _circle(int(family[0]))
    return {"null": mixture, "skewed": Skewed(mixture), "missing": _with_another(mixture)}[truth]


def _circle(k: int) -> GaussianMixture:
    """Components on a circle, narrow along different directions."""
    angle = 2 * torch.pi * torch.arange(k, dtype=torch.float64) / k
    means = (2.5 if k == 2 else 5.0) * torch.stack([angle.cos(), angle.sin()], 1)
    along = torch.stack([(angle / 2).cos(), (angle / 2).sin()], 1)
    covariances = 0.5 * torch.eye(2, dtype=torch.float64) + 0.8 * along[:, :, None] * along[:, None]
    return GaussianMixture(means, covariances)


def _with_another(mixture: GaussianMixture) -> GaussianMixture:
    """A further component, between the others or beside them, with a fifth of the weight."""
    place = torch.tensor([[0.0, 4.0 if len(mixture.means) == 2 else 0.0]], dtype=torch.float64)
    one = 0.5 * torch.eye(2, dtype=torch.float64)[None]
    weights = torch.cat([0.8 * mixture.weights, torch.tensor([0.2], dtype=torch.float64)])
    return GaussianMixture(torch.cat([mixture.means, place]), torch.cat([mixture.covariances, one]), weights)


def rates_of(record: Record) -> list[Row]:
    """One row a problem: rates by method, and by lens where the family is refitted; all parts together."""
    rows = []
    for row in record.results["rows"]:
        lenses = row["by_lens"] if row["method"] == _REFITTED else {}
        counts = {row["method"]: row["rejections"]} | lenses
        rates = {name: Rate(count, row["tests"]) for name, count in counts.items()}
        about = {name: row[name] for name in ("family", "d", "n", "truth")}
        rows.append(about | {"rates": rates})
    return joined(rows, by=("family", "d", "n", "truth"))


def fitted_table(record: Record) -> str:
    rows = rates_of(record)
    lenses = sorted({name for row in rows for name in row["rates"]} - set(_COLORS))
    level, by_lens, power = [], [], []

    def starred(row: Row, method: str) -> str:
        """A star where the rate lies outside the band."""
        if method not in row["rates"]:
            return "–"
        from_pool = row["family"].startswith("normal") and method in (_REFITTED, *lenses)
        value, _, inside = show.in_band(row["rates"][method], _POOL if from_pool else 0)
        return value if inside == "yes" else f"{value} *"

    for row in rows:
        rates = row["rates"]
        about = [row["family"], str(row["d"]), str(row["n"]), str(rates[_REFITTED].trials)]
        if row["truth"] == "null":
            values = [rates[method].value for method in (_REFITTED, "default") if method in rates]
            wanted = all(_WANTED[0] <= value <= _WANTED[1] for value in values)
            level.append([*about, *(starred(row, m) for m in _COLORS), "yes" if wanted else "no"])
            by_lens.append([*about, *(starred(row, lens) for lens in lenses)])
        else:
            shown = [show.shown(rates[method], "{:.3f} [{:.3f}, {:.3f}]") for method in (_REFITTED, _KSD)]
            power.append([*about, row["truth"], *shown])
    head = ["fitted", "d", "n", "tests"]
    return show.document(
        record,
        "## Level",
        show.markdown([*head, *_COLORS, "{} to {}".format(*_WANTED)], level),
        "## Level of each lens alone, refitted",
        show.markdown([*head, *lenses], by_lens),
        "## Power",
        show.markdown([*head, "data", _REFITTED, _KSD], power),
        "Share of tests that reject at level 0.05. Each test fits the family to its data. Refitted: quick "
        "lenses, and the family fitted anew to each null set: 999 of them for normal laws, chosen from 4,000 "
        "that were drawn from another member of the family; 99 of each test's own for mixtures. Default: "
        "`gof_test(sc.Fitted(fit, x), x)`. Composite KSD: one RBF kernel at the median distance, parametric "
        "bootstrap with 99 null sets. Naive: quick lenses with the fitted model taken for fixed. Tests are "
        "those of the first method; default has 2,000, KSD at most 500, naive 200 or 50. A star marks "
        "a level outside of the 99.9 % band around 0.05. Brackets: 95 % intervals. "
        f"{show.devices(record)}",
    )


def draw_fitted(record: Record, folder: Path) -> list[Path]:
    """Levels on the left, power on the right."""
    from matplotlib import lines

    rows, path = rates_of(record), folder / "rates.png"
    sides = [[row for row in rows if (row["truth"] == "null") == null] for null in (True, False)]
    height = 0.28 * max(map(len, sides)) + 1.4
    with show.picture(path, 11, height, ncols=2, layout="constrained") as axes:
        for ax, side, title in zip(axes, sides, ("level, at 0.05", "power"), strict=True):
            for line, row in enumerate(side):
                for k, (method, color) in enumerate(_COLORS.items()):
                    if method in row["rates"]:  # one below the other
                        rate = row["rates"][method]
                        show.interval(ax, line + 0.18 * (k - 1.5), rate.value, rate.interval(), color)
            truths = ["" if row["truth"] == "null" else f", {row['truth']}" for row in side]
            names = [f"{r['family']}, d = {r['d']}, n = {r['n']}" for r in side]
            show.name_lines(ax, [name + truth for name, truth in zip(names, truths, strict=True)])
            ax.set(xlabel=title, xlim=(0, None))
        axes[0].axvspan(*_WANTED, color="#9aa5b1", alpha=0.3)
        marks = [lines.Line2D([], [], color=c, marker="o", label=m) for m, c in _COLORS.items()]
        axes[0].figure.legend(handles=marks, loc="outside upper center", ncols=len(marks))
    return [path]


_FEW = {_REFITTED: 4, "default": 2, _KSD: 2, "naive": 2}
STUDY = Study(
    name="fitted",
    title="Tests of models that were fitted to the tested data",
    takes="90 minutes on one core",
    full=FittedModels(tests=tuple(_all_tests())),
    tiny=FittedModels(
        tests=(
            *_tests("normal, mean and covariance", 2, 30, "null", _FEW),
            *_tests("normal, mean", 2, 30, "t(3)", {_REFITTED: 4, _KSD: 2}),
            *_tests("2 components", 2, 40, "null", {_REFITTED: 2, "naive": 2}),
        ),
        part=2,
        tiny=True,
    ),
    run=rates(count),
    table=fitted_table,
    figures=draw_fitted,
)
