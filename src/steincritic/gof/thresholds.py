"""Thresholds: from witness values to a statistic, its null distribution, and what is doubtful about it.

| name | needs model draws | level |
|---|---|---|
| fresh | draws x n | exact for any n |
| permutation | pool x n | exact for any n and pool; needs neither Stein's identity nor a right score |
| pooled | pool x n | approximate: the pool is used again and again |
| bootstrap-t | none | approximate, right to second order |

"Exact" is given the critic, for independent model draws.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints, sample_points
from steincritic.errors import InputError, ModelError, first_line
from steincritic.gof.null import (
    bootstrap_t,
    fresh_monte_carlo,
    mean_gap,
    permutation,
    pooled_bootstrap,
    studentized,
)
from steincritic.gof.test import sampling_model
from steincritic.models.base import ChainModel, Model, SamplingModel
from steincritic.models.mixing import lag_correlation
from steincritic.rng import Source, derive
from steincritic.shapes import NullDraws, PerPoint, Points

FRESH_NUMBERS = 2_000_000  # coordinates of model draws up to which "auto" takes the fresh Monte Carlo
_PART = 2**18  # model draws asked for at a time
_LOOKED_AT = 20_000  # model draws whose independence is looked at
_LEAST_POOL = 20
_LEAST_RESAMPLED = 40  # for a witness of skewness -2.8 the size is 7.5 % at n = 20, 6.4 % at 40, 4.9 % at 75
_CORRELATION = 0.05
_REPEATED = 0.01
_WORTH = 0.5
_FAR = 5.0  # standard errors
_DRAWN = ("fresh", "permutation", "pooled")
_WAY_OUT = 'pass a (score, sample) pair, or use threshold "bootstrap-t"'


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of a threshold: null draws, pool in multiples of n, seed."""

    draws: int
    pool: int
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Null:
    """A statistic and what it would be under the model."""

    statistic: float
    null_distribution: NullDraws
    exact: bool
    doubts: tuple[str, ...] = ()  # why the level may be off for this witness


class ModelWitness:
    """(count, part) -> witness values of fresh model draws, other ones per part.

    `doubts` says after the first part why the draws may not be independent.
    """

    def __init__(
        self,
        model: Model | None,
        witness: Callable[[ScoredPoints], PerPoint],
        *,
        like: Tensor,
        seed: int,
    ) -> None:
        self._model, self._witness, self._like, self._seed = model, witness, like, seed
        self.doubts: tuple[str, ...] = ()

    def __call__(self, count: int, part: int) -> PerPoint:
        model = sampling_model(self._model, why="this threshold", way_out=_WAY_OUT)
        points = sample_points(model, count, seed=derive(self._seed, "null", part), like=self._like)
        values = self._witness(points).to(torch.float64)
        if part == 0:
            self.doubts = dependence(model, points.x, values)
        return values

    def pool(self, count: int) -> PerPoint:
        parts = enumerate(range(0, count, _PART))
        return torch.cat([self(min(_PART, count - start), part) for part, start in parts])


Threshold = Callable[[PerPoint, ModelWitness, Request], Null]


def choose_threshold(name: str, model: Model | None, *, n: int, dim: int, draws: int) -> str:
    """The threshold that "auto" stands for; any other name stands for itself.

    Fresh Monte Carlo is the simplest exact one, but asks for draws x n points of the model: beyond
    `FRESH_NUMBERS` coordinates it gives way to a permutation against a pool, which is exact too. A
    model without a sampler leaves the bootstrap-t.
    """
    if name == "auto":
        if not isinstance(model, SamplingModel):
            return "bootstrap-t"
        return "permutation" if draws * n * dim > FRESH_NUMBERS else "fresh"
    if name in _DRAWN:
        sampling_model(model, why="this threshold", way_out=_WAY_OUT)
    return name


