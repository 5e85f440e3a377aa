"""Table and figures of lazy training, drawn from its record."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steincritic.report.style import ACCENT, FIXED, GRAY, INK, STAGED, save, styled
from steincritic_studies.record import Record
from steincritic_studies.tables import document, markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_COLORS = [FIXED[1], FIXED[3], FIXED[6]]
_NAMES = {"gm-1d": "1-D mixture", "gm-2d": "2-D mixture"}


def lazy_table(record: Record) -> str:
    header = [
        "problem, width",
        "parameters",
        "distance in λ (−1)",
        "movement in λ (−1)",
        "distance in t (2)",
        "kernel in n (−½)",
        "network in n (−½)",
        "not lazy, in n",
        "movement / bound",
        "kernel error / bound",
        "distance / envelope",
    ]
    laws = markdown(header, [_law_cells(record, row) for row in record.results["rows"]])
    config = record.config
    return document(
        record,
        laws,
        f"Exponents fitted in logarithms, expected value in brackets; ranges are over the recorded times "
        f"(μ₁λt from {config['clock'][0]:g} to {config['clock'][-1]:g}) or over λ. In λ from "
        f"{config['lazy_from']:g} on, in t up to μ₁λt = {config['early_until']:g}, in n at "
        f"μ₁λt = {config['sample_clock']:g} with {config['replicates']} samples each (lazy λ = "
        f"{config['sample_lambdas'][0]:g}, not lazy λ = {config['sample_lambdas'][1]:g}). The last three "
        "columns show how much of a proved bound is used at most; a bound holds if this is below 1.",
        _quality_table(record),
        "Relative error |λu − f*|_p / |f*|_p at the last recorded time: lazy critics end where the kernel "
        "does, the least lazy one ends closest to f*.",
        _corollary_text(record.results["corollary"]),
    )


def _law_cells(record: Record, row: dict[str, Any]) -> list[str]:
    slopes, samples = row["slopes"], row["samples"]["slopes"]
    lazy, not_lazy = (f"{lam:g}" for lam in record.config["sample_lambdas"])
    used = row["envelope"] and np.max(np.array(row["difference"]) / np.array(row["envelope"]))
    return [
        f"{_NAMES[row['problem']]}, {row['width']}",
        str(row["parameters"]),
        _range(slopes["difference_in_lambda"]),
        _range(slopes["moved_in_lambda"]),
        _range(slopes["difference_in_time"]),
        f"{samples['kernel']:.2f}",
        f"{samples[lazy]:.2f}" if lazy in samples else "–",
        f"{samples[not_lazy]:.2f}" if not_lazy in samples else "–",
        f"{row['moved_bound_used']:.2f}",
        f"{row['kernel_bound_used']:.3f}",
        f"{used:.2g}" if used else "–",
    ]


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


def _quality_table(record: Record) -> str:
    lambdas = record.config["lambdas"]
    rows = [
        [
            f"{_NAMES[row['problem']]}, {row['width']}",
            *(f"{value:.3f}" for value in row["network_error"][-1]),
            f"{row['kernel_error'][-1]:.3f}",
        ]
        for row in record.results["rows"]
    ]
    return markdown(["problem, width", *(f"λ = {lam:g}" for lam in lambdas), "kernel"], rows)


def _corollary_text(found: dict[str, Any]) -> str:
    return (
        f"Power corollary, one-dimensional critic at λ = 16 (relative error {found['relative_error']:.2f}; "
        f"it asks for less than 0.9): it promises level and power 0.05 and 0.95 from n = "
        f"{found['promised']:.3g}; there the true level is {found['level']:.1g} and the power "
        f"{found['power']:.3f}. By the normal law the critic needs n = {found['needed']:.0f}, where "
        f"simulated tests have power {found['simulated_power']:.3f}. True, and "
        f"{found['promised'] / found['needed']:.1g} times too careful."
    )


def draw_lazy(record: Record, folder: Path) -> list[Path]:
    with styled():
        return [
            _laws(record, folder),
            _quality(record, folder),
            _spectra(record, folder),
            _staged(record, folder),
        ]


def _by_problem(record: Record) -> list[tuple[str, list[dict[str, Any]]]]:
    names = record.config["problems"]
    return [(name, [row for row in record.results["rows"] if row["problem"] == name]) for name in names]


def _laws(record: Record, folder: Path) -> Path:
    """One row per problem: distance and movement against λ, distance against t, error against n."""
    from matplotlib import pyplot

    problems = _by_problem(record)
    figure, axes = pyplot.subplots(len(problems), 4, figsize=(13, 3.1 * len(problems)), squeeze=False)
    lambdas, clock = record.config["lambdas"], record.config["clock"]
    late = len(clock) - 2  # one before the last: lazy at large λ, not at small
    for (name, rows), line in zip(problems, axes, strict=True):
        for row, color in zip(rows, _WIDTH_COLORS, strict=False):
            _dots(line[0], lambdas, row["difference"][late], color, f"width {row['width']}")
            _dots(line[1], lambdas, row["moved"][late], color, None)
            line[1].plot(lambdas, row["moved_bound"][late], color=color, linewidth=0.8, linestyle="--")
            lazy = lambdas.index(max(lambdas))
            times = [values[lazy] for values in row["times"]]
            _dots(line[2], times, [values[lazy] for values in row["difference"]], color, None)
            if row["envelope"]:
                bound = [values[lazy] for values in row["envelope"]]
                line[2].plot(times, bound, color=color, linewidth=0.8, linestyle="--")
            _sample_curves(line[3], record, row, color)
        early = sum(s <= record.config["early_until"] for s in clock)
        guides = (
            (-1, "slope −1", None),
            (-1, "slope −1", None),
            (2, "slope 2", early),
            (-0.5, "slope −½", None),
        )
        for ax, (exponent, label, first) in zip(line, guides, strict=True):
            ax.set(xscale="log", yscale="log")
            _guide(ax, exponent, label, first)
        line[3].set_xticks(rows[0]["samples"]["sizes"], [str(n) for n in rows[0]["samples"]["sizes"]])
        line[3].minorticks_off()
        line[0].set_ylabel(f"{_NAMES[name]}\n|λu − λū|")
        line[1].set_ylabel("|θ(t) − θ(0)|")
        line[2].set_ylabel("|λu − λū|")
        line[3].set_ylabel("|λû − λū|")
    titles = (
        f"distance from the kernel, μ₁λt = {clock[late]:g}",
        "movement (dashed: its bound)",
        f"early growth, λ = {max(lambdas):g} (dashed: envelope)",
        "finite samples (dotted: not lazy)",
    )
    for ax, title, label in zip(axes[0], titles, ("λ", "λ", "t", "n"), strict=True):
        ax.set_title(title, fontsize=9)
        for below in axes[:, list(axes[0]).index(ax)]:
            below.set_xlabel(label)
    axes[0, 0].legend(loc="lower left")
    figure.tight_layout()
    return save(figure, folder / "laws.png")


def _dots(ax: "Axes", x: list[float], y: list[float], color: str, label: str | None) -> None:
    ax.plot(x, y, "o-", color=color, markersize=3.5, linewidth=1.2, label=label)


def _sample_curves(ax: "Axes", record: Record, row: dict[str, Any], color: str) -> None:
    samples, not_lazy = row["samples"], f"{record.config['sample_lambdas'][1]:g}"
    _dots(ax, samples["sizes"], samples["distance"]["kernel"], color, None)
    if not_lazy in samples["distance"]:
        ax.plot(
            samples["sizes"], samples["distance"][not_lazy], "s:", color=color, markersize=3.5, linewidth=1.2
        )


def _guide(ax: "Axes", exponent: float, label: str, first: int | None) -> None:
    """A thin line of the expected slope beside the first curve, or beside its first points."""
    line = ax.lines[0]
    x, y = np.array(line.get_xdata(), float)[:first], np.array(line.get_ydata(), float)[:first]
    middle = len(x) // 2
    lift = 2.2 if first is None else 150  # clear of the other widths
    values = lift * y[middle] * (x / x[middle]) ** exponent
    limits = ax.get_ylim()
    ax.plot(x, values, color=ACCENT, linewidth=0.9)
    ax.annotate(
        label,
        (x[middle], values[middle]),
        textcoords="offset points",
        xytext=(4, 6) if exponent < 0 else (-36, 6),
        color=ACCENT,
        fontsize=7.5,
    )
    ax.set_ylim(limits)


def _quality(record: Record, folder: Path) -> Path:
    """Relative error through training by λ, beside the kernel's: the finding that theory leaves out."""
    from matplotlib import pyplot

    problems, lambdas = _by_problem(record), record.config["lambdas"]
    columns = len(record.config["widths"])
    figure, axes = pyplot.subplots(
        len(problems), columns, figsize=(3.6 * columns, 2.9 * len(problems)), sharex=True, sharey=True
    )
    colors = pyplot.get_cmap("cividis")(np.linspace(0.05, 0.95, len(lambdas)))
    for (name, rows), line in zip(problems, np.atleast_2d(axes), strict=True):
        for row, ax in zip(rows, line, strict=True):
            errors = np.array(row["network_error"])
            for k, lam in enumerate(lambdas):
                ax.plot(record.config["clock"], errors[:, k], color=colors[k], label=f"λ = {lam:g}")
            ax.plot(record.config["clock"], row["kernel_error"], "--", color=INK, label="kernel ū")
            ax.plot(record.config["clock"], row["kernel_bound"], ":", color=ACCENT, label="its bound, best m")
            ax.set(title=f"{_NAMES[name]}, width {row['width']}", xscale="log", ylim=(0, 1.05))
        line[0].set_ylabel("|λu − f*| / |f*|")
    for ax in np.atleast_2d(axes)[-1]:
        ax.set_xlabel("μ₁λt")
    handles = np.atleast_2d(axes)[0, 0].get_legend_handles_labels()
    figure.tight_layout()
    figure.legend(*handles, ncol=len(lambdas) + 2, loc="lower center", bbox_to_anchor=(0.5, -0.05))
    return save(figure, folder / "quality.png")


