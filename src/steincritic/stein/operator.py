"""The Stein operator. Every witness value in the library comes from this file."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.shapes import PerPoint
from steincritic.stein.divergence import Divergence, VectorField, exact

_MOST_BLOCKS = 64


def stein_values(score: Tensor, f: Tensor, div_f: Tensor) -> Tensor:
    r"""Apply the model's Stein operator to a critic, at each point.

    $$(T_q f)(x) = s_q(x) \cdot f(x) + \nabla \cdot f(x)$$

    Its mean under q is zero for smooth, decaying f (Stein's identity); far from zero on data, it
    is evidence against q.

    Args:
        score: s_q at the points, (..., n, d).
        f: the critic's values there, (..., n, d).
        div_f: its divergence there, (..., n).

    References: [repasky2023] eq. (1).
    """
    return (score * f).sum(-1) + div_f


def stein_values_by_block(score: Tensor, f: Tensor, parts: Tensor, blocks: Sequence[slice]) -> Tensor:
    r"""The Stein operator split over blocks of coordinates, (..., n, k).

    $$\sum_{j \in B} s_j f_j + \partial_j f_j$$

    for each block B; each has mean zero under q, and they sum to the Stein value.
    """
    product = score * f
    return torch.stack([product[..., block].sum(-1) for block in blocks], dim=-1) + parts


def coordinate_blocks(dim: int) -> tuple[slice, ...]:
    """Coordinates singly where they are few, in blocks of neighbors beyond."""
    width = -(-dim // _MOST_BLOCKS)
    return tuple(slice(j, min(j + width, dim)) for j in range(0, dim, width))


def witness_of(field: VectorField, points: ScoredPoints, *, divergence: Divergence = exact) -> PerPoint:
    """Stein values of any vector field at scored points."""
    f, div_f = divergence(field, points.x)
    return stein_values(points.score, f, div_f)
