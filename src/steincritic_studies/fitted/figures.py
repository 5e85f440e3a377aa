"""Tables and figure of fitted models, from their record."""

from collections import defaultdict
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
Cell = tuple[str, int, int, str]


def rates(record: Record) -> dict[Cell, dict[str, Rate]]:
    """By cell and method, all parts together; those of lenses alone under their names."""
    found: dict[Cell, dict[str, Rate]] = defaultdict(dict)
    for row in record.results["rows"]:
        cell, method = (row["family"], row["d"], row["n"], row["truth"]), row["method"]
        counts = {method: row["rejections"]}
        if method == "refitted":
            counts |= row["by_lens"]
        for name, count in counts.items():
            found[cell][name] = found[cell].get(name, Rate(0, 0)) + Rate(count, row["tests"])
    return dict(found)


def _within_band(rate: Rate) -> bool:
    """Where the rate of an exact test lies in 99.9 %."""
    half = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2) * (_LEVEL * (1 - _LEVEL) / rate.trials) ** 0.5
    return bool(abs(rate.value - _LEVEL) <= half)


def _told(rate: Rate | None, *, null: bool) -> str:
    if rate is None:
        return "–"
    if not null:
        low, high = rate.interval()
        return f"{rate.value:.3f} [{low:.3f}, {high:.3f}]"
    return f"{rate.value:.4f}" + ("" if _within_band(rate) else " *")


def fitted_table(record: Record) -> str:
    cells = rates(record)
    lenses = sorted({name for found in cells.values() for name in found} - set(_METHODS))
    parts = [
        ("Level", _METHODS, True),
        ("Level of each lens alone, refitted", tuple(lenses), True),
        ("Power", ("refitted", "composite KSD"), False),
    ]
    low, high = _WANTED
    told: list[str] = []
    for title, methods, null in parts:
        chosen = {cell: found for cell, found in cells.items() if (cell[3] == "null") == null}
        if not chosen:
            continue
        header = ["fitted", "d", "n", *([] if null else ["data"]), "tests", *methods]
        if null and methods == _METHODS:
            header.append(f"{low} to {high}")
        told += [f"## {title}", markdown(header, [_row(c, f, methods, null=null) for c, f in chosen.items()])]
    return document(
        record,
        *told,
        "Share of tests that reject at level 0.05. Each fits the family to its data. Refitted: quick lenses, "
        "99 null sets and 100 reference sets, each fitted anew. Default: `gof_test(sc.Fitted(fit, x), x)`. "
        " Composite KSD: one RBF kernel at the median distance, parametric bootstrap with 99 null sets. "
        "Naive: the same lenses with the fitted model taken for fixed, in a quarter of the tests. "
        "A star marks a level outside of the 99.9 % band around 0.05. Brackets: 95 % intervals. "
        f"{devices(record)}",
    )


def _row(cell: Cell, found: dict[str, Rate], methods: tuple[str, ...], *, null: bool) -> list[str]:
    family, d, n, truth = cell
    row = [family, str(d), str(n), *([] if null else [truth]), str(found["refitted"].trials)]
    row += [_told(found.get(method), null=null) for method in methods]
    if null and methods == _METHODS:
        low, high = _WANTED
        both = [found[name].value for name in ("refitted", "default") if name in found]
        row.append("yes" if all(low <= value <= high for value in both) else "no")
    return row


def draw_fitted(record: Record, folder: Path) -> list[Path]:
    """Levels on the left, power on the right."""
    from matplotlib import lines, pyplot

    cells = rates(record)
    sides: list[dict[Cell, dict[str, Rate]]] = [
        {cell: found for cell, found in cells.items() if (cell[3] == "null") == null}
        for null in (True, False)
    ]
    with styled():
        rows = max(map(len, sides))
        figure, axes = pyplot.subplots(1, 2, figsize=(11, 0.28 * rows + 1.4), layout="constrained")
        for ax, side, title in zip(axes, sides, ("level, at 0.05", "power"), strict=True):
            _draw_side(ax, side)
            ax.set(xlabel=title, xlim=(0, None))
        axes[0].axvspan(*_WANTED, color="#9aa5b1", alpha=0.3)
        axes[0].legend(
            handles=[lines.Line2D([], [], color=c, marker="o", label=m) for m, c in _COLORS.items()],
            fontsize=7,
            loc="lower right",
        )
        return [save(figure, folder / "rates.png")]


def _draw_side(ax: Any, cells: dict[Cell, dict[str, Rate]]) -> None:
    for line, found in enumerate(cells.values()):
        for method, color in _COLORS.items():
            if method in found:
                interval(ax, line, found[method].value, found[method].interval(), color)
    truths = ["" if truth == "null" else f", {truth}" for *_, truth in cells]
    names = [f"{f}, d = {d}, n = {n}{t}" for (f, d, n, _), t in zip(cells, truths, strict=True)]
    name_lines(ax, names)
