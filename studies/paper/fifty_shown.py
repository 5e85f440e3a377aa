"""Table and figures of the tests in 50 dimensions, drawn from their records."""

from pathlib import Path
from typing import Any

from steincritic.report.style import ACCENT, GRAY, INK
from studies import show
from studies.record import Record
from studies.show import LEVEL, Row

_DRAWN = {  # methods in the figure: color and line
    "neural, lowest monitor after epoch 20, probed": (ACCENT, "-"),
    "neural, lowest monitor, probed": (ACCENT, ":"),
    "neural, last epoch, exact": ("#e67e22", "-"),
    "KSD, δ = 2^-4": (show.BLUE, "--"),
    "KSD, median": (show.BLUE, "-"),
    "combined": (INK, "-"),
}


def fifty_table(record: Record) -> str:
    """A line for each method, a column for each n or share; and the epochs that the rules chose."""
    rows, across = record.results["rows"], axis_of(record)
    neural = [row for row in rows if "power" in row]
    title = {"n": "n = {:g}", "share": "{:.0%}"}[across].format
    alone = [row for row in rows if "power" not in row] if across == "share" else []
    shown = [row for row in rows if row not in alone]
    places = sorted(show.unique(shown, across))
    powers = show.pivot(shown, {"method": "method"}, across, power_shown, columns=places, title=title)
    epochs = show.pivot(
        neural,
        {"method": "method"},
        across,
        lambda row: f"{row['epoch']['mean']:.0f} ± {row['epoch']['sd']:.0f}",
        columns=places,
        title=title,
    )
    config = record.config
    beside = "".join(f" {row['method']} on all points: {power_shown(row)}." for row in alone)
    return show.document(
        record,
        powers,
        "Epoch of the critic, mean ± standard deviation:\n\n" + epochs,
        f"Rejection rate at level 0.05. Neural: the paper's test (512-512, Adam 5e-3, batch 40, 60 epochs, "
        f"half of the points to train on unless said, a fifth of them held out, pooled bootstrap), mean ± "
        f"standard deviation over {config['critics']} critics with training data of their own, "
        f"{config['runs']} tests each. Its rules say which epoch makes the critic; exact or probed is the "
        f"divergence, in the monitor as in the test. Others: rate with its Wilson 95 % interval.{beside}",
    )


def axis_of(record: Record) -> str:
    return "share" if len(record.config["shares"]) > 1 else "n"


def power_shown(row: Row) -> str:
    """Of a neural test the mean over critics, of others the rate."""
    if "power" in row:
        return f"{row['power']['mean']:.3f} ± {row['power']['sd']:.3f}"
    return show.shown(show.rate_of(row), "{:.3f} [{:.2f}, {:.2f}]")


def draw_fifty(record: Record, folder: Path) -> list[Path]:
    rows, across = record.results["rows"], axis_of(record)
    if len(record.config["factors"]) > 2:
        return [_draw_bandwidths(rows, folder / "power-bandwidth.png")]
    path = folder / f"power-{across}.png"
    with show.picture(path, 6.8, 3.8) as ax:
        for method, (color, line) in _DRAWN.items():
            places = sorted(
                (row for row in rows if row["method"] == method), key=lambda row: float(row[across])
            )
            if across == "share" and places and "power" not in places[0]:
                ax.axhline(show.rate_of(places[0]).value, color=color, linestyle=line, label=method)
            elif places:
                _points(
                    ax, [row[across] for row in places], places, color=color, linestyle=line, label=method
                )
        if across == "n":
            ticks = sorted(show.unique(rows, "n"))
            ax.set_xscale("log")
            ax.set_xticks(ticks, [str(n) for n in ticks])
            ax.minorticks_off()
        label = {"n": "n", "share": "share of points to train on"}[across]
        _finish(ax, label)
    return [path]


def _draw_bandwidths(rows: list[Row], path: Path) -> Path:
    kernels = [row for row in rows if "power" not in row]
    with show.picture(path, 6.8, 3.8) as ax:
        _points(ax, range(len(kernels)), kernels, color=show.BLUE, label="KSD")
        for method, (color, line) in _DRAWN.items():
            for row in rows:
                if row["method"] == method and "power" in row:
                    mean, sd = row["power"]["mean"], row["power"]["sd"]
                    ax.axhline(mean, color=color, linestyle=line, label=method)
                    ax.axhspan(mean - sd, mean + sd, color=color, alpha=0.12, lw=0)
        ax.set_xticks(range(len(kernels)), [row["method"].split(", ")[1] for row in kernels], rotation=40)
        _finish(ax, "bandwidth")
    return path


def _points(ax: Any, places: Any, rows: list[Row], **style: Any) -> None:
    """With the standard deviation over critics, or the interval of a rate."""
    if "power" in rows[0]:
        mean, sd = ([row["power"][part] for row in rows] for part in ("mean", "sd"))
        ax.errorbar(places, mean, sd, marker="o", markersize=3, capsize=2, **style)
    else:
        color = style.pop("color")
        show.curve(ax, places, [show.rate_of(row) for row in rows], color, **style)


def _finish(ax: Any, label: str) -> None:
    ax.axhline(LEVEL, color=GRAY, linewidth=0.7, linestyle="--")
    ax.set(xlabel=label, ylabel="power at level 0.05", ylim=(0, 1.04))
    show.legend_beside(ax)
