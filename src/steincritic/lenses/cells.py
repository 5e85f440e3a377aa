"""Cells: how many points fall into each cell of the model's draws.

Counts see wrong weights of separated modes; between these no score tells anything. Modes that lie apart in
few of many columns are found in columns scaled by the score, where they are as narrow as all the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.lenses.lens import Entries, Seen, normal_evidence
from steincritic.rng import Source, derive

_ROUNDS = 15  # of Lloyd's algorithm
_TRIED = 4  # k-means++ candidates per center
_CENTERS, _DRAWS_EACH = 40, 50  # among which modes are found, and draws of each, at least
_VALLEY = 0.25  # draws between two modes, at most, for one at their ends
_LEAST_MODE = 0.01  # share of the draws of a mode
_STEEP = 2.0  # standard deviation of the score across modes that are apart, at least, in those of the model


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Counts in k-means cells of model draws, and in its modes.

    Args:
        counts: numbers of cells; those that would hold fewer than two points each are left out.
    """

    name: ClassVar[str] = "cells"
    counts: tuple[int, ...] = (2, 8, 25)
    whitened: bool = False

    def __post_init__(self) -> None:
        if not self.counts or min(self.counts) < 2:
            raise InputError(f"counts must be numbers of cells, two or more each; got {self.counts}")

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedCells":
        x = draws.x.to(torch.float32)
        fitting = [k for k in self.counts if 2 * k <= min(n, len(x) // 2)]
        half, rest = x[: len(x) // 2], x[len(x) // 2 :]
        parts = [Partition.of(k_means(half, k, seed=derive(seed, "cells", k)), rest) for k in fitting]
        modes = modes_in(half, rest, seed=derive(seed, "modes"))
        steep = draws.score.to(torch.float32).std(0)  # at least 1, and more across modes
        if len(modes.shares) < 2 and bool(steep.isfinite().all()) and float(steep.max()) >= _STEEP:
            modes = modes_in(half * steep, rest * steep, seed=derive(seed, "modes"))
            modes = replace(modes, places=modes.places / steep, units=steep)
        if parts and 2 <= len(modes.shares) <= n // 2:
            parts = [part for part in parts if len(part.shares) != len(modes.shares)]  # much the same
            parts.append(modes)
        return PreparedCells(tuple(parts))


@dataclass(frozen=True, eq=False)
class Partition:
    """Of the space: points belong to the cell of their nearest center, and cells may have several centers."""

    centers: Tensor  # (k, d)
    cells: Tensor  # (k,) of each center, 0 to m - 1
    places: Tensor  # (m, d) in the middle of each cell
    shares: Tensor  # (m,) of the model's draws
    number: str
    numbers: str
    units: Tensor | None = None  # (d,) of the centers, where they are not those of points

    @classmethod
    def of(cls, centers: Tensor, draws: Tensor) -> "Partition":
        k = len(centers)
        labels = torch.arange(k, device=centers.device)
        shares = _shares(_counts(draws[None], centers, labels)[0])
        return cls(centers, labels, centers, shares, f"cell of {k}", f"cells of {k}")

    def of_points(self, x: Tensor) -> Tensor:
        """(n,) the cell of each of (n, d) points."""
        return self.cells[_squares(x, self.centers).argmin(-1)]

    def counts(self, x: Tensor) -> Tensor:
        """(r, m) of (r, n, d)."""
        return _counts(x if self.units is None else x * self.units, self.centers, self.cells)

    def gaps(self, counts: Tensor, n: int) -> Tensor:
        """(r, m): (count - expected) / sqrt(expected) of n points."""
        expected = (n * self.shares).to(counts)
        return (counts - expected) / expected.sqrt()


@dataclass(frozen=True, eq=False)
class PreparedCells:
    linear: ClassVar[bool] = True
    parts: tuple[Partition, ...]

    @property
    def _sizes(self) -> list[int]:
        return [len(part.shares) for part in self.parts]

    @property
    def size(self) -> int:
        return sum(self._sizes)

    @property
    def width(self) -> int:
        return self.size

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        return self.of_sums(self.sums(datasets), len(datasets))

    def sums(self, datasets: ScoredPoints) -> Tensor:
        x = datasets.x.to(torch.float32)
        return torch.cat([x.new_zeros(len(x), 0), *(part.counts(x) for part in self.parts)], -1)

    def of_sums(self, sums: Tensor, n: int) -> Tensor:
        pairs = zip(self.parts, sums.split(self._sizes, -1), strict=True)
        return torch.cat([sums[..., :0], *(part.gaps(counts, n) for part, counts in pairs)], -1)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        out = {}
        for part, fair in zip(self.parts, seen.fair.split(self._sizes, -1), strict=True):
            out[part.number] = normal_evidence(fair.abs().amax(-1))
            if fair.shape[-1] > 2:  # two cells say the same
                out[part.numbers] = fair.square().sum(-1)
        return out

    def by_entry(self, seen: Seen) -> dict[str, Entries]:
        pairs = zip(self.parts, seen.fair.split(self._sizes, -1), strict=True)
        return {part.number: Entries(v, len(v) * ((),), normal_evidence) for part, v in pairs}


def modes_in(x: Tensor, counted: Tensor, *, seed: int) -> Partition:
    """Modes of some draws, with their shares of others: cells whose centers are of one mode together."""
    centers = k_means(x, max(1, min(_CENTERS, len(x) // _DRAWS_EACH)), seed=seed)
    cells = modes_of(x, centers)
    m = int(cells.max()) + 1
    nearest = cells[_squares(x, centers).argmin(-1)]
    count = torch.bincount(nearest, minlength=m).clamp(min=1)[:, None]
    places = torch.zeros(m, x.shape[-1]).to(x).index_add_(0, nearest, x) / count
    shares = _shares(_counts(counted[None], centers, cells)[0])
    return Partition(centers, cells, places, shares, "weight of a mode", "weights of modes")


def modes_of(x: Tensor, centers: Tensor) -> Tensor:
    """(k,) the mode of each center: centers are of one mode if draws lie between them, or between others.

    Between two centers is the middle third of the line; the draws of both cells are counted there and at
    both ends.
    """
    k = len(centers)
    along = x @ centers.mT - centers.square().sum(-1) / 2  # (n, k)
    cell = along.argmax(-1)
    gap = _squares(centers, centers)
    t = 0.5 + (along[:, None, :] - along[:, :, None]) / gap.clamp(min=1e-12)  # (n, from, to)
    in_cell = torch.nn.functional.one_hot(cell, k).bool()
    either = in_cell[:, :, None] | in_cell[:, None, :]
    start, middle, end = (((t - at).abs() < 1 / 6).logical_and_(either).sum(0) for at in (0.0, 0.5, 1.0))
    near = middle >= _VALLEY * torch.minimum(start, end).clamp(min=1)
    share = torch.bincount(cell, minlength=k) / len(x)
    reach = near | near.T | torch.eye(k, dtype=torch.bool, device=x.device)
    for _ in range(max(1, k.bit_length())):
        reach = (reach.to(x) @ reach.to(x)) > 0
    label = reach.to(torch.uint8).argmax(-1)  # the first center that can be reached
    weight = torch.zeros(k).to(share).index_add_(0, label, share)
    large = weight[label] >= _LEAST_MODE
    if not bool(large.any()):
        return torch.zeros_like(label)
    nearest = gap.masked_fill(~large, torch.inf).argmin(-1)
    label = torch.where(large, label, label[nearest])  # a few far draws are no mode
    modes: Tensor = torch.unique(label, return_inverse=True)[1]
    return modes


def k_means(x: Tensor, k: int, *, seed: int) -> Tensor:
    """(k, d) centers by Lloyd's algorithm from a greedy k-means++ start."""
    source = Source(seed, "k-means", device=x.device)
    centers = x[source.integers(len(x), 1)]
    nearest = _squares(x, centers)[:, 0]
    for _ in range(1, k):
        odds = nearest + 1e-12
        tried = x[source.choices(odds, _TRIED)]
        reach = torch.minimum(nearest[:, None], _squares(x, tried))  # (m, tried)
        best = int(reach.sum(0).argmin())
        centers, nearest = torch.cat([centers, tried[best : best + 1]]), reach[:, best]
    for _ in range(_ROUNDS):
        cell = _squares(x, centers).argmin(-1)
        sums = torch.zeros_like(centers).index_add_(0, cell, x)
        count = torch.bincount(cell, minlength=k)[:, None]
        centers = torch.where(count > 0, sums / count.clamp(min=1), centers)
    return centers


def _squares(x: Tensor, centers: Tensor) -> Tensor:
    """|x - c|^2 less |x|^2 where only the nearest matters would be wrong for k-means++, so whole."""
    return (x.square().sum(-1, keepdim=True) - 2 * x @ centers.mT + centers.square().sum(-1)).clamp(min=0)


def _counts(x: Tensor, centers: Tensor, cells: Tensor) -> Tensor:
    """(r, m): points of each of (r, n, d) datasets in each cell."""
    nearest = (x @ centers.mT - centers.square().sum(-1) / 2).argmax(-1)  # (r, n)
    ones = torch.ones_like(nearest, dtype=torch.float32)
    zeros = torch.zeros(len(x), int(cells.max()) + 1, device=x.device)
    return zeros.scatter_add_(1, cells[nearest], ones)


def _shares(counts: Tensor) -> Tensor:
    """Of a cell without any draw, a little."""
    shares = counts / counts.sum() + 1e-4
    return shares / shares.sum()
