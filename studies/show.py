"""How records are shown: tables in Markdown, rates with their intervals, and the few kinds of figures.

Tables are made of rows, the dicts of a record: `listing` gives each a line, `pivot` spreads them over lines
and columns, `shown` writes a rate, `high` marks one that an exact test would not have. Figures are drawn
within `picture`; `interval` puts a rate on a line of a list, `curve` draws rates against a number.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from steincritic import Rate
from steincritic.report.style import ACCENT, FIXED, GRAY, INK, STAGED, save, styled
from studies.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.05
CONFIDENCE = 0.999  # of the bands that rates of the right level lie in
BRACKETS = "{:.2f} [{:.2f}, {:.2f}]"
PALE = "#8199b6"  # for what stands beside the main thing
BLUE, DARK = "#48678d", "#1b3353"
METHOD_COLORS = {
    "combined": ACCENT,
    "crossfit": "#8e5ea2",
    "split": "#e67e22",
    "aggregated KSD": DARK,
    "KSD, median": PALE,
    "KSD, δ = 2^-4": BLUE,
    "KSD, IMQ median": "#9fb2c8",
    "FSSD": "#7f8c5a",
    "optimal critic": GRAY,
    "likelihood ratio": INK,
}
Row = dict[str, Any]
Columns = Mapping[str, str | Callable[[Row], str]]  # by heading: a format, or a function of the row


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def listing(rows: Iterable[Row], columns: Columns) -> str:
    """A table with a line for each row."""
    body = [
        [cell.format_map(row) if isinstance(cell, str) else cell(row) for cell in columns.values()]
        for row in rows
    ]
    return markdown(list(columns), body)


def document(record: Record, *parts: str) -> str:
    """The parts, and how the record was made."""
    environment, seconds = record.environment, record.seconds
    times = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    made = (
        f"Made by `{record.command}` (seed {record.seed}) on {environment['device']}, torch "
        f"{environment['torch']}; {times}."
    )
    return "\n\n".join([*parts, made]) + "\n"


def devices(record: Record) -> str:
    """Where the jobs of a sweep ran; they may have been gathered from several machines."""
    return "Jobs ran on: " + ", ".join(sorted(unique(record.results["rows"], "device"))) + "."


def unique(rows: Iterable[Mapping[str, Any]], *fields: str) -> list[Any]:
    """The values of a field, or of several as tuples, in the order in which they first come."""
    if len(fields) == 1:
        return list(dict.fromkeys(row[fields[0]] for row in rows))
    return list(dict.fromkeys(tuple(row[field] for field in fields) for row in rows))


def pivot(
    rows: Sequence[Row],
    lines: Mapping[str, str],
    across: str,
    cell: Callable[[Row], str],
    *,
    columns: Sequence[Any] | None = None,
    title: Callable[[Any], str] = str,
    missing: str = "–",
) -> str:
    """A table with a line for each value of some fields, and a column for each value of another.

    Args:
        lines: field by heading.
        columns: values of `across`, and their order; as they come if left out.
        title: heading of a column.
    """
    table: dict[tuple[Any, ...], dict[Any, Row]] = {}
    for row in rows:
        table.setdefault(tuple(row[field] for field in lines.values()), {})[row[across]] = row
    columns = unique(rows, across) if columns is None else columns
    body = [
        [*map(str, line), *(cell(cells[value]) if value in cells else missing for value in columns)]
        for line, cells in table.items()
    ]
    return markdown([*lines, *map(title, columns)], body)


def shown(rate: Rate, form: str = BRACKETS) -> str:
    """A rate and its 95 % interval."""
    return form.format(rate.value, *rate.interval())


def rate_of(row: Row) -> Rate:
    """Rejections among the runs of a row, or among its trials."""
    return Rate(row["rejections"], row["runs"] if "runs" in row else row["trials"])


def high(rate: Rate, *, is_null: bool = True) -> str:
    """A rate and its runs; in bold if an exact test would lie below in 99.9 %."""
    is_high = is_null and rate.value > rate_bound(LEVEL, rate.trials)
    return f"{bold(f'{rate.value:.3f}', is_high)} ({rate.trials})"


def bold(text: str, marked: bool) -> str:
    return f"**{text}**" if marked else text


def mean_and_error(value: Row | None, digits: int = 3) -> str:
    """The mean ± its standard error; a dash for what was not measured."""
    return "–" if value is None else f"{value['mean']:.{digits}f} ± {value['se']:.{digits}f}"


def band(tests: int, null_sets: int = 0) -> tuple[float, float]:
    """Where a rate of the right level lies in 99.9 %: so many tests, which may share null sets."""
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    half = z * (LEVEL * (1 - LEVEL) * (1 / tests + (1 / null_sets if null_sets else 0))) ** 0.5
    return LEVEL - half, LEVEL + half


def in_band(rate: Rate, null_sets: int = 0) -> list[str]:
    """Three cells of a line: a rate of own draws, the band of the right level, and whether it lies inside."""
    low, top = band(rate.trials, null_sets)
    inside = low <= rate.value <= top
    return [f"{rate.value:.4f}", f"{low:.4f} to {top:.4f}", "yes" if inside else bold("no", True)]


def rate_bound(level: float, runs: int, pool: int = 0) -> float:
    """What the rate of an exact test stays below, except once in a thousand times.

    Args:
        pool: null runs that the tests have in common, whose own error then counts; none at 0.
    """
    from scipy.stats import binom, norm

    if not pool:
        return float(binom.ppf(CONFIDENCE, runs, level)) / runs
    return level + float(norm.ppf(CONFIDENCE)) * math.sqrt(level * (1 - level) * (1 / runs + 1 / pool))


@contextmanager
def picture(path: Path, width: float, height: float, **options: Any) -> Iterator[Any]:
    """The axes of a figure that is saved in the end: alone, or an array of them."""
    from matplotlib import pyplot

    with styled():
        figure, axes = pyplot.subplots(figsize=(width, height), **options)
        yield axes
        save(figure, path)


def interval(ax: "Axes", line: float, value: float, ends: Sequence[float], color: str = INK) -> None:
    """A rate and its interval on one line of a list."""
    ax.plot(ends, [line, line], color=color, linewidth=1.4)
    ax.plot(value, line, "o", color=color, markersize=3.5)


def curve(ax: "Axes", places: Sequence[float], rates: Sequence[Rate], color: str, **options: Any) -> None:
    """Rates against a number, with their intervals."""
    values = np.array([rate.value for rate in rates])
    low, top = np.array([rate.interval() for rate in rates]).T
    style: dict[str, Any] = {"color": color, "marker": "o", "markersize": 3}
    ax.plot(places, values, **style | options)
    ax.fill_between(places, np.minimum(low, values), np.maximum(top, values), color=color, alpha=0.13, lw=0)


def name_lines(ax: "Axes", names: Sequence[str]) -> None:
    """The names of a list's lines, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()


def legend_above(ax: "Axes", columns: int = 4) -> None:
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns)


def legend_beside(ax: "Axes", **options: Any) -> None:
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), **options)


def scheme_colors(rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Rows by their staging: fixed weights in blues from light to dark, then staged ones in warm colors."""
    fixed = [row for row in rows if row["staging"]["decay"] == 1]
    staged = [row for row in rows if row["staging"]["decay"] != 1]
    blues = FIXED[-len(fixed) :] if fixed else []
    return [*zip(fixed, blues, strict=True), *zip(staged, STAGED[: len(staged)], strict=True)]


def mean_curve(ax: "Axes", values: Mapping[str, list[float]], color: str, label: str) -> None:
    """A mean by epoch with one standard deviation to either side."""
    mean, sd = np.array(values["mean"], float), np.array(values["sd"], float)
    epochs = np.arange(1, len(mean) + 1)
    ax.plot(epochs, mean, color=color, label=label, linewidth=1.6)
    ax.fill_between(epochs, mean - sd, mean + sd, color=color, alpha=0.15, linewidth=0)
