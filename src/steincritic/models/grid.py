"""Exact draws from a density in one or two dimensions, by a grid and rejection."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from steincritic.errors import InputError, ModelError, check_count
from steincritic.models.base import DensityModel, Described, ModelLike, as_model
from steincritic.models.mixture import as_parameter
from steincritic.rng import Source
from steincritic.shapes import Numbers, PerPoint, Points

_COARSE = 128  # cells per side on the first look at the box
_FAR = 30.0  # log-density below the peak that no longer counts
_EDGE = 8.0  # log-density below the peak that the edge of the box must have, or the box cuts the density
_SUMS = 0.01  # by which two sums of the density over the cells may differ, in their logarithms
_FEWEST = 1e-3  # share of proposals that are kept
_ROWS = 2**16  # points asked at a time


class GridModel(Described):
    r"""A model of one or two dimensions with exact draws and a normalized density.

    A coarse grid first cuts the box to where the density is. Each cell then has an envelope: the largest of
    its nine (or three) lattice values plus half of their spread, enough where the log-density is nearly
    quadratic within a cell. A draw is a uniform point in a cell chosen by its envelope, kept with probability
    density over envelope. A proposal above the envelope, a box that cuts the density and too few cells are
    errors, never wrong draws.

    Args:
        model: a density, normalized or not, or whatever `as_model` makes one of.
        low, high: corners of a box that holds the density, (d,) each.
        cells: number per side; fine enough that the log-density bends little within a cell.
    """

    def __init__(self, model: ModelLike, *, low: Numbers, high: Numbers, cells: int = 256) -> None:
        density = as_model(model)
        if not isinstance(density, DensityModel):
            raise InputError(f"a grid needs a log-density, {type(model).__name__} has a score alone")
        self.model = density
        self.low, self.high = as_parameter(low, "low"), as_parameter(high, "high")
        self.dim = self.low.shape[0] if self.low.ndim == 1 else 0
        if self.dim not in (1, 2) or self.high.shape != self.low.shape:
            raise InputError(
                f"a grid has one or two dimensions: low and high of shape (1,) or (2,), got "
                f"{tuple(self.low.shape)} and {tuple(self.high.shape)}"
            )
        if not bool((self.low < self.high).all()):
            raise InputError("every side of the box needs low < high")
        check_count(cells, name="cells", least=8)
        self.cells = cells

    def _about(self) -> str:
        return type(self.model).__name__

    def score(self, x: Points) -> Points:
        return self.model.score(x)

    def log_prob(self, x: Points) -> PerPoint:
        """Normalized by the sum over the cells; the density outside of the box is not cut off."""
        centers, corners = self._grid.log_sums()
        if not abs(centers - corners) < _SUMS:
            raise ModelError(
                f"sums of the density over centers and corners of the cells differ by a factor of "
                f"{(centers - corners).abs().exp():.3g}: {self._too_few}"
            )
        return self.model.log_prob(x) - centers.to(x)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        source = Source(seed, "grid", device=self.low.device)
        kept: list[Tensor] = []
        missing, proposed = n, 0
        while missing > 0:
            proposals = missing + missing // 4 + 16
            kept.append(self._round(proposals, source)[:missing])
            missing -= len(kept[-1])
            proposed += proposals
            if proposed > 10 / _FEWEST and n - missing < _FEWEST * proposed:
                raise ModelError(
                    f"of {proposed} proposals {n - missing} were kept, the envelope is far above the "
                    f"density: {self._too_few}"
                )
        return torch.cat(kept).to(self.low.dtype)

    @property
    def cuts(self) -> bool:
        """Does the density reach beyond the box?"""
        return self._coarse.edge < _EDGE

    @cached_property
    def _coarse(self) -> "_Grid":
        return _Grid.of(self.model, self.low.double(), self.high.double(), _COARSE)

    @cached_property
    def _grid(self) -> "_Grid":
        if self.cuts:
            raise ModelError(
                f"the box cuts the density: at its edge this is {self._coarse.edge:.1f} nats below the peak, "
                f"and {_EDGE:g} are asked for; give a wider box"
            )
        return _Grid.of(self.model, *self._coarse.support(), self.cells)

    @property
    def _too_few(self) -> str:
        return f"{self.cells} cells per side are too few for it: give more, or a smaller box"

    def _round(self, proposals: int, source: Source) -> Points:
        """Those of some proposals that are kept."""
        grid = self._grid
        u = source.uniforms(proposals, self.dim + 2, dtype=torch.float64)
        cell = torch.searchsorted(grid.cumulative, u[:, -1] * grid.cumulative[-1], right=True)
        cell = cell.clamp(max=len(grid.cumulative) - 1)
        x = grid.corner(cell) + u[:, : self.dim] * grid.size
        ratio = _log_prob(self.model, x) - grid.envelope[cell]
        if bool((ratio > 0).any()):
            raise ModelError(
                f"the density rises above its envelope within a cell of the grid: {self._too_few}"
            )
        return x[u[:, -2].log() < ratio]


@dataclass(frozen=True, eq=False)
class _Grid:
    """A box in cells: a log-envelope for each, and the sum of the density over all."""

    low: Tensor  # (d,)
    size: Tensor  # (d,) of one cell
    shape: tuple[int, ...]
    center: Tensor  # (cells,) log-density
    corners: Tensor  # (cells + 1, ...) log-density
    envelope: Tensor  # (cells,) log of a bound on the density within
    cumulative: Tensor  # (cells,) of the envelope's mass

    @classmethod
    def of(cls, model: DensityModel, low: Tensor, high: Tensor, cells: int) -> "_Grid":
        shape = (cells,) * len(low)
        size = (high - low) / cells
        # a lattice of half cells: corners, middles of edges and centers of the cells
        lattice = _lattice(low, size / 2, tuple(2 * k + 1 for k in shape))
        values = _log_prob(model, lattice).view(*(2 * k + 1 for k in shape))
        if bool((values == torch.inf).any() | values.isnan().any()):
            raise ModelError("the log-density is NaN or infinite within the box of the grid")
        if not bool(values.isfinite().any()):
            raise ModelError("the density is zero all over the box of the grid: give another box")
        highest, lowest = _pooled(values), -_pooled(-values)
        bend = torch.where(lowest.isfinite(), highest - lowest, 1.0)
        envelope = (highest + 0.5 * bend).reshape(-1)
        center = values[(slice(1, None, 2),) * len(low)].reshape(-1)
        mass = (envelope - envelope.max()).exp()
        corners = values[(slice(None, None, 2),) * len(low)]
        return cls(low, size, shape, center, corners, envelope, mass.cumsum(0))

    def log_sums(self) -> tuple[Tensor, Tensor]:
        """log of the midpoint sum of the density, and of the sum over corners of cells."""
        unit = self.size.log().sum()
        return self.center.logsumexp(0) + unit, self.corners.reshape(-1).logsumexp(0) + unit

    @property
    def peak(self) -> Tensor:
        """The largest log-density seen."""
        return torch.maximum(self.center.max(), self.corners.max())

    @property
    def edge(self) -> float:
        """How far the corners on the edge of the box lie below the peak."""
        sides = [self.corners.select(axis, side) for axis in range(len(self.shape)) for side in (0, -1)]
        return float(self.peak - torch.cat([side.reshape(-1) for side in sides]).max())

    def corner(self, cell: Tensor) -> Tensor:
        index = torch.stack(torch.unravel_index(cell, self.shape), dim=-1)
        return self.low + index * self.size

    def support(self) -> tuple[Tensor, Tensor]:
        """Corners of the smallest box of cells, and one cell around, where the density counts."""
        top = torch.minimum(self.envelope.max(), self.peak + 1)  # an envelope may be far above the density
        counts = (self.envelope > top - _FAR).nonzero()[:, 0]
        corners = self.corner(counts)
        low, high = corners.amin(0) - self.size, corners.amax(0) + 2 * self.size
        end = self.low + self.size * torch.tensor(self.shape).to(self.size)
        return torch.maximum(low, self.low), torch.minimum(high, end)


def _lattice(low: Tensor, step: Tensor, shape: tuple[int, ...]) -> Tensor:
    axes = [a + s * torch.arange(k).to(low) for a, s, k in zip(low, step, shape, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).view(-1, len(shape))


def _pooled(values: Tensor) -> Tensor:
    """The largest of the three (or nine) lattice values of each cell."""
    pool = torch.nn.functional.max_pool1d if values.ndim == 1 else torch.nn.functional.max_pool2d
    return pool(values[None, None], 3, stride=2)[0, 0]


def _log_prob(model: DensityModel, x: Points) -> PerPoint:
    with torch.no_grad():
        return torch.cat([model.log_prob(part).double() for part in x.split(_ROWS)])
