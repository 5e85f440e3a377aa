"""Draws of a model beside the data: a picture to watch learning by."""

from pathlib import Path
from typing import Any

from torch import Tensor

from steincritic.report.style import ACCENT, INK, save, styled

_SHOWN = 2000  # rows, at most
_TILES = (4, 8)  # images of each kind


def draw_samples(
    data: Tensor, draws: Tensor, path: Path, *, image_shape: tuple[int, ...] | None = None
) -> Path:
    """Histograms in one dimension, the first two columns beyond, galleries of images."""
    from matplotlib import pyplot

    with styled():
        figure, axes = pyplot.subplots(1, 2, figsize=(6.4, 3.2), constrained_layout=True)
        for ax, title, x in zip(axes, ("data", "model"), (data, draws), strict=True):
            ax.set_title(title)
            shown = x[:_SHOWN].detach().cpu().double()
            if image_shape is not None:
                _gallery(ax, shown, image_shape)
            elif x.shape[1] == 1:
                ax.hist(shown[:, 0].numpy(), bins=50, density=True, color=INK)
            else:
                color = INK if title == "data" else ACCENT
                ax.plot(*shown[:, :2].T.numpy(), ".", markersize=1.5, color=color)
                ax.set(xlabel="x1", ylabel="x2")
        if image_shape is None:
            _same_limits(axes, both=data.shape[1] > 1)
        return save(figure, path)


def _gallery(ax: Any, x: Tensor, shape: tuple[int, ...]) -> None:
    rows, columns = _TILES
    tiles = x[: rows * columns].view(-1, *shape)
    while len(tiles) < rows * columns:
        tiles = tiles.repeat(2, *(1 for _ in shape))[: rows * columns]
    tiles = tiles.view(rows, columns, *shape).transpose(1, 2)
    picture = tiles.reshape(rows * shape[0], columns * shape[1], *shape[2:])
    low, high = picture.min(), picture.max()
    ax.imshow(((picture - low) / (high - low).clamp_min(1e-12)).numpy(), cmap="gray_r")
    ax.set_axis_off()


def _same_limits(axes: Any, *, both: bool) -> None:
    axes[1].set_xlim(axes[0].get_xlim())
    if both:
        axes[1].set_ylim(axes[0].get_ylim())
