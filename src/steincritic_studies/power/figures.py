"""Tables and figures of the power curves, and of power by staging, drawn from their records."""

from pathlib import Path
from typing import Any

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.drawing import METHOD_COLORS, interval, name_lines
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown

_SUGGESTED = "auto"  # among the stagings; all others are chosen by hand


def power_table(record: Record) -> str:
    """One row per method, one column per place on the axis; power with its 95 % interval."""
    parts = [_block(rows, axis) for axis, rows in _groups(record)]
    published = _published(record)
    if published:
        parts.append("Published:\n\n" + published)
    if record.results.get("timings"):
        parts.append("Seconds of one test:\n\n" + _timings(record))
    trials = sorted({row["trials"] for row in record.results["rows"]})
    datasets = f"{trials[0]} to {trials[-1]}" if len(trials) > 1 else f"{trials[0]}"
    return document(
        record,
        *parts,
        f"Rejection rate at level 0.05 with its Wilson 95 % interval; {datasets} datasets per cell, "
        "the same for all methods. Combined is the default test; every test has one configuration.",
    )


def draw_power(record: Record, folder: Path) -> list[Path]:
    with styled():
        paths = [_curves(axis, rows, record, folder) for axis, rows in _groups(record)]
        if record.results.get("timings"):
            paths.append(_time_figure(record, folder))
    return paths


def _groups(record: Record) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rows by what varies among them: n, sigma, or the method alone."""
    rows = record.results["rows"]
    by_sigma = [row for row in rows if row["problem"] == "rbm" and row["n"] == _largest_n(rows)]
    if by_sigma:
        return [("sigma", by_sigma), ("n", [r for r in rows if r["sigma"] == _middle_sigma(rows)])]
    return [("method" if len({row["n"] for row in rows}) == 1 else "n", rows)]


def _largest_n(rows: list[dict[str, Any]]) -> int:
    return int(max(row["n"] for row in rows))


def _middle_sigma(rows: list[dict[str, Any]]) -> float:
    """The perturbation at which n varies."""
    sizes = {
        sigma: len({r["n"] for r in rows if r["sigma"] == sigma}) for sigma in {r["sigma"] for r in rows}
    }
    return float(max(sizes, key=lambda sigma: sizes[sigma]))


def _block(rows: list[dict[str, Any]], axis: str) -> str:
    if axis == "method":
        cells = [[row["method"], _cell(row)] for row in rows]
        return markdown(["method", f"power at n = {rows[0]['n']}"], cells)
    places = sorted({row[axis] for row in rows})
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = {(row["method"], row[axis]): row for row in rows}
    cells = [
        [method, *(_cell(found[method, p]) if (method, p) in found else "–" for p in places)]
        for method in methods
    ]
    name = "σ" if axis == "sigma" else "n"
    return markdown(["method", *(f"{name} = {p:g}" for p in places)], cells)


def _cell(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    return f"{row['power']:.3f} [{low:.2f}, {high:.2f}]"


def _published(record: Record) -> str:
    published = record.results.get("published") or {}
    if not published:
        return ""
    places = list(dict.fromkeys(p for curve in published.values() for p in curve))
    rows = [
        [name, *(f"{curve[p]:g}" if p in curve else "–" for p in places)] for name, curve in published.items()
    ]
    return markdown(["method", *(f"σ = {p}" for p in places)], rows)


def _timings(record: Record) -> str:
    rows = [
        [
            str(row["n"]),
            row["method"],
            *(f"{row[part]:.4f}" for part in ("training", "statistic", "bootstrap")),
        ]
        for row in record.results["timings"]
    ]
    return markdown(["n", "method", "training", "statistic", "bootstrap"], rows)


def _curves(axis: str, rows: list[dict[str, Any]], record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    figure, ax = pyplot.subplots(figsize=(6.4, 3.8))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    if axis == "method":
        power, low, high = _arrays(rows)
        ax.errorbar(range(len(rows)), power, yerr=[power - low, high - power], fmt="o", color=INK, capsize=2)
        ax.set_xticks(range(len(rows)), [row["method"] for row in rows], rotation=40, ha="right")
    else:
        for method in methods:
            own = sorted((row for row in rows if row["method"] == method), key=lambda row: row[axis])
            power, low, high = _arrays(own)
            x = np.array([row[axis] for row in own], float)
            color = METHOD_COLORS.get(method, GRAY)
            style = ":" if method in ("optimal critic", "likelihood ratio") else "-"
            ax.plot(x, power, style, color=color, marker="o", markersize=3, label=method)
            ax.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
        if axis == "n":
            ax.set_xscale("log")
            places = sorted({row["n"] for row in rows})
            ax.set_xticks(places, [str(p) for p in places])
            ax.minorticks_off()
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.axhline(0.05, color=GRAY, linewidth=0.7, linestyle="--")
    label = {"n": "n", "sigma": "σ, perturbation of the weights", "method": ""}[axis]
    ax.set(xlabel=label, ylabel="power at level 0.05", ylim=(0, 1.04))
    return save(figure, folder / f"power-{axis}.png")


def _arrays(rows: list[dict[str, Any]]) -> tuple[Any, Any, Any]:
    power = np.array([row["power"] for row in rows], float)
    low, high = np.array([row["interval"] for row in rows], float).T
    return power, np.minimum(low, power), np.maximum(high, power)


def _time_figure(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    figure, ax = pyplot.subplots(figsize=(6.4, 3.4))
    rows = record.results["timings"]
    for method, color in zip(
        dict.fromkeys(row["method"] for row in rows), ("#e67e22", ACCENT, "#1b3353", GRAY), strict=False
    ):
        own = [row for row in rows if row["method"] == method]
        total = [row["training"] + row["statistic"] + row["bootstrap"] for row in own]
        ax.plot([row["n"] for row in own], total, "-o", markersize=3, color=color, label=method)
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="seconds of one test")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save(figure, folder / "time.png")


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
                interval(ax, k, rows[name]["power"], rows[name]["interval"], color)
            ax.axvline(0.05, color=GRAY, linewidth=0.7, linestyle="--")
            ax.set(title=title, xlim=(-0.03, 1.03))
        name_lines(axes[0, 0], names)
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