def _spectra(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    problems = _by_problem(record)
    figure, axes = pyplot.subplots(1, 2 * len(problems), figsize=(3.3 * 2 * len(problems), 2.9))
    for k, (name, rows) in enumerate(problems):
        left, right = axes[2 * k], axes[2 * k + 1]
        for row, color in zip(rows, _WIDTH_COLORS, strict=False):
            values = np.array(row["eigenvalues"])
            mode = np.arange(1, len(values) + 1)
            left.plot(mode, values / values[0], color=color, label=f"width {row['width']}")
            right.plot(mode, row["alignment"], color=color)
        left.set(title=f"{_NAMES[name]}: μ_k / μ₁", yscale="log", xlabel="mode k", ylim=(1e-12, 2))
        right.set(title="share of f* in the first k modes", xlabel="mode k", ylim=(0, 1.03), xscale="log")
    axes[0].legend()
    figure.tight_layout()
    return save(figure, folder / "spectrum.png")


def _staged(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(13, 2.9))
    panels = (
        ("lam", "λ"),
        ("error", "|λf − f*| / |f*|"),
        ("drift", "drift |K_t − K_0| / |K_0|"),
        ("alignment", "share of f* in 10 modes of K_t"),
    )
    colors = (FIXED[1], FIXED[5], STAGED[0])
    for ax, (key, title) in zip(axes, panels, strict=True):
        for row, color in zip(record.results["staged"], colors, strict=True):
            values = np.array(row["curves"][key], float)
            values[values == 0] = np.nan  # before training the kernel has not moved
            ax.plot(values, color=color, label=row["scheme"], linewidth=1.5)
        ax.set(title=title, xlabel="epochs trained")
    for ax in (axes[0], axes[2]):
        ax.set_yscale("log")
    axes[1].set_ylim(bottom=0)
    axes[1].axhline(1.0, color=GRAY, linewidth=0.8, linestyle=":")
    axes[3].set_ylim(0, 1.03)
    axes[0].legend(loc="center right")
    figure.tight_layout()
    return save(figure, folder / "staged.png")
