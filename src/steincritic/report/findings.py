"""Pictures of what is wrong: data beside draws of the model, one way to draw per kind of finding."""

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from steincritic.diagnosis.check_result import CheckResult
from steincritic.diagnosis.findings import Finding
from steincritic.errors import InputError
from steincritic.report.drawings import ALARM, DATA, INK, MODEL, QUIET, as_svg, beside, drawing, sample, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (3.4, 2.5)  # inches
_ELLIPSE = 2.0  # standard deviations
_QUANTILES = 400  # points of a QQ plot
_BARS = 12  # columns of a direction
_SLICES = 8  # of a covariate
_RANGE = 0.002  # share of the points that a histogram leaves out on either side


def finding_plot(diagnosis: CheckResult, finding: Finding, number: int) -> tuple[str, str] | None:
    """The picture of a finding and what it shows; None where there is nothing to draw."""
    if diagnosis.halves.draws is None or not finding.columns:
        return None
    with drawing(*_SIZE) as (figure, ax):
        note = _draw(ax, diagnosis, finding)
    return as_svg(figure, f"finding{number}"), note


def plot_finding(diagnosis: CheckResult, number: int, ax: "Axes") -> "Axes":
    """The picture of a finding on given axes."""
    if not 0 <= number < len(diagnosis.seen):
        raise InputError(f"there is no finding {number}: `seen` has {len(diagnosis.seen)}, counted from 0")
    if diagnosis.halves.draws is None or not diagnosis.seen[number].columns:
        raise InputError(
            "data are drawn beside draws of the model, in the columns of a finding: this one has no columns, "
            "or the model no sampler (sc.models.LangevinModel(q) has one)"
        )
    _draw(ax, diagnosis, diagnosis.seen[number])
    return ax


