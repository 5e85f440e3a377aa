r"""How wrong is the model? A lower confidence bound on the Fisher divergence.

$$E_p\|s_q - s_p\|^2 \ge E_p[2 a\, T_q g - a^2 \|g\|^2]$$

for every field g and number a. g is a critic's estimate of the gap s_q - s_p; g and a come from other points
than those that the mean is taken over.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias, get_args

import torch

from steincritic.diagnosis.halves import Half, Halves, Values
from steincritic.gof.fisher_ball import FisherTerms

Units: TypeAlias = Literal["standard", "raw"]
UNITS: tuple[str, ...] = get_args(Units)
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class FisherBound:
    r"""Fisher divergence $E_p \|s_q - s_p\|^2$: an estimate from below."""

    lower: float  # exceeded by the divergence with this confidence; 0 where nothing can be said
    estimate: float  # of the part that the critics found
    confidence: float
    units: Units = "standard"  # columns in standard deviations of the model, or in the units of the data


def fisher_bound(halves: Halves, *, units: Units = "standard") -> FisherBound:
    """The better bound of the two halves, each at half of the error.

    Field and factor come from one half, the mean from the other, whose points are independent of both.
    """
    z = NormalDist().inv_cdf(1 - (1 - _CONFIDENCE) / 2)
    means, bounds = [], []
    for half in halves:
        factor = _terms(half, half.trained, halves.blocks, units).best_factor()
        values = _terms(half, half.own, halves.blocks, units).values(factor)
        mean, error = float(values.mean()), float(values.std()) / math.sqrt(len(values))
        means.append(mean)
        bounds.append(mean - z * error)
    lower = max(0.0, *bounds)
    # where one half found much and the other nothing, what was found is at least what is certain
    return FisherBound(lower, max(lower, sum(means) / 2), _CONFIDENCE, units)


def _terms(half: Half, values: Values, blocks: Sequence[slice], units: Units) -> FisherTerms:
    """Of the field that the score gap is; in raw units up to one scale for each block.

    The witness's own field is the gap times the squared scale of each coordinate. The Stein value is
    linear in each block's part of the field, so shares may be weighted.
    """
    scale = half.critic.frame.scale.to(values.gap)
    if units == "standard":
        return FisherTerms(values.shares.sum(-1), (values.gap * scale).square().sum(-1))
    weights = torch.stack([(scale[block] ** -2).mean() for block in blocks])
    by_coordinate = torch.cat(
        [weight.expand(block.stop - block.start) for weight, block in zip(weights, blocks, strict=True)]
    )
    field = values.gap * scale**2 * by_coordinate
    return FisherTerms((values.shares * weights).sum(-1), field.square().sum(-1))
