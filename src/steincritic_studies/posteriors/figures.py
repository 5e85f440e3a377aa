"""Table and figures of the posterior checks, drawn from their record."""

from pathlib import Path
from typing import Any

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.drawing import PALE, interval, name_lines
from steincritic_studies.record import Record
from steincritic_studies.tables import document, markdown

_WORDS = {"combined": "combined", "ksdagg": "aggregated KSD, wild bootstrap"}


def posterior_table(record: Record) -> str:
    rows = [
        [row["posterior"], row["source"], _WORDS[row["method"]], str(row["n"]), _rate(row)]
        for row in record.results["rows"]
    ]
    parts = [markdown(["posterior", "draws", "test", "n", "rejected, 95 % interval"], rows)]
    if any(record.results["mixing"].values()):
        parts.append("What four chains are worth, medians:\n\n" + _mixing(record))
    return document(
        record,
        *parts,
        "Level 0.05. Rates above it are false alarms for exact draws and for NUTS, and what is wanted for "
        "variational inference. n is the median number of draws tested.",
        *(_said(name, found) for name, found in record.results["diagnoses"].items()),
    )


def draw_posteriors(record: Record, folder: Path) -> list[Path]:
    with styled():
        return [_rates(record, folder), _pictures(record, folder)]


def _rate(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    return f"{row['rate']:.2f} [{low:.2f}, {high:.2f}], {row['trials']} runs"


def _mixing(record: Record) -> str:
    rows = [
        [name, source, f"{found['effective']:.0f}", f"{found['rhat']:.3f}", f"{found['kept']:g}"]
        for name, sources in record.results["mixing"].items()
        for source, found in sources.items()
    ]
    return markdown(["posterior", "draws", "effective draws, slowest coordinate", "R-hat", "tested"], rows)


def _said(name: str, found: dict[str, Any]) -> str:
    telling, runs = " and ".join(found["telling"]), found["runs"]
    lines = "\n".join(f"> {line}  " for line in found["summary"])
    return (
        f"{name}, {found['source']}, {found['n']} draws, {runs} repetitions: rejected {found['rejected']} "
        f"times, {telling} named among the coordinates {found['named']} times, in the first rule "
        f"{found['in_first_rule']} times. The first of them:\n\n{lines}"
    )


def _rates(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["posterior"] for row in record.results["rows"]))
    groups = [[row for row in record.results["rows"] if row["posterior"] == name] for name in names]
    height = 0.24 * max(map(len, groups)) + 1.1
    figure, axes = pyplot.subplots(1, len(names), figsize=(10.5, height), layout="constrained")
    for ax, name, rows in zip(axes, names, groups, strict=True):
        for k, row in enumerate(rows):
            interval(ax, k, row["rate"], row["interval"], INK if row["method"] == "combined" else PALE)
        ax.axvline(0.05, color=GRAY, linewidth=0.8)
        name_lines(ax, [f"{row['source']}, n = {row['n']}" for row in rows])
        ax.set(title=name, xlim=(-0.02, 1.02), xlabel="rejected at level 0.05 (blue: aggregated KSD)")
    return save(figure, folder / "rates.png")


def _pictures(record: Record, folder: Path) -> Path:
    """For each posterior: draws in the telling plane, and the coordinates' share of the evidence."""
    from matplotlib import pyplot

    found = record.results["diagnoses"]
    figure, axes = pyplot.subplots(len(found), 2, figsize=(8.4, 3.2 * len(found)), layout="constrained")
    for (plane, bars), (name, one) in zip(axes, found.items(), strict=True):
        own, drawn = np.array(one["posterior_points"]), np.array(one["draws_points"])
        plane.plot(*own.T, ".", color=GRAY, markersize=2.5, label="posterior")
        plane.plot(*drawn.T, ".", color=ACCENT, markersize=2.5, label=one["source"])
        plane.set(xlabel=one["pair"][0], ylabel=one["pair"][1], title=name)
        plane.legend(markerscale=3, loc="best")
        coordinates = one["coordinates"]
        colors = [ACCENT if c["pvalue"] <= 0.05 else GRAY for c in coordinates]
        bars.barh(range(len(coordinates)), [c["z"] for c in coordinates], color=colors)
        name_lines(bars, [c["name"] for c in coordinates])
        bars.set(xlabel="z of the coordinate's share of the witness (red: adjusted p ≤ 0.05)")
    return save(figure, folder / "draws.png")
