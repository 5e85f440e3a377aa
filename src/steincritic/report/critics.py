"""Pictures of a critic: how it was trained, and its witness in one and two dimensions."""

from typing import TYPE_CHECKING

import torch

from steincritic.data.arrays import as_points
from steincritic.data.points import PointsLike, ScoredPoints
from steincritic.display import DARK, GRAY, RED, axes
from steincritic.errors import InputError
from steincritic.models.bounded import coordinates_of
from steincritic.report.drawings import sample
from steincritic.training.critic import Critic
from steincritic.training.fitted import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 3.0  # standard deviations to either side of the middle
_NEAR = 0.3  # standard deviations from the nearest of the data: beyond it a critic has learned nothing
_LOUDEST = 0.95  # quantile of the witness where colors end


def plot_history(history: History, ax: "Axes | None" = None) -> "Axes":
    """λ times the Stein discrepancy, which any λ leaves comparable, and λ itself; a line per critic."""
    ax = axes(ax)
    if not {"stein", "lam"} <= set(history):
        raise InputError(f"a history without stein and lam has no picture: {history!r}")
    step = history["step"] if "step" in history else torch.arange(1, history.epochs + 1)
    ax.plot(step, history["lam"] * history["stein"], color=RED, linewidth=1.3)
    ax.set(xlabel="step" if "step" in history else "epoch", ylabel="λ × Stein discrepancy")
    weight = ax.twinx()
    weight.step(step, history["lam"], color=GRAY, linestyle=":", where="post")
    weight.set(yscale="log", ylabel="λ (dotted)")
    return ax


def plot_witness(critic: Critic, ax: "Axes | None" = None, x: PointsLike | None = None) -> "Axes":
    dim = len(critic.frame.scale)
    if dim > 2 or coordinates_of(critic.model) is not None:
        what = "of a model with bounds" if dim < 3 else f"in {dim} dimensions"
        raise InputError(
            f"the witness {what} has no picture: call witness(x), or history.plot() for its training"
        )
    ax = axes(ax, 5.0, 3.0 if dim == 1 else 4.0)
    points = None if x is None else (x.x if isinstance(x, ScoredPoints) else as_points(x, dim=dim))
    return (_curve if dim == 1 else _map)(critic, ax, points)


def _curve(critic: Critic, ax: "Axes", points: torch.Tensor | None) -> "Axes":
    (at,) = _lines(critic, 200, points)
    ax.plot(at, critic.witness(at[:, None]).cpu(), color=RED)
    ax.axhline(0, color=GRAY, linewidth=1, zorder=0)
    if points is not None:
        cloud = sample(points)
        ax.plot(cloud[:, 0], [0.0] * len(cloud), "|", color=DARK, alpha=0.4, label="data")
        ax.legend(frameon=False)
    ax.set(xlabel="x", ylabel="witness")
    return ax


def _map(critic: Critic, ax: "Axes", points: torch.Tensor | None) -> "Axes":
    """Arrows point to where data are denser than the model says."""
    across, up = _lines(critic, 60, points)
    grid = torch.cartesian_prod(across, up)
    near = _near(critic, grid, points)
    witness = critic.witness(grid).cpu().double()
    limit = float(witness[near].abs().quantile(_LOUDEST)) or 1.0
    shown = torch.where(near, witness.clamp(-limit, limit), torch.nan).view(60, 60).T
    drawn = ax.contourf(across, up, shown, levels=20, vmin=-limit, vmax=limit, cmap="RdBu_r")
    ax.figure.colorbar(drawn, ax=ax, label="witness: red speaks against the model", format="%.2g")
    grid = torch.cartesian_prod(*_lines(critic, 15, points))
    grid = grid[_near(critic, grid, points)]
    gap = critic.score_gap(grid).cpu() * critic.frame.scale.cpu()
    ax.quiver(grid[:, 0], grid[:, 1], -gap[:, 0], -gap[:, 1], color=DARK, width=0.004)
    if points is not None:
        cloud = sample(points)
        ax.plot(cloud[:, 0], cloud[:, 1], "o", markersize=2, color="black", alpha=0.4, label="data")
    limits = [(float(line[0]), float(line[-1])) for line in (across, up)]
    ax.set(xlabel="first column", ylabel="second column", xlim=limits[0], ylim=limits[1])
    return ax


def _near(critic: Critic, grid: torch.Tensor, points: torch.Tensor | None) -> torch.Tensor:
    """Which places have data near by; all of them where no data are given."""
    if points is None:
        return torch.ones(len(grid), dtype=torch.bool)
    scale = critic.frame.scale.to(grid)
    return torch.cdist(grid / scale, points.to(grid) / scale).amin(1) < _NEAR


def _lines(critic: Critic, count: int, points: torch.Tensor | None) -> list[torch.Tensor]:
    """Places along each axis: where the data are, or else where most of the model is."""
    if points is None:
        low = critic.frame.location - _REACH * critic.frame.scale
        high = critic.frame.location + _REACH * critic.frame.scale
    else:
        margin = 0.05 * (points.amax(0) - points.amin(0))
        low, high = points.amin(0) - margin, points.amax(0) + margin
    ends = zip(low.tolist(), high.tolist(), strict=True)
    return [torch.linspace(start, end, count, dtype=torch.float64) for start, end in ends]
