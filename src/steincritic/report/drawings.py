"""The figures of the report, as inline SVG that follows the page's colors."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from steincritic.diagnosis.check_result import CheckResult
from steincritic.diagnosis.regions import Condition, Region
from steincritic.models.bounded import coordinates_of
from steincritic.report.style import styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA, MODEL, ALARM, QUIET = "#d1495b", "#5b8db8", "#d63a2b", "#8a95a1"  # 3:1 on a white and a dark card
INK = "#010203"  # stands for the page's text color, whatever it is
_CLOUD = 400  # points drawn of a cloud
_BARS = 15  # coordinates
_NAME = 24  # letters of a column's name beside an axis
_SHADE: Any = {"color": ALARM, "alpha": 0.17, "linewidth": 0}


def null_histogram(diagnosis: CheckResult) -> str:
    test = diagnosis.test
    with drawing(4.1, 2.2) as (figure, ax):
        values = test.null_distribution.cpu().numpy()
        ax.hist(values, bins=min(40, max(8, len(values) // 4)), color=MODEL, label="under the model")
        ax.axvline(test.statistic, color=ALARM, linewidth=2, label="these data")
        ax.set(xlabel="test statistic", yticks=[])
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)  # clear of the line
    return as_svg(figure, "null")


def witness_histogram(diagnosis: CheckResult) -> str:
    half = diagnosis.halves.first
    with drawing(4.1, 2.2) as (figure, ax):
        values = diagnosis.points.witness.numpy()
        reference = values if half.draws is None else np.concatenate([values, half.of_draws.witness.numpy()])
        low, high = np.quantile(reference, [0.002, 0.998])
        bins = np.linspace(low, high, 50).tolist()
        drawn = None if half.draws is None else np.clip(half.of_draws.witness.numpy(), low, high)
        beside(ax, np.clip(values, low, high), drawn, bins, "model draws")
        ax.axvline(0, color=INK, linewidth=0.6)
        ax.set(xlabel="witness", yticks=[])
        ax.legend(loc="best")
    return as_svg(figure, "witness")


def beside(
    ax: "Axes", data: np.ndarray, drawn: np.ndarray | None, bins: list[float], model: str = "model"
) -> None:
    """Histograms of data and of draws of the model."""
    if drawn is not None:
        ax.hist(drawn, bins=bins, density=True, color=MODEL, alpha=0.7, label=model)
    ax.hist(data, bins=bins, density=True, histtype="step", color=DATA, linewidth=1.8, label="data")


def training_curves(diagnosis: CheckResult) -> str:
    with drawing(4.1, 2.2) as (figure, ax):
        for half, name, color in zip(
            diagnosis.halves, ("first half", "second half"), (DATA, MODEL), strict=True
        ):
            stein = half.critic.history["stein"] * half.critic.history["lam"]
            ax.plot(range(1, len(stein) + 1), stein.cpu().numpy(), color=color, linewidth=1.3, label=name)
        ax.set(xlabel="epoch", ylabel="λ × Stein discrepancy")
        ax.legend(loc="best")
        stage = ax.twinx()
        lam = diagnosis.halves.first.critic.history["lam"].cpu().numpy()
        stage.step(range(1, len(lam) + 1), lam, color=INK, linewidth=0.9, linestyle=":", where="post")
        stage.set(yscale="log", ylabel="λ (dotted)")
    return as_svg(figure, "training")


def coordinate_bars(diagnosis: CheckResult) -> str:
    shown, wrong = diagnosis.coordinates[:_BARS], set(diagnosis.wrong_coordinates)
    with drawing(4.1, 0.22 * len(shown) + 0.7) as (figure, ax):
        ax.barh(
            range(len(shown)),
            [c.z for c in shown],
            height=min(0.8, 0.35 * len(shown)),
            color=[ALARM if c in wrong else QUIET for c in shown],
        )
        ax.axvline(0, color=INK, linewidth=0.6)
        ax.set_yticks(range(len(shown)), [short(c.name) for c in shown])
        ax.set(xlabel="z of its share", ylim=(len(shown) - 0.5, -0.5))
    return as_svg(figure, "coordinates")


def region_plot(diagnosis: CheckResult, region: Region, number: int) -> str:
    """Data and model draws in the two columns that tell most, the rule's box shaded."""
    columns = _telling_columns(diagnosis, region)
    data = sample(diagnosis.data.x, seed=number)
    draws = None if diagnosis.halves.draws is None else sample(diagnosis.halves.draws.x, seed=number)
    with drawing(2.9, 2.3) as (figure, ax):
        if len(columns) == 1:
            _one_column(ax, diagnosis, columns[0])
        else:
            for x, color, name in ((draws, MODEL, "model"), (data, DATA, "data")):
                if x is not None:
                    ax.plot(x[:, columns[0]], x[:, columns[1]], ".", markersize=2, color=color, label=name)
            ax.set(xlabel=short(diagnosis.names[columns[0]]), ylabel=short(diagnosis.names[columns[1]]))
            ax.legend(loc="best", markerscale=3)
        _shade(ax, region.conditions, columns)
    return as_svg(figure, f"region{number}")


