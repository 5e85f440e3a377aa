"""Tables and figures of the power curves, and of power by staging, drawn from their records."""

from pathlib import Path

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK
from studies import show
from studies.cells import Row
from studies.paper.power import CEILINGS
from studies.record import Record
from studies.show import LEVEL

MIDDLE = 0.02  # the perturbation of the RBM at which n varies
_POWER = "{:.3f} [{:.2f}, {:.2f}]"
_SUGGESTED = "auto"  # among the stagings; all others are chosen by hand
_COLUMNS = {"n": "n = {:g}", "sigma": "σ = {:g}", "method": "power at n = {:g}"}  # by what varies


def power_table(record: Record) -> str:
    """One row per method, one column per place on the axis; power with its 95 % interval."""
    results = record.results
    parts = []
    for axis, rows in _groups(record):
        field = "sigma" if axis == "sigma" else "n"
        places = sorted(show.unique(rows, field))
        title = _COLUMNS[axis].format
        parts.append(show.pivot(rows, {"method": "method"}, field, _power, columns=places, title=title))
    if published := results.get("published"):
        header = ["method", *(f"σ = {sigma}" for sigma in next(iter(published.values())))]
        body = [[name, *(f"{power:g}" for power in curve.values())] for name, curve in published.items()]
        parts.append("Published:\n\n" + show.markdown(header, body))
    if results.get("timings"):
        times = {part: f"{{{part}:.4f}}" for part in ("training", "statistic", "bootstrap")}
        table = show.listing(results["timings"], {"n": "{n}", "method": "{method}", **times})
        parts.append("Seconds of one test:\n\n" + table)
    trials = sorted(show.unique(results["rows"], "trials"))
    datasets = f"{trials[0]} to {trials[-1]}" if len(trials) > 1 else f"{trials[0]}"
    return show.document(
        record,
        *parts,
        f"Rejection rate at level 0.05 with its Wilson 95 % interval; {datasets} datasets per cell, "
        "the same for all methods. Combined is the default test; every test has one configuration.",
    )


def _power(row: Row) -> str:
    return show.shown(show.rate_of(row), _POWER)


def _groups(record: Record) -> list[tuple[str, list[Row]]]:
    """The rows by what varies among them: n, sigma, or the method alone."""
    rows = record.results["rows"]
    sizes = show.unique(rows, "n")
    if len(show.unique(rows, "sigma")) == 1:
        return [("method" if len(sizes) == 1 else "n", rows)]
    by_sigma = [row for row in rows if row["n"] == max(sizes)]
    return [("sigma", by_sigma), ("n", [row for row in rows if row["sigma"] == MIDDLE])]


def draw_power(record: Record, folder: Path) -> list[Path]:
    paths = [_curves(axis, rows, folder) for axis, rows in _groups(record)]
    if record.results.get("timings"):
        paths.append(_time_figure(record, folder))
    return paths


def _curves(axis: str, rows: list[Row], folder: Path) -> Path:
    path, methods = folder / f"power-{axis}.png", show.unique(rows, "method")
    with show.picture(path, 6.4, 3.8) as ax:
        if axis == "method":
            power = np.array([row["power"] for row in rows])
            ends = np.abs(np.array([row["interval"] for row in rows]).T - power)
            ax.errorbar(range(len(rows)), power, yerr=ends, fmt="o", color=INK, capsize=2)
            ax.set_xticks(range(len(rows)), methods, rotation=40, ha="right")
        else:
            for method in methods:
                places = sorted((r for r in rows if r["method"] == method), key=lambda r: float(r[axis]))
                style = ":" if method in CEILINGS else "-"
                color = show.METHOD_COLORS.get(method, GRAY)
                x, values = [row[axis] for row in places], [show.rate_of(row) for row in places]
                show.curve(ax, x, values, color, linestyle=style, label=method)
            show.legend_beside(ax)
        if axis == "n":
            ticks = sorted(show.unique(rows, "n"))
            ax.set_xscale("log")
            ax.set_xticks(ticks, [str(n) for n in ticks])
            ax.minorticks_off()
        ax.axhline(LEVEL, color=GRAY, linewidth=0.7, linestyle="--")
        label = {"n": "n", "sigma": "σ, perturbation of the weights", "method": ""}[axis]
        ax.set(xlabel=label, ylabel="power at level 0.05", ylim=(0, 1.04))
    return path


def _time_figure(record: Record, folder: Path) -> Path:
    rows, path = record.results["timings"], folder / "time.png"
    colors = ("#e67e22", ACCENT, show.DARK, GRAY, "#8e44ad")
    with show.picture(path, 6.4, 3.4) as ax:
        for method, color in zip(show.unique(rows, "method"), colors, strict=True):
            of_method = [row for row in rows if row["method"] == method]
            total = [row["training"] + row["statistic"] + row["bootstrap"] for row in of_method]
            ax.plot([row["n"] for row in of_method], total, "-o", markersize=3, color=color, label=method)
        ax.set(xscale="log", yscale="log", xlabel="n", ylabel="seconds of one test")
        show.legend_beside(ax)
    return path


def staging_table(record: Record) -> str:
    rows: list[Row] = []
    for row in record.results["rows"]:
        sigma = f", σ = {row['sigma']:g}" if row["sigma"] else ""
        cell = f"{row['problem']}{sigma}, n = {row['n']}"
        rows.append({**row, "cell": cell, "staging": row["method"].removeprefix("split with ")})
    suggested = {row["cell"]: row for row in rows if row["staging"] == _SUGGESTED}
    best: dict[str, Row] = {}
    for row in rows:
        if row["staging"] != _SUGGESTED and row["power"] > best.get(row["cell"], {"power": -1})["power"]:
            best[row["cell"]] = row
    gaps = []
    for cell, row in suggested.items():
        pair = row, best[cell]
        variance = sum(r["power"] * (1 - r["power"]) / r["trials"] for r in pair)
        gaps.append(f"{row['power'] - best[cell]['power']:+.3f} ± {variance**0.5:.3f}")

    def power(row: Row) -> str:
        low, top = row["interval"]
        return f"{show.bold(format(row['power'], '.3f'), row in best.values())} [{low:.2f}, {top:.2f}]"

    last = "| auto less the best by hand | " + " | ".join(gaps) + " |"
    trials = " or ".join(str(n) for n in sorted(show.unique(rows, "trials")))
    return show.document(
        record,
        show.pivot(rows, {"staging of λ": "staging"}, "cell", power) + "\n" + last,
        f"Rejection rate of the split test at level 0.05 on {trials} datasets, the same for every staging, "
        "with its 95 % interval; the best choice by hand is bold. The last row has the standard error of the "
        f"difference of two independent rates. {show.devices(record)}",
    )
