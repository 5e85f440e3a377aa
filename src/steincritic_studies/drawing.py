"""What the figures of several studies share: curves with bands, rates with intervals, colors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from steincritic.report.style import ACCENT, FIXED, GRAY, INK, STAGED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALE = "#8199b6"  # for what stands beside the main thing
METHOD_COLORS = {
    "combined": ACCENT,
    "crossfit": "#8e5ea2",
    "split": "#e67e22",
    "aggregated KSD": "#1b3353",
    "KSD, median": "#8199b6",
    "KSD, δ = 2^-4": "#48678d",
    "KSD, IMQ median": "#9fb2c8",
    "FSSD": "#7f8c5a",
    "optimal critic": GRAY,
    "likelihood ratio": INK,
}


def scheme_colors(rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Rows by their staging: fixed weights in blues from light to dark, then staged ones in warm colors."""
    fixed = [row for row in rows if row["staging"]["decay"] == 1]
    staged = [row for row in rows if row["staging"]["decay"] != 1]
    blues = FIXED[-len(fixed) :] if fixed else []
    return [*zip(fixed, blues, strict=True), *zip(staged, STAGED, strict=False)]


def band(ax: "Axes", curve: dict[str, list[float]], color: str, label: str) -> None:
    """A mean by epoch with one standard deviation to either side."""
    mean, sd = np.array(curve["mean"], float), np.array(curve["sd"], float)
    epochs = np.arange(1, len(mean) + 1)
    ax.plot(epochs, mean, color=color, label=label, linewidth=1.6)
    ax.fill_between(epochs, mean - sd, mean + sd, color=color, alpha=0.15, linewidth=0)


def interval(ax: "Axes", line: float, value: float, ends: Sequence[float], color: str = INK) -> None:
    """A rate and its interval on one line of a list."""
    ax.plot(ends, [line, line], color=color, linewidth=1.4)
    ax.plot(value, line, "o", color=color, markersize=3.5)


def name_lines(ax: "Axes", names: Sequence[str]) -> None:
    """The names of a list's lines, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
