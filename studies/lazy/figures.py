"""Figures of lazy training, drawn from its record."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steincritic.report.style import ACCENT, FIXED, GRAY, INK, STAGED
from studies.lazy.tables import NAMES
from studies.record import Record
from studies.show import Row, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_COLORS = [FIXED[1], FIXED[3], FIXED[6]]
_DOTS: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linewidth": 1.2}
_TICKS = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
_SAMPLE_STYLES: list[dict[str, Any]] = [
    {"color": _WIDTH_COLORS[0]},
    {"color": INK, "marker": "x", "linestyle": "--"},
    {"color": STAGED[0], "marker": "s", "linestyle": ":"},
]


def draw_lazy(record: Record, folder: Path) -> list[Path]:
    names = record.config["problems"]
    problems = [[row for row in record.results["rows"] if row["problem"] == name] for name in names]
    samples = [theorem["samples"] for theorem in record.results["theorems"]]
    paths = [folder / f"{name}.png" for name in ("laws", "quality", "spectrum", "staged")]
    _laws(record.config, problems, samples, paths[0])
    _quality(record.config, problems, paths[1])
    _spectra(problems, paths[2])
    _staged(record.results["staged"], paths[3])
    return paths


def _laws(config: Any, problems: list[list[Row]], samples: list[Row], path: Path) -> None:
    """One line per problem: distance and movement against λ, distance against t, error against n."""
    lambdas, clock = config["lambdas"], config["clock"]
    late = len(clock) - 2  # one before the last: lazy at large λ, not at small
    lazy = lambdas.index(max(lambdas))
    early = sum(s <= config["early_until"] for s in clock)
    panels = (  # title, x, y, the slope expected of how many points, its line's distance from the curve
        (f"distance from the kernel, μ₁λt = {clock[late]:g}", "λ", "|λu − λū|", -1, "slope −1", None, 2.2),
        ("movement (dashed: its bound)", "λ", "|θ(t) − θ(0)|", -1, "slope −1", None, 2.2),
        (
            f"early growth, λ = {max(lambdas):g} (dashed: envelope)",
            "t",
            "|λu − λū|",
            2,
            "slope 2",
            early,
            150,
        ),
        (f"finite samples, width {config['widths'][0]}", "n", "|λû − λū|", -0.5, "slope −½", None, 0.6),
    )
    size: dict[str, Any] = {"nrows": len(problems), "ncols": len(panels), "squeeze": False}
    with picture(path, 13, 3.1 * len(problems), **size, layout="tight") as axes:
        for rows, drawn, line in zip(problems, samples, axes, strict=True):
            for row, color in zip(rows, _WIDTH_COLORS[: len(rows)], strict=True):
                dashed: dict[str, Any] = {"color": color, "linewidth": 0.8, "linestyle": "--"}
                dots = _DOTS | {"color": color}
                line[0].plot(lambdas, row["difference"][late], label=f"width {row['width']}", **dots)
                line[1].plot(lambdas, row["moved"][late], **dots)
                line[1].plot(lambdas, row["moved_bound"][late], **dashed)
                times, growth = (np.array(row[key])[:, lazy] for key in ("times", "difference"))
                line[2].plot(times, growth, **dots)
                if row["envelope"]:
                    line[2].plot(times, np.array(row["envelope"])[:, lazy], **dashed)
            curves = drawn["distance"].items()
            for (key, distance), style in zip(curves, _SAMPLE_STYLES[: len(curves)], strict=True):
                label = "kernel" if key == "kernel" else f"network, λ = {key}"
                line[3].plot(drawn["sizes"][: len(distance)], distance, label=label, **_DOTS | style)
            for ax, (_, x, y, *guide) in zip(line, panels, strict=True):
                ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
                _guide(ax, *guide)
            line[0].set_ylabel(f"{NAMES[rows[0]['problem']]}\n{panels[0][2]}")
            line[3].set_xticks(drawn["sizes"], [str(n) for n in drawn["sizes"]])
            line[3].set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
            line[3].set_ylim(top=1.5)  # room for the legend
            line[3].minorticks_off()
        for ax, (title, *_) in zip(axes[0], panels, strict=True):
            ax.set_title(title, fontsize=9)
        axes[0, 0].legend(loc="lower left")
        axes[0, 3].legend(loc="upper right")


def _guide(ax: "Axes", exponent: float, label: str, count: int | None, lift: float) -> None:
    """A thin line of the expected slope beside the first curve, or beside its first points."""
    x, y = (np.array(values, float)[:count] for values in ax.lines[0].get_data())
    middle = len(x) // 2
    values = lift * y[middle] * (x / x[middle]) ** exponent
    low, high = ax.get_ylim()
    ax.plot(x, values, color=ACCENT, linewidth=0.9)
    place = (-40, -14) if lift < 1 else (4, 6) if exponent < 0 else (-36, 6)
    offset: dict[str, Any] = {"textcoords": "offset points", "xytext": place}
    ax.annotate(label, (x[middle], values[middle]), color=ACCENT, fontsize=7.5, **offset)
    ax.set_ylim(min(low, 0.8 * values.min()) if lift < 1 else low, high)


def _quality(config: Any, problems: list[list[Row]], path: Path) -> None:
    """Relative error through training by λ, beside the kernel's: the finding that theory leaves out."""
    from matplotlib import pyplot

    lambdas, clock, columns = config["lambdas"], config["clock"], len(config["widths"])
    colors = pyplot.get_cmap("cividis")(np.linspace(0.05, 0.95, len(lambdas)))
    size: dict[str, Any] = {"nrows": len(problems), "ncols": columns, "sharex": True, "sharey": True}
    with picture(path, 3.6 * columns, 2.9 * len(problems), squeeze=False, **size) as axes:
        for row, ax in zip((row for rows in problems for row in rows), axes.flat, strict=True):
            for errors, lam, color in zip(np.transpose(row["network_error"]), lambdas, colors, strict=True):
                ax.plot(clock, errors, color=color, label=f"λ = {lam:g}")
            ax.plot(clock, row["kernel_error"], "--", color=INK, label="kernel ū")
            ax.plot(clock, row["kernel_bound"], ":", color=ACCENT, label="its bound, best m")
            title = f"{NAMES[row['problem']]}, width {row['width']}"
            ax.set(title=title, xscale="log", ylim=(0, 1.05), xlabel="μ₁λt", ylabel="|λu − f*| / |f*|")
            ax.label_outer()
        figure = axes[0, 0].figure
        figure.tight_layout()
        place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, -0.05)}
        figure.legend(*axes[0, 0].get_legend_handles_labels(), ncol=len(lambdas) + 2, **place)