def _telling_columns(diagnosis: CheckResult, region: Region) -> list[int]:
    """The column of a wrong shape first, then those whose conditions leave most of the data out."""
    x = diagnosis.data.x.detach().cpu().double().numpy()

    def left_out(column: int) -> float:
        inside = [c.holds(x) for c in region.conditions if c.column == column]
        return float(1 - np.all(inside, axis=0).mean())

    columns = sorted({c.column for c in region.conditions}, key=left_out, reverse=True)
    first = [diagnosis.names.index(region.along)] if region.along in diagnosis.names else []
    return list(dict.fromkeys([*first, *columns]))[:2]


def _one_column(ax: "Axes", diagnosis: CheckResult, column: int) -> None:
    data = diagnosis.data.x[:, column].cpu().numpy()
    draws = diagnosis.halves.draws
    drawn = data if draws is None else draws.x[:, column].cpu().numpy()
    spans = np.quantile(data, [0.002, 0.998]), np.quantile(drawn, [0.002, 0.998])
    bins = np.linspace(np.min(spans), np.max(spans), 40).tolist()
    beside(ax, data, None if draws is None else drawn, bins)
    ax.set(xlabel=short(diagnosis.names[column]), yticks=[], ylim=(0, 1.2 * ax.get_ylim()[1]))
    ax.legend(loc="upper center", ncols=2)


def _shade(ax: "Axes", conditions: tuple[Condition, ...], columns: list[int]) -> None:
    """The part of the picture where the rule holds."""
    from matplotlib.patches import Rectangle

    frame = [ax.get_xlim(), ax.get_ylim()]
    inner = [list(ends) for ends in frame]
    for condition in conditions:
        if condition.column in columns:
            ends = inner[columns.index(condition.column)]
            if condition.above:
                ends[0] = max(ends[0], condition.cut)
            else:
                ends[1] = min(ends[1], condition.cut)
    (left, right), (bottom, top) = inner
    ax.add_patch(Rectangle((left, bottom), right - left, top - bottom, **_SHADE))
    ax.set(xlim=frame[0], ylim=frame[1])


