"""Table and figures of the RBM benchmark, and the table of power by staging, drawn from their records."""

from pathlib import Path

from steincritic.report.style import GRAY
from studies import show
from studies.cells import Row
from studies.record import Record
from studies.show import LEVEL

MIDDLE = 0.02  # the perturbation of the RBM at which n varies
_POWER = "{:.3f} [{:.2f}, {:.2f}]"
_SUGGESTED = "auto"  # among the stagings; all others are chosen by hand
_COLUMNS = {"n": "n = {:g}", "sigma": "σ = {:g}"}  # by what varies


def power_table(record: Record) -> str:
    """One row per method, one column per place on the axis; power with its 95 % interval."""
    results = record.results
    parts = []
    for axis, rows in _groups(record):
        places = sorted(show.unique(rows, axis))
        title = _COLUMNS[axis].format
        parts.append(show.pivot(rows, {"method": "method"}, axis, _power, columns=places, title=title))
    published = results["published"]
    header = ["method", *(f"σ = {sigma}" for sigma in next(iter(published.values())))]
    body = [[name, *(f"{power:g}" for power in curve.values())] for name, curve in published.items()]
    parts.append("Published:\n\n" + show.markdown(header, body))
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
    """The rows by what varies among them."""
    rows = record.results["rows"]
    by_sigma = [row for row in rows if row["n"] == max(show.unique(rows, "n"))]
    return [("sigma", by_sigma), ("n", [row for row in rows if row["sigma"] == MIDDLE])]


def draw_power(record: Record, folder: Path) -> list[Path]:
    return [_curves(axis, rows, folder) for axis, rows in _groups(record)]


def _curves(axis: str, rows: list[Row], folder: Path) -> Path:
    path, methods = folder / f"power-{axis}.png", show.unique(rows, "method")
    with show.picture(path, 6.4, 3.8) as ax:
        for method in methods:
            places = sorted((r for r in rows if r["method"] == method), key=lambda r: float(r[axis]))
            x, values = [row[axis] for row in places], [show.rate_of(row) for row in places]
            show.curve(ax, x, values, show.METHOD_COLORS.get(method, GRAY), label=method)
        show.legend_beside(ax)
        if axis == "n":
            ticks = sorted(show.unique(rows, "n"))
            ax.set_xscale("log")
            ax.set_xticks(ticks, [str(n) for n in ticks])
            ax.minorticks_off()
        ax.axhline(LEVEL, color=GRAY, linewidth=0.7, linestyle="--")
        label = {"n": "n", "sigma": "σ, perturbation of the weights"}[axis]
        ax.set(xlabel=label, ylabel="power at level 0.05", ylim=(0, 1.04))
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
