"""How wrong is the model? A lower confidence bound on the Fisher divergence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.diagnosis.halves import Half, Halves, Values


@dataclass(frozen=True)
class FisherBound:
    r"""Fisher divergence $E_p \|s_q - s_p\|^2$, in the data's own units: an estimate from below."""

    lower: float  # exceeded by the divergence with this confidence; 0 where nothing can be said
    estimate: float  # of the part that the critics found
    confidence: float


def fisher_bound(halves: Halves, *, confidence: float = 0.95) -> FisherBound:
    r"""$E_p\|s_q - s_p\|^2 \ge E_p[2 a\, T_q f - a^2 \|f\|^2]$ for every field f and number a.

    f and a come from one half, the mean from the other, whose points are independent of both. Of the
    two halves the better bound is taken, each at half of the error.
    """
    z = NormalDist().inv_cdf(1 - (1 - confidence) / 2)
    means, bounds = [], []
    for half in halves:
        values = _local(half, halves.blocks)
        mean, error = float(values.mean()), float(values.std()) / math.sqrt(len(values))
        means.append(mean)
        bounds.append(mean - z * error)
    return FisherBound(max(0.0, *bounds), max(0.0, sum(means) / 2), confidence)


def _local(half: Half, blocks: Sequence[slice]) -> Tensor:
    """The bound's integrand at the points of the half, with the a that is best on those trained on."""
    stein, squares = _stein_and_squares(half, half.trained, blocks)
    a = float(stein.mean() / squares.mean()) if bool(squares.any()) else 0.0
    a = min(1.0, max(0.0, a))  # critics overfit, and a negative multiple is of no use
    stein, squares = _stein_and_squares(half, half.own, blocks)
    return 2 * a * stein - a**2 * squares


def _stein_and_squares(half: Half, values: Values, blocks: Sequence[slice]) -> tuple[Tensor, Tensor]:
    """T_q f and |f|² of the field f that the score gap is, up to one scale for each block.

    The witness's own field is the gap times the squared scale of each coordinate. The Stein value is
    linear in each block's part of the field, so shares may be weighted.
    """
    scale = half.critic.frame.scale.to(values.gap)
    weights = torch.stack([(scale[block] ** -2).mean() for block in blocks])
    by_coordinate = torch.cat(
        [weight.expand(block.stop - block.start) for weight, block in zip(weights, blocks, strict=True)]
    )
    field = values.gap * scale**2 * by_coordinate
    return (values.shares * weights).sum(-1), field.square().sum(-1)
