"""Null distributions: what the statistic would be if the data came from the model.

Each function takes witness values of model draws and returns null draws of the mean witness of n
points.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from steincritic.errors import InputError, check_count, check_level
from steincritic.shapes import NullDraws, PerPoint

_GATHERED = 2**24  # numbers held at a time


def fresh_monte_carlo(draw_witness: Callable[[int, int], PerPoint], n: int, *, draws: int) -> NullDraws:
    """Means of fresh sets of n model draws: with the observed one an exchangeable sample, so exact.

    Args:
        draw_witness: (count, part) -> witness values of `count` fresh model draws, other ones a part.
    """
    sets = max(1, _GATHERED // (64 * n))  # whole sets a part; fixed, so that results do not depend on memory
    means = []
    for part, start in enumerate(range(0, draws, sets)):
        count = min(sets, draws - start)
        means.append(draw_witness(count * n, part).view(count, n).mean(-1))
    return torch.cat(means)


def pooled_bootstrap(
    pool: PerPoint, n: int, *, draws: int, generator: torch.Generator, centred: bool = True
) -> NullDraws:
    """Means of n values drawn with replacement from a pool, [repasky2023] section 5.1.1.

    The pool's own mean is known to be zero under the model; `centred` subtracts it. Left in, the pool's
    error adds to the test's: at a pool of r n draws and level 5 % the true level is
    1 - Phi(1.645 / sqrt(1 + 1/r)), that is 7.7 % at r = 3. Approximate either way.
    """
    check_count(draws, name="draws")
    if len(pool) < n:
        raise InputError(f"the pool must hold at least n = {n} model draws, got {len(pool)}")
    values = pool - pool.mean() if centred else pool
    means = []
    for start in range(0, draws, rows := max(1, _GATHERED // n)):
        shape = (min(rows, draws - start), n)
        index = torch.randint(len(pool), shape, generator=generator, device=pool.device)
        means.append(values[index].mean(-1))
    return torch.cat(means)


def smallest_draws(level: float) -> int:
    """Fewest null draws with which a test can reject at all: p is at least 1/(draws + 1)."""
    near = round(1 / level)  # asked of the same division as the p-value: 1/(1/49) is not 49
    return next(count for count in range(near, near + 3) if 1 / count <= level) - 1


def check_draws(draws: int, level: float) -> None:
    check_level(level)
    check_count(draws, name="draws")
    if draws < smallest_draws(level):
        raise InputError(
            f"{draws} null draws cannot reach level {level:g}: use at least {smallest_draws(level)}"
        )


def as_null_tensor(values: Tensor) -> NullDraws:
    return values.detach().to("cpu", torch.float64)
