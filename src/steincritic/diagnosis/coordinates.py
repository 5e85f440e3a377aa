"""Which coordinates does the model get wrong? The witness splits over them, and so does the test."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.diagnosis.halves import Half, Halves
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
    tested = [_adjusted(half, seed=seed, number=k) for k, half in enumerate(halves)]
    z = torch.stack([ratio for ratio, _ in tested]).sum(0) / 2**0.5
    pvalues = (2 * torch.stack([p for _, p in tested]).amin(0)).clamp(max=1)
    mean = halves.gathered([half.own.shares for half in halves]).mean(0)
    total = float(mean.clamp(min=0).sum()) or 1.0
    found = [
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
    return tuple(sorted(found, key=lambda c: -c.z))


def _adjusted(half: Half, *, seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Ratios and max-T p-values (k,) [westfall1993]."""
    observed = _ratios(half.own.shares)
    source = generator(seed, "coordinates", number)
    reference = half.draws.shares if half.draws is not None else half.own.shares - half.own.shares.mean(0)
    largest = _largest_under_null(reference, len(half), source)
    return observed, rank_pvalues(observed, largest)


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
