"""Datasets drawn from the model, in stacks: what exact Monte Carlo reruns a statistic on."""

from collections.abc import Callable

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints, sample_points
from steincritic.models.base import ScoreModel
from steincritic.rng import derive

_DRAWN = 2**24  # numbers drawn from the model at a time
_TOGETHER = 2**19  # numbers of the widest array when datasets are worked on together


def fresh_statistics(
    statistic: Callable[[ScoredPoints], Tensor],
    model: ScoreModel,
    n: int,
    *,
    draws: int,
    seed: int,
    like: Tensor,
    width: int,
) -> Tensor:
    """(draws, ...): the statistic of each of `draws` datasets of n model draws.

    With the observed one these are exchangeable under the model if `statistic` is one function of
    each dataset, all choices inside; then any rank made from them is exact.

    Args:
        statistic: ScoredPoints (m, n, d) to (m, ...), each dataset on its own.
        like: a tensor with the dimension, dtype and device of the data.
        width: numbers that a dataset takes at the widest, which decides how many go together.
    """
    size = n * like.shape[-1]
    sets = max(1, min(draws, _DRAWN // size))  # decided by shape alone, so that draws never depend on memory
    together = max(1, _TOGETHER // width)
    values = []
    for part, start in enumerate(range(0, draws, sets)):
        count = min(sets, draws - start)
        drawn = sample_points(model, count * n, seed=derive(seed, "null", part), like=like)
        x, score = (t.view(count, n, -1).split(together) for t in (drawn.x, drawn.score))
        values += [statistic(ScoredPoints(*pair)) for pair in zip(x, score, strict=True)]
    return torch.cat(values)