def _draw(ax: "Axes", diagnosis: CheckResult, finding: Finding) -> str:
    assert diagnosis.halves.draws is not None
    x, y = (t.x.detach().cpu().double().numpy() for t in (diagnosis.data, diagnosis.halves.draws))
    draw = _conditional if diagnosis.covariates else _DRAWN[finding.kind.removesuffix(" within a mode")]
    names = diagnosis.names
    if p := diagnosis.covariates:
        names = (*names[:p], *(f"{name} less model mean" for name in names[p:]))
        mean = y[:, p:].reshape(-1, *x[:, p:].shape).mean(0)  # draws are row after row
        x, y = (np.hstack([t[:, :p], t[:, p:] - np.tile(mean, (len(t) // len(x), 1))]) for t in (x, y))
    if finding.kind.endswith("within a mode"):
        middle, sd = y.mean(0), y.std(0)
        toward = (np.array(finding.place) - middle) / sd  # to the side of the middle on which the mode lies
        x, y = (t[((t - middle) / sd) @ toward > 0] for t in (x, y))
    return draw(ax, x, y, finding, names)


def _densities(ax: "Axes", x: np.ndarray, y: np.ndarray, finding: Finding, names: tuple[str, ...]) -> str:
    j = finding.columns[0]
    return _histograms(ax, x[:, j], y[:, j], short(names[j]))


def _all_densities(ax: "Axes", x: np.ndarray, y: np.ndarray, finding: Finding, names: tuple[str, ...]) -> str:
    """Of all columns together, each standardized by the model."""
    center, sd = y.mean(0), y.std(0)
    _histograms(ax, ((x - center) / sd).ravel(), ((y - center) / sd).ravel(), "standard deviations")
    return "All columns in one, in standard deviations of the model."


def _histograms(ax: "Axes", x: np.ndarray, y: np.ndarray, label: str) -> str:
    ends = np.quantile(x, [_RANGE, 1 - _RANGE]), np.quantile(y, [_RANGE, 1 - _RANGE])
    bins = np.linspace(np.min(ends), np.max(ends), int(np.clip(3 * len(x) ** (1 / 3), 12, 36))).tolist()
    beside(ax, x, y, bins)
    for values, color in ((y, MODEL), (x, DATA)):
        ax.axvline(values.mean(), color=color, linewidth=1.4, linestyle="--")
    ax.set(xlabel=label, yticks=[])
    _legend(ax)
    return "Dashed: the means."


def _scatter(ax: "Axes", x: np.ndarray, y: np.ndarray, finding: Finding, names: tuple[str, ...]) -> str:
    j, k = _across_first(finding)
    _clouds(ax, x, y, j, k)
    turn = np.linspace(0, 2 * np.pi, 120)
    for points, color in ((y[:, [j, k]], MODEL), (x[:, [j, k]], DATA)):
        root = np.linalg.cholesky(np.cov(points.T) + 1e-12 * np.eye(2))
        _outlined(ax, points.mean(0)[:, None] + _ELLIPSE * root @ [np.cos(turn), np.sin(turn)], color)
    _labeled(ax, names[j], names[k])
    return "Ellipses: two standard deviations of the data and of the model."


def _outlined(ax: "Axes", curve: np.ndarray, color: str) -> None:
    ax.plot(*curve, color=INK, linewidth=3.2)
    ax.plot(*curve, color=color, linewidth=2)


def _bend(ax: "Axes", x: np.ndarray, y: np.ndarray, finding: Finding, names: tuple[str, ...]) -> str:
    """With the parabola through each cloud."""
    j, k = _across_first(finding)
    _clouds(ax, x, y, j, k)
    for points, color in ((y, MODEL), (x, DATA)):
        low, high = np.quantile(points[:, j], [0.02, 0.98])
        along = np.linspace(low, high, 60)
        parabola = np.polyfit(points[:, j], points[:, k], 2)
        _outlined(ax, np.stack([along, np.polyval(parabola, along)]), color)
    _labeled(ax, names[j], names[k])
    return "Curves: the parabolas that fit best."


def _quantiles(ax: "Axes", x: np.ndarray, y: np.ndarray, finding: Finding, names: tuple[str, ...]) -> str:
    """Of a column, of the distance from the middle, or of all values together."""
    if finding.kind in ("tails", "skewness"):
        j = finding.columns[0]
        return _qq(ax, x[:, j], y[:, j], short(names[j]))
    x, y = ((t - y.mean(0)) / y.std(0) for t in (x, y))
    if finding.kind == "radial tails":
        return _qq(ax, np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1), "distance from the middle")
    return _qq(ax, x.ravel(), y.ravel(), "standard deviations")


def _qq(ax: "Axes", x: np.ndarray, y: np.ndarray, label: str) -> str:
    at = (np.arange(min(_QUANTILES, len(x))) + 0.5) / min(_QUANTILES, len(x))
    theirs, ours = np.quantile(y, at), np.quantile(x, at)
    ax.plot([theirs[0], theirs[-1]], [theirs[0], theirs[-1]], color=MODEL, linewidth=1.8, label="model")
    ax.plot(theirs, ours, ".", markersize=4, color=DATA, label="data")
    ax.set(xlabel=f"{label}, model", ylabel=f"{label}, data" if len(label) < 16 else "data")
    _legend(ax)
    return "Quantiles of the data against those of the model; on the line they agree."


def _map(ax: "Axes", x: np.ndarray, y: np.ndarray, finding: Finding, names: tuple[str, ...]) -> str:
    """The two columns in which a cell or a mode is furthest off, with a ring about the draws in it."""
    columns, center = list(finding.columns), np.array(finding.place)
    if len(columns) == 1:
        note = _densities(ax, x, y, finding, names)
        ax.axvline(center[columns[0]], color=ALARM, linewidth=2)
        return f"Red line: the place. {note}"
    j, k = columns
    _clouds(ax, x, y, j, k)
    assert finding.expected is not None and finding.estimate is not None
    sd = y.std(0)
    distance = (((y - center) / sd) ** 2).sum(1)
    share = finding.expected / (1 if finding.kind == "mode" else len(x))
    inside = y[np.argsort(distance)[: max(5, round(share * len(y)))]][:, [j, k]]
    turn = np.linspace(0, 2 * np.pi, 80)
    reach = np.quantile(np.abs(inside - center[[j, k]]), 0.9, axis=0)
    ring = np.stack([center[j] + reach[0] * np.cos(turn), center[k] + reach[1] * np.sin(turn)])
    _outlined(ax, ring, ALARM)
    counts = "{:.0%} of the points" if finding.kind == "mode" else "{:.0f} points"
    title = f"{counts}, {counts.split()[0]} expected"
    ax.set_title(title.format(finding.estimate, finding.expected), pad=22)
    _labeled(ax, names[j], names[k])
    return "Red ring: the place."


def _loadings(ax: "Axes", x: np.ndarray, y: np.ndarray, finding: Finding, names: tuple[str, ...]) -> str:
    loading = np.array(finding.place)
    shown = np.argsort(-np.abs(loading))[:_BARS]
    colors = [ALARM if j in finding.columns else QUIET for j in shown]
    ax.barh(range(len(shown)), loading[shown], color=colors)
    ax.axvline(0, color=INK, linewidth=0.6)
    ax.set_yticks(range(len(shown)), [short(names[j]) for j in shown])
    ax.set(xlabel="part in the common direction", ylim=(len(shown) - 0.5, -0.5))
    return "Red: the columns that take part."


def _conditional(ax: "Axes", x: np.ndarray, y: np.ndarray, finding: Finding, names: tuple[str, ...]) -> str:
    """Residuals of y over the covariate that a finding is about, and in slices of it."""
    if len(finding.columns) == 1:
        return _densities(ax, x, y, finding, names)
    j, k = finding.columns[0], finding.columns[-1]
    _clouds(ax, x, y, j, k)
    for points, color in ((y, MODEL), (x, DATA)):
        edges = np.unique(np.quantile(x[:, j], np.linspace(0, 1, _SLICES + 1)))
        slices = [points[(points[:, j] >= a) & (points[:, j] <= b)] for a, b in pairwise(edges)]
        enough = [part for part in slices if len(part) > 1]
        across, mean, spread = np.array(
            [(part[:, j].mean(), part[:, k].mean(), part[:, k].std()) for part in enough]
        ).T
        _outlined(ax, np.stack([across, mean]), color)
        for end in (mean - spread, mean + spread):
            ax.plot(across, end, color=color, linewidth=1.2, linestyle="--")
    if finding.kind.endswith("region"):
        cut, above = finding.place
        ax.axvspan(cut, x[:, j].max() if above else x[:, j].min(), color=ALARM, alpha=0.15, linewidth=0)
    _labeled(ax, names[j], names[k])
    return "Lines: means in slices of the covariate; dashed: a standard deviation to either side."


_Draw = Callable[["Axes", np.ndarray, np.ndarray, Finding, tuple[str, ...]], str]
_DRAWN: dict[str, _Draw] = {
    "shift": _densities,
    "spread": _densities,
    "skewness": _densities,
    "tails": _quantiles,
    "radial tails": _quantiles,
    "tails, all alike": _quantiles,
    "scale": _all_densities,
    "shift, all alike": _all_densities,
    "pair": _scatter,
    "extreme together": _scatter,
    "bend": _bend,
    "wide direction": _loadings,
    "narrow direction": _loadings,
    "cell": _map,
    "mode": _map,
}


def _clouds(ax: "Axes", x: np.ndarray, y: np.ndarray, j: int, k: int) -> None:
    import torch

    style: Any = {"markersize": 2.6, "markeredgewidth": 0, "alpha": 0.75}
    for points, color, name in ((y, MODEL, "model"), (x, DATA, "data")):
        shown = sample(torch.from_numpy(points))
        ax.plot(shown[:, j], shown[:, k], "o", color=color, label=name, **style)


def _labeled(ax: "Axes", across: str, up: str) -> None:
    ax.set(xlabel=short(across), ylabel=short(up))
    _legend(ax)


def _legend(ax: "Axes") -> None:
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, markerscale=2)


def _across_first(finding: Finding) -> tuple[int, int]:
    """A bend is about (j, k) where x_j goes with the square of x_k, which is drawn across."""
    j, k = finding.columns
    return (k, j) if finding.kind == "bend" else (j, k)
