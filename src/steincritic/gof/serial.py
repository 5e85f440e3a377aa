"""Rows that depend on the rows before them: how far, by their Stein values, and in which blocks signs change.

What counts is not how slowly a chain moves but how slowly the Stein values do that a test sums up. Block sums
of them are nearly independent where blocks are several times as long as this takes, and nearly symmetric, so
that a sign per block makes what the data might have been.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.data.frame import Frame, Whitening
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_count
from steincritic.lenses.lens import clipped
from steincritic.models.mixing import autocorrelation_time
from steincritic.rng import generator

CLIP = 3.0  # standard deviations
WHITENED = 4  # points per coordinate from which on a covariance is believed
# By hand on autoregressions of 50 to 1,600 independent draws' worth, seeds 1 to 3.
_LONG, _SHORT = 16.0, 4.0  # of a block, in rows for which correlations last: where many are left, where few
_MANY, _FEWEST = 60, 16  # blocks
_SHARED = 0.75  # of the first-order error of a variance, taken for what neighboring blocks have in common
_ORDERS, _RARE = 199, 0.1  # of the test for any dependence: orders tried, accepted false alarms
_LAGS = 2


def stein_series(points: ScoredPoints, chains: int = 1) -> Tensor:
    """(chains, steps, k): Stein values of means and spreads, of coordinates and of uncorrelated ones."""
    standard = Frame.of(points.x).enter(points.to("cpu", torch.float64))
    views = [standard]
    if len(points) >= WHITENED * points.dim > WHITENED:
        views.append(Whitening.by_scores(standard).enter(standard))
    parts = []
    for view in views:
        x, slope = clipped(view.x, CLIP)
        parts += [view.score, x * view.score + slope]
    return torch.cat(parts, -1).view(chains, len(points) // chains, -1)


def slowness_if_any(series: Tensor, *, seed: int) -> float:
    """How many rows in a row are worth one; 1 where they go with those one or two before no more than in
    other orders.

    Two looks, at the largest correlation and at the sum of their squares. Each order of independent rows is
    as likely as the others, so that these are taken for dependent in 10 % of cases at most.
    """
    flat = series.flatten(0, 1)
    values = (flat - flat.mean(0)) / flat.std(0).clamp(min=1e-300)
    source = generator(seed, "orders")
    orders = [torch.arange(len(flat)), *(torch.randperm(len(flat), generator=source) for _ in range(_ORDERS))]
    lags = range(1, min(_LAGS, series.shape[1] - 1) + 1)
    correlations = torch.stack(
        [
            torch.cat([(x[:, lag:] * x[:, :-lag]).mean((0, 1)) for lag in lags])
            for x in (values[order].view_as(series) for order in orders)
        ]
    ).square()
    looks = torch.stack([correlations.amax(-1), correlations.sum(-1)], -1)
    pvalues = (looks >= looks[0]).double().mean(0)  # the order of the data counts among them
    return autocorrelation_time(series) if float(pvalues.min()) <= _RARE / 2 else 1.0


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows in a row that share a sign."""

    lengths: Tensor  # (m,) rows of each
    shrink: float = 1.0  # of a sum, for what neighboring blocks still have in common

    @classmethod
    def single(cls, n: int) -> "Blocks":
        return cls(torch.ones(n, dtype=torch.long))

    @classmethod
    def of(cls, n: int, chains: int, slowness: float) -> "Blocks":
        """Of n rows, chains of one length; no block is in two chains, nor in two halves of the rows.

        A chain whose correlations fall off geometrically has block sums whose variance is too small by
        (slowness - 1 / slowness) / (2 length), to first order.
        """
        lasting = slowness - 1 / slowness
        length = min(_LONG * lasting, max(_SHORT * lasting, n / _MANY), n / _FEWEST)
        pieces = torch.tensor(sorted({n // 2, *(c * n // chains for c in range(chains + 1))})).diff()
        counts = (pieces / max(1.0, length)).round().clamp(min=1).long()
        ends = [
            torch.arange(k + 1) * rows // k for rows, k in zip(pieces.tolist(), counts.tolist(), strict=True)
        ]
        lengths = torch.cat([end.diff() for end in ends])
        return cls(lengths, math.sqrt(max(0.5, 1 - _SHARED * lasting * len(lengths) / (2 * n))))

    def __len__(self) -> int:
        return len(self.lengths)

    def spread(self, signs: Tensor) -> Tensor:
        """(b, m) signs of blocks as those of rows, (b, n)."""
        return signs.repeat_interleave(self.lengths.to(signs.device), dim=1)


def check_slowness(slowness: float, chains: int) -> None:
    check_count(chains, name="chains")
    if not (math.isfinite(slowness) and slowness >= 1):
        raise InputError(f"slowness is a number of rows, 1 for independent ones; got {slowness}")


def summed(values: Tensor, lengths: Tensor) -> Tensor:
    """(n, k) values of rows to (m, k) sums of blocks."""
    if len(lengths) == len(values):
        return values
    block = torch.arange(len(lengths)).repeat_interleave(lengths).to(values.device)
    return values.new_zeros(len(lengths), values.shape[1]).index_add_(0, block, values)
