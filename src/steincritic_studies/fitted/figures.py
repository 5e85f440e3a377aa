"""Tables and figure of fitted models, from their record."""

from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

from steincritic.gof.power import Rate
from steincritic.report.style import ACCENT, GRAY, save, styled
from steincritic_studies.drawing import METHOD_COLORS, interval, name_lines
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown

_LEVEL, _CONFIDENCE = 0.05, 0.999
_WANTED = (0.03, 0.07)
_METHODS = ("refitted", "default", "composite KSD", "naive")
_COLORS = {
    "refitted": ACCENT,
    "default": "#8e5ea2",
    "composite KSD": METHOD_COLORS["KSD, median"],
    "naive": GRAY,
}
_ABOUT = ["fitted", "d", "n", "tests"]


@dataclass(frozen=True)
class Cell:
    """What was tested, and how often each method, or each lens alone, rejects."""

    family: str
    d: int
    n: int
    truth: str
    rates: dict[str, Rate]
    pool: int  # null sets that its refitted tests share

    @property
    def null(self) -> bool:
        return self.truth == "null"

    def told(self, method: str) -> str:
        rate = self.rates.get(method)
        if rate is None:
            return "–"
        if self.null:
            pool = 0 if method in _METHODS[1:] else self.pool
            return f"{rate.value:.4f}" + ("" if within_band(rate, pool) else " *")
        low, high = rate.interval()
        return f"{rate.value:.3f} [{low:.3f}, {high:.3f}]"

    @property
    def wanted(self) -> bool:
        low, high = _WANTED
        return all(low <= self.rates[m].value <= high for m in _METHODS[:2] if m in self.rates)


def cells_of(record: Record) -> list[Cell]:
    """All parts of a cell together."""
    found: dict[tuple[Any, ...], Cell] = {}
    for row in record.results["rows"]:
        about = (row["family"], row["d"], row["n"], row["truth"])
        cell = found.setdefault(about, Cell(*about, {}, row["null_pool"]))
        counts = {row["method"]: row["rejections"]}
        counts |= row["by_lens"] if row["method"] == _METHODS[0] else {}
        for name, count in counts.items():
            cell.rates[name] = cell.rates.get(name, Rate(0, 0)) + Rate(count, row["tests"])
    return list(found.values())


def within_band(rate: Rate, pool: int) -> bool:
    """Where the rate of an exact test lies in 99.9 %; tests may share null sets."""
    z = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2)
    variance = _LEVEL * (1 - _LEVEL) * (1 / rate.trials + (1 / pool if pool else 0))
    return bool(abs(rate.value - _LEVEL) <= z * variance**0.5)


def fitted_table(record: Record) -> str:
    cells = cells_of(record)
    null, other = [c for c in cells if c.null], [c for c in cells if not c.null]
    lenses = sorted({name for cell in cells for name in cell.rates} - set(_METHODS))
    low, high = _WANTED
    level = [[*_about(c), *map(c.told, _METHODS), "yes" if c.wanted else "no"] for c in null]
    alone = [[*_about(c), *map(c.told, lenses)] for c in null]
    power = [[*_about(c), c.truth, *map(c.told, (_METHODS[0], "composite KSD"))] for c in other]
    told = [
        "## Level",
        markdown([*_ABOUT, *_METHODS, f"{low} to {high}"], level),
        "## Level of each lens alone, refitted",
        markdown([*_ABOUT, *lenses], alone),
        "## Power",
        markdown([*_ABOUT, "data", _METHODS[0], "composite KSD"], power),
    ]
    return document(
        record,
        *told,
        "Share of tests that reject at level 0.05. Each test fits the family to its data. Refitted: quick "
        "lenses, and the family fitted anew to each null set: 999 of them for normal laws, chosen from 4,000 "
        "that were drawn from another member of the family; 99 of each test's own for mixtures. Default: "
        "`gof_test(sc.Fitted(fit, x), x)`. Composite KSD: one RBF kernel at the median distance, parametric "
        "bootstrap with 99 null sets. Naive: quick lenses with the fitted model taken for fixed. Tests are "
        "those of the first method; default has 2,000, KSD at most 500, naive 200 or 50. A star marks "
        "a level outside of the 99.9 % band around 0.05. Brackets: 95 % intervals. "
        f"{devices(record)}",
    )


def _about(cell: Cell) -> list[str]:
    return [cell.family, str(cell.d), str(cell.n), str(cell.rates[_METHODS[0]].trials)]


def draw_fitted(record: Record, folder: Path) -> list[Path]:
    """Levels on the left, power on the right."""
    from matplotlib import lines, pyplot

    cells = cells_of(record)
    sides = [[cell for cell in cells if cell.null == null] for null in (True, False)]
    with styled():
        rows = max(map(len, sides))
        figure, axes = pyplot.subplots(1, 2, figsize=(11, 0.28 * rows + 1.4), layout="constrained")
        for ax, side, title in zip(axes, sides, ("level, at 0.05", "power"), strict=True):
            _draw_side(ax, side)
            ax.set(xlabel=title, xlim=(0, None))
        axes[0].axvspan(*_WANTED, color="#9aa5b1", alpha=0.3)
        marks = [lines.Line2D([], [], color=c, marker="o", label=m) for m, c in _COLORS.items()]
        figure.legend(handles=marks, loc="outside upper center", ncols=len(marks))
        return [save(figure, folder / "rates.png")]


def _draw_side(ax: Any, cells: list[Cell]) -> None:
    for line, cell in enumerate(cells):
        for k, (method, color) in enumerate(_COLORS.items()):
            if method in cell.rates:
                at = line + 0.18 * (k - 1.5)  # one below the other
                interval(ax, at, cell.rates[method].value, cell.rates[method].interval(), color)
    truths = ["" if cell.null else f", {cell.truth}" for cell in cells]
    name_lines(ax, [f"{c.family}, d = {c.d}, n = {c.n}{t}" for c, t in zip(cells, truths, strict=True)])
