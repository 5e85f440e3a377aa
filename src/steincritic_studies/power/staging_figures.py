"""The power of the split test by staging: a table and a figure, one panel a problem."""

from pathlib import Path
from typing import Any

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown

_SUGGESTED = "auto"


def staging_table(record: Record) -> str:
    cells = _cells(record)
    names = list(next(iter(cells.values())))
    best = {cell: _best_by_hand(rows) for cell, rows in cells.items()}
    rows = [
        [name, *(_shown(found.get(name), bold=name == best[cell]) for cell, found in cells.items())]
        for name in names
    ]
    gaps = ["auto less the best by hand", *(_gap(cells[cell], best[cell]) for cell in cells)]
    trials = " or ".join(str(n) for n in sorted({row["trials"] for row in record.results["rows"]}))
    return document(
        record,
        markdown(["staging of λ", *cells], [*rows, gaps]),
        f"Rejection rate of the split test at level 0.05 on {trials} datasets, the same for every staging, "
        "with its 95 % interval; the best choice by hand is bold. The last row has the standard error of the "
        f"difference of two independent rates. {devices(record)}",
    )


def draw_stagings(record: Record, folder: Path) -> list[Path]:
    from matplotlib import pyplot

    cells = _cells(record)
    names = list(next(iter(cells.values())))
    with styled():
        figure, axes = pyplot.subplots(
            1,
            len(cells),
            figsize=(1.8 * len(cells) + 2.0, 0.24 * len(names) + 1.1),
            sharey=True,
            squeeze=False,
        )
        for ax, (title, rows) in zip(axes[0], cells.items(), strict=True):
            for k, name in enumerate(names):
                if name not in rows:
                    continue
                color = ACCENT if name == _SUGGESTED else INK
                ax.plot(rows[name]["interval"], [k, k], color=color, linewidth=1.4)
                ax.plot(rows[name]["power"], k, "o", color=color, markersize=3.5)
            ax.axvline(0.05, color=GRAY, linewidth=0.7, linestyle="--")
            ax.set(title=title, xlim=(-0.03, 1.03))
        axes[0, 0].set_yticks(range(len(names)), names)
        axes[0, 0].invert_yaxis()
        figure.supxlabel("power at level 0.05", fontsize=9)
        return [save(figure, folder / "power.png")]


def _cells(record: Record) -> dict[str, dict[str, dict[str, Any]]]:
    """Rows by problem and by staging, in the order of the record."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for row in record.results["rows"]:
        sigma = f", σ = {row['sigma']:g}" if row["sigma"] else ""
        cell = f"{row['problem']}{sigma}, n = {row['n']}"
        cells.setdefault(cell, {})[row["method"].removeprefix("split with ")] = row
    return cells


def _best_by_hand(rows: dict[str, dict[str, Any]]) -> str:
    return max((name for name in rows if name != _SUGGESTED), key=lambda name: float(rows[name]["power"]))


def _shown(row: dict[str, Any] | None, *, bold: bool) -> str:
    if row is None:
        return "–"
    value = f"**{row['power']:.3f}**" if bold else f"{row['power']:.3f}"
    return f"{value} [{row['interval'][0]:.2f}, {row['interval'][1]:.2f}]"


def _gap(rows: dict[str, dict[str, Any]], best: str) -> str:
    a, b = rows[_SUGGESTED], rows[best]
    se = np.sqrt(sum(r["power"] * (1 - r["power"]) / r["trials"] for r in (a, b)))
    return f"{a['power'] - b['power']:+.3f} ± {se:.3f}"
