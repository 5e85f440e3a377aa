"""Modes: moments within soft halves of the model, so that modes do not hide what goes on inside them.

A model with several modes is wide across them, and an error inside one of them is small beside that. The
direction across is found from draws of the model: there the score differs most from that of a normal law
with the model's covariance, r = s + C^-1 x, so it is the first eigenvector v of E[r r']. A gate
g = sigmoid(t), with t along v, opens for one half, another for the other half, and the fields g e_k and
z_j g e_k, with z centered within the gate, have Stein values

    g s_k + d_k g    and    z_j (g s_k + d_k g) + g [j = k]

of mean zero under the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.lenses.lens import (
    Entries,
    Seen,
    clipped,
    directions,
    normal_evidence,
    pair_columns,
    pairs_of,
    single_columns,
)

MOST_PAIRED = 100  # coordinates up to which all pairs are looked at
_STEEP = 4.0  # of the gate, per standard deviation along v


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Means, spreads and pairs within each of two soft halves of the model."""

    name: ClassVar[str] = "modes"
    whitened: bool = False
    clip: float | None = None

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedModes":
        x, score = draws.x.to(torch.float64), draws.score.to(torch.float64)
        x = x - x.mean(0)
        ridge = 1e-6 * torch.eye(draws.dim, dtype=x.dtype, device=x.device)
        gap = score + torch.linalg.solve(x.T @ x / len(x) + ridge, x.T).T
        v = torch.linalg.eigh(gap.T @ gap / len(x)).eigenvectors[:, -1].to(draws.x)
        along = draws.x @ v
        gate = PreparedModes(draws.dim, v, float(_valley(along)), float(along.std()) or 1.0, ())
        centers = tuple((g * draws.x).mean(0) / g.mean() for g, _ in gate.gates(draws.x))
        return PreparedModes(draws.dim, v, gate.valley, gate.sd, centers, self.clip)


@dataclass(frozen=True, eq=False)
class PreparedModes:
    means: ClassVar[bool] = True
    centered: ClassVar[bool] = True
    dim: int
    v: Tensor  # (d,) across the modes
    valley: float  # between them
    sd: float
    centers: tuple[Tensor, ...]  # (d,) of each gate
    clip: float | None = None

    @property
    def paired(self) -> bool:
        return self.dim <= MOST_PAIRED

    @property
    def size(self) -> int:
        return 2 * (self.dim + (self.dim**2 if self.paired else self.dim))

    def turned(self) -> "PreparedModes":
        """The other gate first."""
        return replace(self, v=-self.v, valley=-self.valley, centers=self.centers[::-1])

    def gates(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each gate (..., n, 1) and its gradient (..., n, d)."""
        t = _STEEP / self.sd * (x @ self.v - self.valley)
        first, second = t.sigmoid()[..., None], (-t).sigmoid()[..., None]
        slope = _STEEP / self.sd * first * second * self.v
        return [(first, slope), (second, -slope)]

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        """Shifts of both gates, then second moments of both."""
        x, n = datasets.x, len(datasets)
        shifts, seconds = [], []
        for (gate, slope), center in zip(self.gates(x), self.centers, strict=True):
            gated = gate * datasets.score + slope
            z, rise = clipped(x - center, self.clip)
            shifts.append(gated.mean(-2))
            if self.paired:
                seconds.append((z.mT @ gated / n + torch.diag_embed((gate * rise).mean(-2))).flatten(-2))
            else:
                seconds.append((z * gated + gate * rise).mean(-2))
        return torch.cat([*shifts, *seconds], -1)

    def _parts(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Shifts and spreads, those of the first half before the others, and (..., 2, .) second moments."""
        shifts, second = values.split([2 * self.dim, self.size - 2 * self.dim], -1)
        second = second.unflatten(-1, (2, -1))
        return shifts, (second[..., :: self.dim + 1] if self.paired else second).flatten(-2), second

    def _pairs(self, second: Tensor) -> Tensor:
        return pairs_of(second.unflatten(-1, (self.dim, self.dim))).flatten(-2)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        shifts, spreads, second = self._parts(seen.fair)
        out = {
            "shift within a mode": normal_evidence(shifts.abs().amax(-1)),
            "spread within a mode": normal_evidence(spreads.abs().amax(-1)),
            "spreads within modes": spreads.square().sum(-1),
        }
        if self.paired and self.dim > 1:
            plain = seen.plain[..., 2 * self.dim :].unflatten(-1, (2, self.dim, self.dim))
            wide, narrow = (widths.amax(-1) for widths in directions(plain))
            out |= {
                "pair within a mode": normal_evidence(self._pairs(second).abs().amax(-1)),
                "second within modes": second.square().sum((-1, -2)),
                "wide direction within a mode": wide,
                "narrow direction within a mode": narrow,
            }
        return out

    def by_entry(self, seen: Seen) -> dict[str, Entries]:
        """Those of the first half, then those of the second."""
        shifts, spreads, second = self._parts(seen.fair)
        columns = 2 * single_columns(self.dim)
        out = {
            "shift within a mode": Entries(shifts, columns, normal_evidence),
            "spread within a mode": Entries(spreads, columns, normal_evidence),
        }
        if self.paired and self.dim > 1:
            columns = 2 * pair_columns(self.dim)
            out["pair within a mode"] = Entries(self._pairs(second), columns, normal_evidence)
        return out

    def in_half(self, x: Tensor, half: int) -> Tensor:
        """(n,): which points the gate of a half is open for."""
        above = x @ self.v.to(x) > self.valley
        return above if half == 0 else ~above


def _valley(along: Tensor) -> Tensor:
    """Halfway between the two centers of a 2-means along the line."""
    cut = along.mean()
    for _ in range(20):
        low, high = along[along <= cut], along[along > cut]
        if not len(low) or not len(high):
            break
        cut = (low.mean() + high.mean()) / 2
    return cut
