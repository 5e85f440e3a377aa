"""Table and figure of the calibration, drawn from its record."""

from pathlib import Path
from typing import Any

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.drawing import PALE, interval, name_lines
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown, rate_bound


def calibration_table(record: Record) -> str:
    levels = record.results["levels"]
    rows = [
        [
            f"{row['problem']}, n = {row['n']}",
            row["method"],
            "control" if row["control"] else "exact" if row["exact"] else "approximate",
            f"{row['runs']:,}",
            *(_rate_and_bound(row, rate) for rate in row["rates"]),
            f"{row['uniformity']:.3g}",
        ]
        for row in record.results["rows"]
    ]
    header = [
        "problem",
        "method",
        "level is",
        "runs",
        *(f"rate at {level:g} (bound)" for level in levels),
        "uniformity p",
    ]
    return document(
        record,
        markdown(header, rows),
        "Rejections among null datasets, critics trained anew in each; in brackets the one-sided 99.9 % "
        "bound on the rate of an exact test. The tests of a combined or cross-fit row choose their null runs "
        "from ten pools of as many, so the pools' own error is in its bound. Rates above the bound are bold. "
        f"Uniformity is a Kolmogorov-Smirnov test of the p-values. {devices(record)}",
    )


def draw_calibration(record: Record, folder: Path) -> list[Path]:
    from matplotlib import pyplot

    rows = record.results["rows"]
    with styled():
        figure, ax = pyplot.subplots(figsize=(6.4, 0.22 * len(rows) + 1.2))
        for k, row in enumerate(rows):
            rate = next(r for r in row["rates"] if r["level"] == 0.05)
            color = ACCENT if row["control"] else INK if row["exact"] else PALE
            interval(ax, k, rate["rate"], rate["interval"], color)
        ax.axvline(0.05, color=GRAY, linewidth=0.8)
        fewest = min(row["runs"] for row in rows)
        ax.axvline(rate_bound(0.05, fewest), color=GRAY, linewidth=0.8, linestyle=":")
        name_lines(ax, [f"{row['problem']}: {row['method']}" for row in rows])
        ax.set(
            xlabel="rejection rate on null data at level 0.05 (black exact, blue approximate, red control)"
        )
        return [save(figure, folder / "calibration.png")]


def _rate_and_bound(row: dict[str, Any], rate: dict[str, Any]) -> str:
    bound = rate_bound(rate["level"], row["runs"], row.get("null_pool") or 0)
    value = f"{rate['rate']:.4f}"
    return f"{f'**{value}**' if rate['rate'] > bound else value} ({bound:.4f})"
