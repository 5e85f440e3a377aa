"""How results show themselves: sentences with a colored edge in a notebook, tables, and axes to draw on."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes  # for annotations in layers that know no plotting

RED, GREEN, GRAY, DARK = "#c0392b", "#2e7d4f", "#9aa5b1", "#2c3e50"


def panel(
    lines: Iterable[str],
    *,
    rejected: bool | None = None,
    items: Iterable[str] = (),
    rows: Sequence[Sequence[str]] = (),
    head: Sequence[str] = (),
) -> str:
    """HTML of sentences, a list below them and a table; every text is escaped.

    The edge is red where a model is rejected, green where it is not, gray where nothing was tested. Text and
    background keep the notebook's own colors, dark or light.

    >>> panel(["p < 0.05"], rejected=True)
    '<div style="border-left: 4px solid #c0392b; padding-left: 0.8em">p &lt; 0.05</div>'
    """
    color = GRAY if rejected is None else RED if rejected else GREEN
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    inside = "<br>".join(map(escape, lines)) + (f"<ul>{listed}</ul>" if listed else "")
    if rows:
        inside += f"<table>{_row('th', head)}{''.join(_row('td', row) for row in rows)}</table>"
    return f'<div style="border-left: 4px solid {color}; padding-left: 0.8em">{inside}</div>'


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def axes(ax: "Axes | None", width: float = 5.0, height: float = 3.0) -> "Axes":
    """The given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]
