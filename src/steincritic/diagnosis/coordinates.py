"""Which coordinates does the model get wrong? The witness splits over them, and so does the test."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.diagnosis.halves import Halves
from steincritic.engine import one_thread
from steincritic.gof.null import rank_pvalues
from steincritic.rng import generator

_RESAMPLED = 2000  # points up to which the null is drawn by resampling; beyond, by its normal limit
_DRAWS = 999


@dataclass(frozen=True)
class Coordinate:
    """One coordinate, or a block of neighbors where there are more than 64."""

    name: str
    first: int  # column
    last: int
    share: float  # of the mean witness
    z: float
    pvalue: float  # adjusted for looking at all of them (max-T), and for two halves

    def __str__(self) -> str:
        return f"{self.name} (z = {self.z:.1f}, adjusted p = {self.pvalue:.2g})"


def find_coordinates(halves: Halves, names: Sequence[str], *, seed: int) -> tuple[Coordinate, ...]:
    """All coordinates, the most telling first.

    Each half is tested by a critic that has not seen it: $T_j$, the mean of $s_j f_j + \\partial_j f_j$,
    over its standard error, against the largest such ratio under the model. The p-value is twice the
    smaller of the two halves'.
    """
    ratios, adjusted = [], []
    for k, half in enumerate(halves):  # max-T [westfall1993]
        shares, source = half.held_out.shares, generator(seed, "coordinates", k)
        reference = shares - shares.mean(0) if half.draws is None else half.draws.shares
        ratios.append(_ratios(shares))
        adjusted.append(rank_pvalues(ratios[k], _largest_under_null(reference, len(half), source)))
    z = torch.stack(ratios).sum(0) / 2**0.5
    pvalues = (2 * torch.stack(adjusted).amin(0)).clamp(max=1)
    mean = halves.gathered([half.held_out.shares for half in halves]).mean(0)
    total = float(mean.clamp(min=0).sum()) or 1.0
    coordinates = [
        Coordinate(
            block_name(names, block),
            block.start,
            block.stop - 1,
            max(float(mean[j]), 0.0) / total,
            float(z[j]),
            float(pvalues[j]),
        )
        for j, block in enumerate(halves.blocks)
    ]
    return tuple(sorted(coordinates, key=lambda c: -c.z))


def _largest_under_null(reference: Tensor, n: int, source: torch.Generator) -> Tensor:
    """(b,): the largest ratio of n draws, each coordinate's mean set to zero as Stein's identity has it."""
    if n > _RESAMPLED:
        correlation = torch.corrcoef(reference.T).nan_to_num(0.0).view(reference.shape[1], -1)
        vectors, roots, _ = torch.linalg.svd(correlation)
        normal = torch.randn(_DRAWS, reference.shape[1], generator=source, dtype=torch.float64)
        drawn: Tensor = normal * roots.sqrt() @ vectors.T
        return drawn.amax(1)
    centered = reference - reference.mean(0)
    largest = []
    with one_thread():
        for _ in range(_DRAWS):
            rows = torch.randint(len(centered), (n,), generator=source)
            largest.append(_ratios(centered[rows]).amax())
    return torch.stack(largest)


def _ratios(shares: Tensor) -> Tensor:
    """Mean over its standard error, column by column."""
    error = shares.std(0) / len(shares) ** 0.5
    return torch.where(error > 0, shares.mean(0) / error, torch.zeros_like(error))


def block_name(names: Sequence[str], block: slice) -> str:
    first, last = names[block.start], names[block.stop - 1]
    return first if first == last else f"{first} to {last}"
