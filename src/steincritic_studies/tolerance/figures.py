"""The tables and the figure of the study, from its record."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steincritic.gof.power import Rate
from steincritic.report.style import ACCENT, FIXED, GRAY, save, styled
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown, rate_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = (ACCENT, FIXED[-1], GRAY)

LEVEL, _POWER = 0.05, 99  # the part of the jobs that measure power


def table(record: Record) -> str:
    rows = record.results["rows"]
    return document(record, _level(rows), _power(rows), _machine(rows), devices(record))


def _level(rows: list[dict[str, Any]]) -> str:
    """Parts of one problem together, with the ordinary test beside it."""
    found: dict[tuple[str, str], Rate] = {}
    sizes: dict[tuple[str, str], tuple[int, float]] = {}
    controls: dict[tuple[str, str], tuple[Rate, int]] = {}
    for row in rows:
        key = row["kind"], row["problem"]
        rate = Rate(row["rejected"], row["tests"])
        if row["kind"] == "machine" or row["part"] == _POWER:
            continue
        if row["control"]:
            controls[key] = rate, row["n"]
            continue
        before = found.get(key, Rate(0, 0))
        found[key] = Rate(before.rejections + rate.rejections, before.trials + rate.trials)
        sizes[key] = row["n"], row["size"]
    body = []
    for key, rate in found.items():
        bound = rate_bound(LEVEL, rate.trials)
        control, n = controls.get((key[0].split(",")[0], key[1]), (None, 0))
        body.append(
            [
                *key,
                f"{sizes[key][1]:g}",
                str(sizes[key][0]),
                str(rate.trials),
                f"{rate.value:.4f}" + ("" if rate.value <= bound else " (above)"),
                f"{bound:.4f}",
                "–" if control is None else f"{control.value:.2f} (n = {n:,})",
            ]
        )
    header = ["test", "data", "off by", "n", "tests", "rejected", "at most (99.9 %)", "ordinary test"]
    return (
        "Data that are wrong by exactly as much as is tolerated: share of tests that reject at level 0.05. "
        "The control is the ordinary test (lens of moments) of such data.\n\n" + markdown(header, body)
    )


def _power(rows: list[dict[str, Any]]) -> str:
    chosen = [row for row in rows if row["part"] == _POWER]
    body = [
        [
            row["kind"],
            row["problem"],
            f"{row['size']:g}",
            f"{row['n']:,}",
            f"{row['rejected'] / row['tests']:.2f}",
            "–" if row["lower"] is None else f"{row['lower']:.4f}",
        ]
        for row in chosen
    ]
    header = ["test", "data", "off by", "n", "rejected", "mean lower bound of the divergence"]
    return "Power against the sample size and how far off the data are.\n\n" + markdown(header, body)


def _machine(rows: list[dict[str, Any]]) -> str:
    chosen = [row for row in rows if row["kind"] == "machine"]
    by_share: dict[float, dict[str, str]] = defaultdict(dict)
    for row in chosen:
        low, high = Rate(row["rejected"], row["tests"]).interval()
        value = row["rejected"] / row["tests"]
        by_share[row["size"]][row["problem"]] = f"{value:.2f} ({low:.2f} to {high:.2f})"
    names = list(dict.fromkeys(row["problem"] for row in chosen))
    body = [[f"{share:g}", *(cells[name] for name in names)] for share, cells in sorted(by_share.items())]
    runs, n = chosen[0]["tests"], chosen[0]["n"]
    return (
        f"A restricted Boltzmann machine with 50 visible and 10 hidden units, n = {n}, a share of the rows "
        f"drawn from N(0, 0.1² I) instead, {runs} tests per cell: rejected.\n\n"
        + markdown(["foreign rows", *names], body)
    )


def draw(record: Record, folder: Path) -> list[Path]:
    """The machine with outliers, and the power of the box against n."""
    from matplotlib import pyplot

    rows = record.results["rows"]
    machine = [row for row in rows if row["kind"] == "machine"]
    power = [row for row in rows if row["part"] == _POWER and row["kind"] == "box"]
    sizes = sorted({row["size"] for row in power})
    with styled():
        figure, axes = pyplot.subplots(1, 3, figsize=(9.5, 2.9), sharey=True, layout="constrained")
        for name, color in zip(dict.fromkeys(row["problem"] for row in machine), _COLORS, strict=False):
            own = [row for row in machine if row["problem"] == name]
            _curve(axes[0], own, "size", color, name)
        axes[0].set(xlabel="share of foreign rows; 0.1 is tolerated", ylabel="rejected", ylim=(-0.03, 1.03))
        for ax, name in zip(axes[1:], dict.fromkeys(row["problem"] for row in power), strict=False):
            for size, color in zip(sizes, FIXED[-len(sizes) :], strict=True):
                own = [row for row in power if (row["problem"], row["size"]) == (name, size)]
                _curve(ax, own, "n", color, f"off by {size:g}")
            ax.set(xlabel="n; 0.05 is tolerated", xscale="log", title=name)
        for ax in axes:
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=1 if ax is axes[0] else 2)
        return [save(figure, folder / "tolerance.png")]


def _curve(ax: "Axes", rows: list[dict[str, Any]], by: str, color: str, label: str) -> None:
    ends = sorted((row[by], row["rejected"] / row["tests"]) for row in rows)
    ax.plot(*zip(*ends, strict=True), marker="o", markersize=4, color=color, label=label)