def dependence(model: Model, x: Points, values: PerPoint) -> tuple[str, ...]:
    """Why model draws, in the order they came, may not be independent of each other.

    Asked are the model's own `effective_sample_size(x)` where it has one, repeated rows, and the
    correlation of the witness with that of the next draw.
    """
    x, values = x[:_LOOKED_AT], values[:_LOOKED_AT]
    m, reasons = len(x), []
    try:
        size = float(model.effective_sample_size(x)) if isinstance(model, ChainModel) else float(m)
    except Exception as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        raise ModelError(f"model.effective_sample_size raised {what}") from error
    if size < _WORTH * m:
        reasons.append(f"by model.effective_sample_size {m} draws are worth {size:.0f} independent ones")
    if (repeated := 1 - len(x.unique(dim=0)) / m) > _REPEATED:
        reasons.append(f"{repeated:.0%} of {m} draws repeat another one")
    correlation = lag_correlation(values)
    if abs(correlation) > max(_CORRELATION, _FAR / math.sqrt(m)):
        reasons.append(f"the witness of a draw has correlation {correlation:.2f} with that of the next")
    if not reasons:
        return ()
    return (f"The model's draws are not independent: {', '.join(reasons)}. Thin the chain or restart it.",)


def _fresh(values: PerPoint, draw: ModelWitness, request: Request) -> Null:
    null = fresh_monte_carlo(draw, len(values), draws=request.draws)
    return _null(values.mean(), null, draw, [], exact=True)


def _permutation(values: PerPoint, draw: ModelWitness, request: Request) -> Null:
    pool = draw.pool(request.pool * len(values))
    source = Source(request.seed, "permutation", device=values.device)
    null = permutation(values, pool, draws=request.draws, source=source)
    return _null(mean_gap(values, pool), null, draw, [], exact=True)


def _pooled(values: PerPoint, draw: ModelWitness, request: Request) -> Null:
    pool, doubts = draw.pool(request.pool * len(values)), []
    if request.pool < _LEAST_POOL:
        doubts.append(
            f"The pool holds {request.pool} model draws per tested point, and its own error is not counted: "
            f'take at least {_LEAST_POOL}, or threshold "permutation", which is exact for any pool.'
        )
    if abs(float(studentized(pool))) > _FAR:
        doubts.append(
            f"The mean witness of the model's own draws is {float(studentized(pool)):.1f} standard errors "
            "from zero, so score and sampler disagree, and centering the pool hides it: use threshold "
            '"permutation".'
        )
    source = Source(request.seed, "bootstrap", device=pool.device)
    null = pooled_bootstrap(pool, len(values), draws=request.draws, source=source)
    return _null(values.mean(), null, draw, doubts)


def _bootstrap_t(values: PerPoint, draw: ModelWitness, request: Request) -> Null:
    if len(values) < 2 or not float(values.std()) > 0:
        raise InputError(
            f"the witness has one value at all {len(values)} tested points, so no spread to measure its mean "
            "by; are the points copies of one another?"
        )
    doubts = []
    if len(values) < _LEAST_RESAMPLED:
        doubts.append(
            f"The bootstrap-t rests on {len(values)} tested points; below {_LEAST_RESAMPLED} its level is "
            "not reliable."
        )
    source = Source(request.seed, "bootstrap", device=values.device)
    null = bootstrap_t(values, draws=request.draws, source=source)
    return _null(studentized(values), null, draw, doubts)


def _null(
    statistic: Tensor, null: NullDraws, draw: ModelWitness, doubts: list[str], *, exact: bool = False
) -> Null:
    return Null(
        statistic=float(statistic),
        null_distribution=null,
        exact=exact and not draw.doubts,
        doubts=(*doubts, *draw.doubts),
    )


THRESHOLDS: dict[str, Threshold] = {
    "fresh": _fresh,
    "permutation": _permutation,
    "pooled": _pooled,
    "bootstrap-t": _bootstrap_t,
}
