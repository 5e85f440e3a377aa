"""Dependence beyond correlation: third and fourth moments of pairs, as Stein values.

x_j (x_k s_k + 1)            x_j goes with the square of x_k: a bend, or a spread that grows
(x_j^2 - 1)(x_k s_k + 1)     x_j and x_k are extreme together
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.lenses.lens import (
    Entries,
    Seen,
    clipped,
    normal_evidence,
    pair_columns,
    pairs_of,
)

MOST = 60  # coordinates up to which it looks


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """Pairs of coordinates that depend on each other beyond their correlation."""

    name: ClassVar[str] = "dependence"
    whitened: bool = False
    clip: float | None = None

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedDependence":
        return PreparedDependence(draws.dim, self.clip)


@dataclass(frozen=True)
class PreparedDependence:
    means: ClassVar[bool] = True
    centered: ClassVar[bool] = True
    dim: int
    clip: float | None = None

    @property
    def looks(self) -> bool:
        return 1 < self.dim <= MOST

    @property
    def left_out(self) -> str | None:
        if self.dim <= MOST:
            return None
        return f"Dependence beyond correlation was left out: {self.dim} columns are more than {MOST}."

    @property
    def size(self) -> int:
        return 2 * self.dim**2 if self.looks else 0

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        (x, slope), n = clipped(datasets.x, self.clip), len(datasets)
        if not self.looks:
            return x.new_zeros(len(x), 0)
        own = x * datasets.score + slope
        bend, extreme = x.mT @ own / n, (x * x - 1).mT @ own / n
        return torch.cat([bend.flatten(-2), extreme.flatten(-2)], -1)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        if not self.looks:
            return {}
        bend, extreme = seen.fair.unflatten(-1, (2, self.dim, self.dim)).unbind(-3)
        off = ~torch.eye(self.dim, dtype=torch.bool, device=bend.device)
        bends, extremes = bend[..., off], pairs_of(extreme)
        return {
            "bend": normal_evidence(bends.abs().amax(-1)),
            "bends, many": bends.square().sum(-1),
            "extreme together": normal_evidence(extremes.abs().amax(-1)),
            "extremes, many": extremes.square().sum(-1),
        }

    def by_entry(self, seen: Seen) -> dict[str, Entries]:
        """A bend is about (j, k) where x_j goes with the square of x_k."""
        if not self.looks:
            return {}
        bend, extreme = seen.fair.unflatten(-1, (2, self.dim, self.dim)).unbind(-3)
        off = ~torch.eye(self.dim, dtype=torch.bool)
        ordered = tuple(tuple(pair) for pair in off.nonzero().tolist())
        return {
            "bend": Entries(bend[off.to(bend.device)], ordered, normal_evidence),
            "extreme together": Entries(pairs_of(extreme), pair_columns(self.dim), normal_evidence),
        }
