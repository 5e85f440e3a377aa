"""Table and figures of the schemes of regularization, drawn from their record: each beside staged L²."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from steincritic.report import style
from studies import show
from studies.cells import spread
from studies.record import Record
from studies.show import Row, mean_and_error

STAGED, FIXED = "staged L²", "fixed L²"
LOWEST, LAST = "lowest monitor", "last epoch"
ERROR, POWER = "MSE_q", "power"
_SURE = 2.0  # standard errors
_COLORS = {FIXED: show.BLUE, **dict(zip(("slope", "H1", "gradient"), style.STAGED, strict=True))}


def regularization_table(record: Record) -> str:
    results, config = record.results, record.config
    rows, problems = results["rows"], show.unique(results["rows"], "problem")
    columns: show.Columns = {
        "problem": "{problem}",
        "scheme": "{scheme}",
        "MSE_q": lambda row: mean_and_error(spread(_values(row, ERROR)), 4),
        "less that of staged": lambda row: _difference(row, rows, ERROR, 4),
        "MSE_q, last epoch": lambda row: mean_and_error(spread(row[LAST]["mse_q"]), 4),
        "power (n)": lambda row: _power(row, LOWEST, _sizes(row)[-1]),
        "power (small n)": lambda row: _power(row, LOWEST, _sizes(row)[0]),
        "less that of staged, small n": lambda row: _difference(row, rows, POWER, 3),
        "power (small n), last epoch": lambda row: _power(row, LAST, _sizes(row)[0]),
        "epoch": lambda row: f"{fmean(row['epoch']):.0f}",
        "seconds": lambda row: f"{fmean(row['training']):.1f}",
    }
    verdicts = [[scheme, *_verdict(rows, scheme)] for scheme in _others(rows)]
    candidates = [row | {"candidate": row["candidate"] or "–"} for row in results["tuning"]]
    chosen = ", ".join(f"{family} {candidate}" for family, candidate in results["chosen"].items())
    return show.document(
        record,
        show.listing(rows, columns),
        f"Mean over {config['critics']} critics ± standard error, at the lowest monitor unless the last "
        "epoch is named. Differences are paired: replica r of every scheme has the same draws and first "
        f"weights; in bold beyond {_SURE:g} standard errors. Power of {config['sizes']['runs']} tests per "
        f"critic with the exact divergence, level {show.LEVEL}. Seconds are a processor's, for one critic.",
        f"Problems of {len(problems)} on which a scheme is better, and worse, than staged L² by more than "
        f"{_SURE:g} standard errors (the fixed λ on those where the paper has it). A gain is better on three "
        "or more, in error or power, and worse on none.",
        show.markdown(["scheme", "MSE_q: better, worse", "power: better, worse", "gain"], verdicts),
        f"MSE_q in the tuning, one critic each of other seeds; chosen: {chosen}.",
        show.pivot(
            candidates,
            {"scheme": "scheme", "candidate": "candidate"},
            "problem",
            lambda row: f"{row[LOWEST]['mse_q']:.4f}",
        ),
    )


def draw_regularization(record: Record, folder: Path) -> list[Path]:
    """Differences to staged L² with two standard errors to either side, and the error through training."""
    rows, paths = record.results["rows"], [folder / "differences.png", folder / "mse.png"]
    problems, others = show.unique(rows, "problem"), _others(rows)
    with show.picture(paths[0], 8, 3.6, ncols=2, sharey=True) as axes:
        for ax, measure in zip(axes, (ERROR, POWER), strict=True):
            for row in rows:
                if row["scheme"] in others:
                    unit = fmean(_values(_staged(row, rows), measure)) / 100 if measure == ERROR else 1
                    value = beside_staged(row, rows, measure)
                    low, top = (value["mean"] + side * _SURE * value["se"] for side in (-1, 1))
                    line = problems.index(row["problem"]) + 0.17 * (others.index(row["scheme"]) - 1.5)
                    ends, color = (low / unit, top / unit), _COLORS[row["scheme"]]
                    show.interval(ax, line, value["mean"] / unit, ends, color)
            ax.axvline(0, color=style.GRAY, linewidth=0.8)
        show.name_lines(axes[0], problems)
        axes[0].set(xlabel="MSE_q, % more than staged L²", xscale="symlog")
        axes[1].set(xlabel="power at the small n, more than staged L²")
        _legend(axes, others)
    epochs = record.config["sizes"]["look"]
    with show.picture(paths[1], 12, 2.6, ncols=len(problems)) as axes:
        for ax, name in zip(axes, problems, strict=True):
            for row in rows:
                if row["problem"] == name:
                    curve = np.array(row["curve"]).mean(0)
                    color = _COLORS.get(row["scheme"], style.INK)
                    ax.plot(epochs * np.arange(1, len(curve) + 1), curve, color=color, linewidth=1.3)
            ax.set(title=name, xlabel="epoch")
        axes[0].set_ylabel("MSE of the scaled critic")
        _legend(axes, [STAGED, *others])
    return paths


def _legend(axes: np.ndarray, schemes: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_COLORS.get(scheme, style.INK), label=scheme) for scheme in schemes]
    axes[0].figure.legend(handles=handles, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 0.95))


def beside_staged(row: Row, rows: Sequence[Row], measure: str) -> Row:
    """What a scheme has more than staged L² on the same problem, critic by critic."""
    pairs = zip(_values(row, measure), _values(_staged(row, rows), measure), strict=True)
    return spread([value - other for value, other in pairs])


def sides(rows: Sequence[Row], scheme: str, measure: str) -> tuple[int, int]:
    """On how many problems a scheme is surely better, and on how many surely worse."""
    differences = [beside_staged(row, rows, measure) for row in rows if row["scheme"] == scheme]
    lower, higher = (
        sum(side * value["mean"] > _SURE * value["se"] for value in differences) for side in (-1, 1)
    )
    return (lower, higher) if measure == ERROR else (higher, lower)


def _verdict(rows: Sequence[Row], scheme: str) -> list[str]:
    counts = [sides(rows, scheme, measure) for measure in (ERROR, POWER)]
    is_gain = any(better >= 3 for better, _ in counts) and not any(worse for _, worse in counts)
    return [*(f"{better}, {worse}" for better, worse in counts), "yes" if is_gain else "no"]


def _staged(row: Row, rows: Sequence[Row]) -> Row:
    return next(r for r in rows if r["problem"] == row["problem"] and r["scheme"] == STAGED)


def _others(rows: Sequence[Row]) -> list[str]:
    return [scheme for scheme in _COLORS if scheme in show.unique(rows, "scheme")]


def _values(row: Row, measure: str) -> list[float]:
    """Of each critic where the monitor was lowest; the power is that at the smaller number of points."""
    at = row[LOWEST]
    values: list[float] = at["mse_q"] if measure == ERROR else at["power"][str(_sizes(row)[0])]
    return values


def _sizes(row: Row) -> list[int]:
    return sorted(map(int, row[LOWEST]["power"]))


def _power(row: Row, stop: str, n: int) -> str:
    return f"{mean_and_error(spread(row[stop]['power'][str(n)]))} ({n})"


def _difference(row: Row, rows: Sequence[Row], measure: str, digits: int) -> str:
    if row["scheme"] == STAGED:
        return "–"
    value = beside_staged(row, rows, measure)
    return show.bold(mean_and_error(value, digits), abs(value["mean"]) > _SURE * value["se"])