def field_plot(diagnosis: CheckResult) -> tuple[str, str] | None:
    """Arrows of s_p - s_q for the most telling pair of coordinates, and what the picture shows.

    In standard deviations, so that neither axis wins by its unit; none where the model is not rejected, as
    they would show chance.
    """
    if not diagnosis.rejected or diagnosis.covariates:  # critics of residuals see no single y
        return None
    if coordinates_of(diagnosis.critic.model) is not None:
        return None  # of a model with bounds the field is in other coordinates
    single = [c for c in diagnosis.coordinates if c.first == c.last]
    if not single:
        return None
    x = diagnosis.data.x.to(torch.float64).cpu()
    if len(single) == 1:
        low, high = torch.quantile(x[:5000, 0], torch.tensor([0.005, 0.995], dtype=torch.float64)).tolist()
        line = torch.linspace(low, high, 200, dtype=torch.float64)[:, None]
        with drawing(4.1, 2.2) as (figure, ax):
            ax.plot(line[:, 0], -_mean_gap(diagnosis, line)[:, 0], color=DATA)
            ax.axhline(0, color=INK, linewidth=0.6)
            ax.set(xlabel=short(diagnosis.names[0]), ylabel="score gap")
        return as_svg(figure, "field"), (
            f"The score of the data less that of the model along {single[0].name}: where the line is above "
            f"zero, the data's density rises more steeply than the model's."
        )
    a, b = single[0].first, single[1].first
    spans = [torch.quantile(x[:5000, j], torch.tensor([0.02, 0.98], dtype=torch.float64)) for j in (a, b)]
    grid = torch.cartesian_prod(*(torch.linspace(float(s[0]), float(s[1]), 15).double() for s in spans))
    at = x.median(0).values.expand(len(grid), -1).clone()
    at[:, a], at[:, b] = grid[:, 0], grid[:, 1]
    gap = _mean_gap(diagnosis, at) * x.std(0).numpy()
    with drawing(4.1, 3.3) as (figure, ax):
        cloud = sample(x)
        ax.plot(cloud[:, a], cloud[:, b], "o", markersize=3, markeredgewidth=0, color=DATA, alpha=0.8)
        ax.quiver(*grid.T.numpy(), -gap[:, a], -gap[:, b], color=INK, width=0.003)
        ax.set(
            xlabel=short(diagnosis.names[a]),
            ylabel=short(diagnosis.names[b]),
            xlim=spans[0].tolist(),
            ylim=spans[1].tolist(),
        )
    others = "" if diagnosis.data.dim == 2 else " The other coordinates are at their medians."
    return as_svg(figure, "field"), (
        f"Arrows point to where data are denser than the model says, in {diagnosis.names[a]} and "
        f"{diagnosis.names[b]}; red dots are data.{others}"
    )


def _mean_gap(diagnosis: CheckResult, at: torch.Tensor) -> np.ndarray:
    gaps = [half.critic.score_gap(at.to(diagnosis.data.x)).double().cpu() for half in diagnosis.halves]
    return torch.stack(gaps).mean(0).numpy()


def sample(x: torch.Tensor, *, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).permutation(len(x))[:_CLOUD]
    out: np.ndarray = x.detach().cpu().double().numpy()[rows]
    return out


def short(name: str) -> str:
    """A column's name that fits beside an axis."""
    return name if len(name) <= _NAME else name[: _NAME - 1].rstrip() + "…"


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple["Figure", "Axes"]]:
    """A figure narrow enough for its letters to be read on a phone."""
    import matplotlib
    from matplotlib.figure import Figure

    ink: Any = dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    )
    sizes: Any = dict.fromkeys(("font.size", "legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 9)
    plain: Any = {"svg.fonttype": "none", "text.parse_math": False}  # a $ in a name is a $
    with styled(), matplotlib.rc_context({**ink, **sizes, **plain}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


def as_svg(figure: "Figure", salt: str) -> str:
    """Without a prologue, with names that no other drawing uses, in the page's own colors."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has the letters
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)  # of use in files only
    text = text.replace("xlink:href", "href").replace(INK, "currentColor")
    text = re.sub(r'\bid="', f'id="{salt}-', text)
    text = re.sub(r'href="#', f'href="#{salt}-', text)
    text = re.sub(r"url\(#", f"url(#{salt}-", text)
    return re.sub(r"\s*\n\s*", "\n", text)
