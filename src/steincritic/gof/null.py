"""Null distributions: what the statistic would be if the data came from the model; and the p-value.

Every p-value of the library is a rank, and `rank_pvalues` is the one place where it is computed. The other
functions return null draws of a statistic: of any function of a dataset, or of the mean witness of n points,
its distance from the mean over a pool of model draws, or its studentized form.
"""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints, sample_sets
from steincritic.errors import InputError, check_count, check_level
from steincritic.models.base import Model
from steincritic.rng import Source, derive
from steincritic.shapes import NullDraws, PerPoint

T = TypeVar("T", bound=Any)  # a test with `draws`

_MOST = 100_000  # null draws that are made without having been asked for
_DRAWN = 2**24  # numbers drawn from the model at a time
_TOGETHER = 2**19  # numbers of the widest array when datasets are worked on together
_GATHERED = 2**24  # numbers held at a time
_TIE = 100 * torch.finfo(torch.float64).eps  # sums in another order differ by less, in units of the values


def rank_pvalues(values: Tensor, reference: Tensor) -> Tensor:
    """(1 + number of reference values at least as large) / (b + 1), for each of the values.

    Uniform or larger where a value is exchangeable with the reference, and never zero.
    """
    ordered = reference.sort().values
    smaller = torch.searchsorted(ordered, values.contiguous(), right=False)
    return (1 + len(ordered) - smaller).to(torch.float64) / (len(ordered) + 1)


