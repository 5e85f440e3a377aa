"""Tables and figures of the power curves and of the calibration, drawn from their records."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown

_COLORS = {
    "crossfit": ACCENT,
    "split": "#e67e22",
    "aggregated KSD": "#1b3353",
    "KSD, median": "#8199b6",
    "KSD, δ = 2^-4": "#48678d",
    "KSD, IMQ median": "#9fb2c8",
    "FSSD": "#7f8c5a",
    "optimal critic": GRAY,
    "likelihood ratio": INK,
}


def power_table(record: Record) -> str:
    """One row a method, one column a place on the axis; power with its 95 % interval."""
    parts = [_block(rows, axis) for axis, rows in _groups(record)]
    published = _published(record)
    if published:
        parts.append("Published:\n\n" + published)
    if record.results.get("timings"):
        parts.append("Seconds of one test:\n\n" + _timings(record))
    trials = sorted({row["trials"] for row in record.results["rows"]})
    return document(
        record,
        *parts,
        f"Rejection rate at level 0.05 with its Wilson 95 % interval; {trials[0]} to {trials[-1]} datasets a "
        "cell, the same for all methods. The cross-fit test has one configuration throughout, its default.",
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
            color = _COLORS.get(method, GRAY)
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
        "bound on the rate of an exact test. The tests of a cross-fit row choose their null runs from ten "
        "pools of as many, so the pools' own error is in its bound. Rates above the bound are bold. "
        f"Uniformity is a Kolmogorov-Smirnov test of the p-values. {devices(record)}",
    )


def _rate_and_bound(row: dict[str, Any], rate: dict[str, Any]) -> str:
    bound = _bound(rate["level"], row["runs"], row.get("null_pool") or 0)
    value = f"{rate['rate']:.4f}"
    return f"{f'**{value}**' if rate['rate'] > bound else value} ({bound:.4f})"


def _bound(level: float, runs: int, pool: int = 0) -> float:
    from scipy.stats import binom, norm

    if not pool:
        return float(binom.ppf(0.999, runs, level)) / runs
    return level + float(norm.ppf(0.999)) * math.sqrt(level * (1 - level) * (1 / runs + 1 / pool))


_KINDS = {
    "null": "model draws",
    "data": "data of the problem",
    "control": "control: critic trained on the points it bets on",
}


def streams_table(record: Record) -> str:
    rows = [
        [
            row["method"],
            _KINDS[row["kind"]],
            str(row["streams"]),
            str(row["alarms"]),
            f"{row['rate']:.4f} [{row['interval'][0]:.4f}, {row['interval'][1]:.4f}]",
            "" if row["median_delay"] is None else f"{row['median_delay']:g}",
        ]
        for row in record.results["rows"]
    ]
    header = ["bets", "stream", "streams", "alarms", "rate, 95 % interval", "median points to alarm"]
    null = next(row["streams"] for row in record.results["rows"] if row["kind"] == "null")
    level = record.results["level"]
    return document(
        record,
        markdown(header, rows),
        f"Streams of {record.config['length']} points, watched after every point. At level {level:g} the "
        f"99.9 % bound on {null} null streams is {_bound(level, null):.4f}.",
    )


def draw_streams(record: Record, folder: Path) -> list[Path]:
    from matplotlib import pyplot

    rows = record.results["rows"]
    with styled():
        figure, ax = pyplot.subplots(figsize=(6.4, 0.3 * len(rows) + 1.0))
        for k, row in enumerate(rows):
            color = ACCENT if row["kind"] == "control" else INK
            ax.plot(row["interval"], [k, k], color=color, linewidth=1.4)
            ax.plot(row["rate"], k, "o", color=color, markersize=3.5)
        ax.axvline(record.results["level"], color=GRAY, linewidth=0.8)
        ax.set_yticks(range(len(rows)), [f"{row['method']}, {row['kind']}" for row in rows])
        ax.invert_yaxis()
        ax.set(xlabel="share of streams that ever raise an alarm", xlim=(-0.02, 1.02))
        return [save(figure, folder / "streams.png")]


def draw_faults(record: Record, folder: Path) -> list[Path]:
    """The shares of the record with their intervals."""
    from matplotlib import pyplot

    shares = [
        (f"{kind}: {name.replace('_', ' ')}", value)
        for kind, found in record.results["rows"].items()
        for name, value in found.items()
        if isinstance(value, dict) and "rate" in value
    ]
    with styled():
        figure, ax = pyplot.subplots(figsize=(6.4, 0.26 * len(shares) + 1.0))
        for k, (_, value) in enumerate(shares):
            ax.plot(value["interval"], [k, k], color=INK, linewidth=1.4)
            ax.plot(value["rate"], k, "o", color=INK, markersize=3.5)
        ax.set_yticks(range(len(shares)), [name for name, _ in shares])
        ax.invert_yaxis()
        ax.set(xlabel="share of runs", xlim=(-0.02, 1.02))
        return [save(figure, folder / "faults.png")]


def draw_calibration(record: Record, folder: Path) -> list[Path]:
    from matplotlib import pyplot

    rows = record.results["rows"]
    with styled():
        figure, ax = pyplot.subplots(figsize=(6.4, 0.22 * len(rows) + 1.2))
        for k, row in enumerate(rows):
            rate = next(r for r in row["rates"] if r["level"] == 0.05)
            low, high = rate["interval"]
            color = ACCENT if row["control"] else INK if row["exact"] else "#8199b6"
            ax.plot([low, high], [k, k], color=color, linewidth=1.4)
            ax.plot(rate["rate"], k, "o", color=color, markersize=3.5)
        ax.axvline(0.05, color=GRAY, linewidth=0.8)
        most = min(row["runs"] for row in rows)
        ax.axvline(_bound(0.05, most), color=GRAY, linewidth=0.8, linestyle=":")
        ax.set_yticks(range(len(rows)), [f"{row['problem']}: {row['method']}" for row in rows])
        ax.invert_yaxis()
        ax.set(
            xlabel="rejection rate on null data at level 0.05 (black exact, blue approximate, red control)"
        )
        return [save(figure, folder / "calibration.png")]