def _spectra(problems: list[list[Row]], path: Path) -> None:
    with picture(path, 6.6 * len(problems), 2.9, ncols=2 * len(problems), layout="tight") as axes:
        for rows, left, right in zip(problems, axes[::2], axes[1::2], strict=True):
            for row, color in zip(rows, _WIDTH_COLORS[: len(rows)], strict=True):
                values = np.array(row["eigenvalues"])
                mode = np.arange(1, len(values) + 1)
                left.plot(mode, values / values[0], color=color, label=f"width {row['width']}")
                right.plot(mode, row["alignment"], color=color)
            name = NAMES[rows[0]["problem"]]
            left.set(title=f"{name}: μ_k / μ₁", yscale="log", xlabel="mode k", ylim=(1e-12, 2))
            right.set(title="share of f* in the first k modes", xlabel="mode k")
            right.set(ylim=(0, 1.03), xscale="log")
            left.xaxis.get_major_locator().set_params(integer=True)
        axes[0].legend()


def _staged(rows: list[Row], path: Path) -> None:
    panels: dict[str, tuple[str, dict[str, Any]]] = {
        "lam": ("λ", {"yscale": "log"}),
        "error": ("|λf − f*| / |f*|", {"ylim": (0, None)}),
        "drift": ("drift |K_t − K_0| / |K_0|", {"yscale": "log"}),
        "alignment": ("share of f* in 10 modes of K_t", {"ylim": (0, 1.03)}),
    }
    with picture(path, 13, 2.9, ncols=4, layout="tight") as axes:
        for ax, (key, (title, scale)) in zip(axes, panels.items(), strict=True):
            for row, color in zip(rows, (FIXED[1], FIXED[5], STAGED[0]), strict=True):
                values = np.array(row["curves"][key], float)
                values[values == 0] = np.nan  # before training the kernel has not moved
                ax.plot(values, color=color, label=row["scheme"], linewidth=1.5)
            ax.set(title=title, xlabel="epochs trained", **scale)
        axes[1].axhline(1.0, color=GRAY, linewidth=0.8, linestyle=":")
        axes[0].legend(loc="center right")