def fresh_statistics(
    statistic: Callable[[ScoredPoints], Tensor],
    model: Model | None,
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
        drawn = sample_sets(model, count, n, seed=derive(seed, "null", part), like=like)
        x, score = (t.split(together) for t in (drawn.x, drawn.score))
        values += [statistic(ScoredPoints(*pair)) for pair in zip(x, score, strict=True)]
    return torch.cat(values)


def fresh_monte_carlo(draw_witness: Callable[[int, int], PerPoint], n: int, *, draws: int) -> NullDraws:
    """Means of fresh sets of n model draws: with the observed one an exchangeable sample, so exact.

    Args:
        draw_witness: (count, part) -> witness values of `count` fresh model draws, other ones per part.
    """
    sets = max(1, _GATHERED // (64 * n))  # per part; fixed, so that results do not depend on memory
    means = []
    for part, start in enumerate(range(0, draws, sets)):
        count = min(sets, draws - start)
        means.append(draw_witness(count * n, part).view(count, n).mean(-1))
    return torch.cat(means)


def pooled_bootstrap(
    pool: PerPoint, n: int, *, draws: int, source: Source, centered: bool = True
) -> NullDraws:
    """Means of n values drawn with replacement from a pool, [repasky2023] section 5.1.1.

    The pool's own mean is known to be zero under the model; `centered` subtracts it. Left in, the pool's
    error adds to the test's: at a pool of r n draws and level 5 % the true level is
    1 - Phi(1.645 / sqrt(1 + 1/r)), that is 7.7 % at r = 3. Approximate either way.

    Args:
        pool: (..., m); several witnesses of the same model draws are resampled alike.
    """
    size = pool.shape[-1]
    if size < n:
        raise InputError(f"the pool must hold at least n = {n} model draws, got {size}")
    values = pool - pool.mean(-1, keepdim=True) if centered else pool

    def means(count: int) -> Tensor:
        return values[..., source.integers(size, count, n)].mean(-1)

    return in_parts(means, draws, width=n * (pool.numel() // size))


def mean_gap(values: PerPoint, pool: PerPoint) -> Tensor:
    """mean w(x) - mean w(y) over the tested points x and the model draws y."""
    return values.to(torch.float64).mean() - pool.to(torch.float64).mean()


def permutation(values: PerPoint, pool: PerPoint, *, draws: int, source: Source) -> NullDraws:
    r"""`mean_gap` after the labels "tested" and "pool" were dealt anew to all n + m values.

    Under the model all n + m values are exchangeable given the critic, so the observed gap and these
    are too: exact for any n and m, whether or not Stein's identity holds or the score is right. With
    m = r n the statistic's variance is 1 + 1/r times that of the mean alone.

    With the values centered on their common mean, the gap is $(1/n + 1/m) \sum w$ over the tested ones.
    """
    n, m = len(values), len(pool)
    joined = torch.cat([values, pool]).to(torch.float64)
    centered = joined - joined.mean()
    size, sign = (n, 1) if n <= m else (m, -1)  # the smaller part is drawn, the other is the rest

    def sums(count: int) -> Tensor:
        return centered[_random_subsets(n + m, size, count, source)].sum(-1)

    null = in_parts(sums, draws, width=4 * size) * (sign * (1 / n + 1 / m))  # indices are sorted
    observed = mean_gap(values, pool)
    tied = (null - observed).abs() <= _TIE * joined.abs().max()
    return torch.where(tied, observed, null)


def studentized(values: PerPoint) -> Tensor:
    r"""$t = \bar w \sqrt n / s$."""
    values = values.to(torch.float64)
    return values.mean() * math.sqrt(len(values)) / values.std()


def bootstrap_t(values: PerPoint, *, draws: int, source: Source) -> NullDraws:
    r"""$t^*_b = (\bar w^*_b - \bar w) \sqrt n / s^*_b$ over resamples of the tested values.

    Each resample has its own spread, which carries the skewness of the witness into the null: right to
    second order, where the normal quantile is to first. Needs E_q w = 0, hence a right score, and no
    model draws. A resample without any spread counts as far out on its side.
    """
    values = values.to(torch.float64)
    n, mean, least = len(values), values.mean(), _TIE * values.abs().max()

    def ratios(count: int) -> Tensor:
        again = values[source.integers(n, count, n)]
        return (again.mean(-1) - mean) * math.sqrt(n) / again.std(-1).clamp(min=least)

    return in_parts(ratios, draws, width=n)


def in_parts(make: Callable[[int], Tensor], draws: int, *, width: int) -> Tensor:
    """make(count) until there are so many draws; as many at a time as fit into memory, by their width."""
    rows = max(1, _GATHERED // width)
    return torch.cat([make(min(rows, draws - start)) for start in range(0, draws, rows)], dim=-1)


def _random_subsets(total: int, size: int, rows: int, source: Source) -> Tensor:
    """(rows, size): in each row distinct indices below `total`, every set of them equally likely.

    What is drawn twice is drawn again. No index is treated apart from the others, so no set is.
    """
    index = source.integers(total, rows, size)
    while True:
        index = index.sort(-1).values
        again = torch.nn.functional.pad(index[:, 1:] == index[:, :-1], (1, 0))
        count = int(again.sum())
        if not count:
            return index
        index[again] = source.integers(total, count)


def smallest_draws(level: float) -> int:
    """Fewest null draws with which a test can reject at all: p is at least 1/(draws + 1)."""
    near = round(1 / level)  # asked of the same division as the p-value: 1/(1/49) is not 49
    return next(count for count in range(near, near + 3) if 1 / count <= level) - 1


def check_draws(draws: int, level: float) -> None:
    check_level(level)
    check_count(draws, name="draws")
    if draws < (least := smallest_draws(level)):
        raise InputError(
            f"{draws} null draws cannot reach level {level:g}: use at least {least}, draws={least} (on the "
            f"command line --draws {least})"
        )


def draws_for(level: float, usual: int) -> int:
    """The usual number of null draws; where the level needs more, twice what it needs at least."""
    check_level(level)
    if usual >= smallest_draws(level):
        return usual
    return unasked(smallest_draws(level / 2), level)


def unasked(draws: int, level: float) -> int:
    """As many null draws as a small level wants, unless nobody would wait for them without having asked."""
    if draws > _MOST:
        raise InputError(
            f"level {level:g} wants {draws} null draws, which take long: ask for them with draws={draws} "
            f"(on the command line --draws {draws}), or choose a larger level"
        )
    return draws


def reaching(test: T, level: float) -> T:
    """The test, with more null draws where its usual number cannot reach the level."""
    usual: Any = next(field.default for field in fields(test) if field.name == "draws")
    if test.draws == usual:
        return replace(test, draws=draws_for(level, usual))
    check_draws(test.draws, level)
    return test


def as_null_tensor(values: Tensor) -> NullDraws:
    return values.detach().to("cpu", torch.float64)
