"""Cells: how many points fall into each cell of the model's draws.

The one lens that sees wrong weights of separated modes: between them no score tells anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.lenses.lens import Entries, Seen, normal_evidence
from steincritic.rng import derive, generator

_ROUNDS = 15  # of Lloyd's algorithm
_TRIED = 4  # k-means++ candidates per center


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Counts in k-means cells of model draws.

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
        half = x[: len(x) // 2]
        centers = [k_means(half, k, seed=derive(seed, "cells", k)) for k in fitting]
        shares = [_counts(x[None, len(half) :], c)[0] / (len(x) - len(half)) for c in centers]
        return PreparedCells(centers, [(s + 1e-4) / (s + 1e-4).sum() for s in shares])


@dataclass(frozen=True, eq=False)
class PreparedCells:
    centers: list[Tensor]  # (k, d) each
    shares: list[Tensor]  # (k,) of the model's draws

    @property
    def size(self) -> int:
        return sum(map(len, self.centers))

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        """(count - expected) / sqrt(expected), over all cells of all partitions."""
        x = datasets.x.to(torch.float32)
        n = len(datasets)
        gaps = [
            (_counts(x, centers) - n * share) / (n * share).sqrt()
            for centers, share in zip(self.centers, self.shares, strict=True)
        ]
        return torch.cat(gaps, -1) if gaps else x.new_zeros(len(x), 0)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        out = {}
        for fair in seen.fair.split([len(c) for c in self.centers], -1):
            k = fair.shape[-1]
            out[f"cell of {k}"] = normal_evidence(fair.abs().amax(-1))
            if k > 2:  # two cells say the same
                out[f"cells of {k}"] = fair.square().sum(-1)
        return out

    def by_entry(self, seen: Seen) -> dict[str, Entries]:
        parts = seen.fair.split([len(c) for c in self.centers], -1)
        return {f"cell of {len(part)}": Entries(part, len(part) * ((),), normal_evidence) for part in parts}


def k_means(x: Tensor, k: int, *, seed: int) -> Tensor:
    """(k, d) centers by Lloyd's algorithm from a greedy k-means++ start."""
    source = generator(seed, "k-means", device=x.device)
    centers = x[torch.randint(len(x), (1,), generator=source, device=x.device)]
    nearest = _squares(x, centers)[:, 0]
    for _ in range(1, k):
        odds = nearest + 1e-12
        tried = x[torch.multinomial(odds, _TRIED, replacement=True, generator=source)]
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


def _counts(x: Tensor, centers: Tensor) -> Tensor:
    """(r, k): points of each of (r, n, d) datasets whose nearest center is each."""
    k = len(centers)
    cell = (x @ centers.mT - centers.square().sum(-1) / 2).argmax(-1)  # (r, n)
    ones = torch.ones_like(cell, dtype=torch.float32)
    return torch.zeros(len(x), k, device=x.device).scatter_add_(1, cell, ones)
