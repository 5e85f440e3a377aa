"""How figures look: few colors, no chart junk, readable in print."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FIXED = ["#bdc9d7", "#9fb2c8", "#8199b6", "#6480a3", "#48678d", "#2f4d72", "#1b3353"]
STAGED = ["#c0392b", "#e67e22", "#8e44ad"]
INK, GRAY, ACCENT = "#1b2733", "#9aa5b1", "#c0392b"

_RC: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "font.size": 9,
    "figure.dpi": 110,
    "savefig.bbox": "tight",
}


@contextmanager
def styled() -> Iterator[None]:
    """Our settings, and matplotlib's own for the rest: a user's file has no say in figures."""
    from matplotlib import style

    with style.context(["default", _RC]):
        yield


def save(figure: Any, path: Path) -> Path:
    """Write the picture; nothing of the moment goes into the file, so redrawing changes no byte."""
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
    return path
