"""The paper's way of measuring power, and the best critic there is, where p is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from steincritic import Rate, ScoredPoints
from steincritic.data import Problem
from steincritic.gof.null import fresh_monte_carlo, pooled_bootstrap
from steincritic.models import SamplingModel
from steincritic.rng import Source, Streams, derive
from steincritic.shapes import PerPoint
from steincritic.stein import exact, stein_values
from steincritic.training import FittedBank
from studies.show import LEVEL

CEILINGS = ("optimal critic", "likelihood ratio")
Witness = Callable[[ScoredPoints, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class SplitPower:
    """How the power of trained critics is measured, [repasky2023] section 6.1.2.

    Args:
        n: tested points per test.
        runs: tests per critic, each on fresh data and with its own bootstrap.
        draws: null draws per test.
        pool: model draws, in multiples of n, shared by the tests of one critic.
        fresh: Monte Carlo shared by the tests of a critic, in place of the centered bootstrap of the pool.
        probe: estimate the divergence with one Gaussian probe per point, as the paper does in the test
            itself; exact otherwise.
    """

    n: int
    runs: int = 500
    draws: int = 500
    pool: int = 50
    fresh: bool = False
    probe: bool = False


def split_power(
    fitted: FittedBank, data: SamplingModel, model: SamplingModel, config: SplitPower, *, seed: int
) -> list[Rate]:
    """The rejection rate of every critic of a bank, on data that it was not trained on."""
    (rates,) = split_powers([(fitted, config.probe)], data, model, config, seed=seed)
    return rates


def split_powers(
    ways: Sequence[tuple[FittedBank, bool]],
    data: SamplingModel,
    model: SamplingModel,
    config: SplitPower,
    *,
    seed: int,
) -> list[list[Rate]]:
    """The same of several banks, with a probe or without; critic k of each has the same data and draws."""

    def witness(k: int, points: ScoredPoints, stream: int) -> Tensor:
        bank = ways[0][0].bank
        points = points.to(dtype=bank.dtype, device=bank.device)
        probe = None
        if any(probed for _, probed in ways):
            streams = Streams.from_seeds([stream], device=bank.device)
            probe = streams.normals(0, tuple(points.x.shape), bank.dtype)
        values = [fitted[k : k + 1].witness(points, probe if probed else None) for fitted, probed in ways]
        return torch.cat(values)

    rates = [
        mean_powers(partial(witness, k), data, model, config, seed=derive(seed, "power", k))
        for k in range(len(ways[0][0]))
    ]
    return [list(of_way) for of_way in zip(*rates, strict=True)]


def mean_powers(
    witness: Witness, data: SamplingModel, model: SamplingModel, config: SplitPower, *, seed: int
) -> list[Rate]:
    """The rejection rates of tests whose statistics are means of given functions of the points.

    Args:
        witness: (points, seed) -> one value per function and point; the seed is for what randomness it has.
    """
    n, runs, draws = config.n, config.runs, config.draws

    def values(source: SamplingModel, count: int, name: str) -> Tensor:
        x = source.sample(count, seed=derive(seed, name))
        return witness(ScoredPoints(x, model.score(x)), derive(seed, name, "probe"))

    observed = values(data, runs * n, "data").unflatten(-1, (runs, n)).mean(-1)
    if config.fresh:

        def alone(count: int, part: int) -> PerPoint:
            return values(model, count, f"null {part}")[0]

        null = fresh_monte_carlo(alone, n, draws=draws)[None, None]
    else:
        pool = values(model, config.pool * n, "pool")
        source = Source(seed, "bootstrap", device=pool.device)
        null = pooled_bootstrap(pool, n, draws=runs * draws, source=source).unflatten(-1, (runs, draws))
    pvalues = ((null >= observed[..., None]).sum(-1) + 1) / (draws + 1)
    return [Rate(int(count), runs) for count in (pvalues <= LEVEL).sum(-1)]


@torch.no_grad()
def optimal_witness(pair: Problem, points: ScoredPoints) -> PerPoint:
    """T_q f* of the scaleless optimum f* = s_q - s_p, [repasky2023] eq. (7)."""
    f, div_f = exact(pair.gap, points.x)
    return stein_values(points.score, f, div_f)


def ceiling(name: str, pair: Problem, config: SplitPower, *, seed: int) -> Rate:
    """The power of the best critic, or of the best test of all, both from the densities."""
    if name == "likelihood ratio":
        config = replace(config, fresh=True)

    def witness(points: ScoredPoints, seed: int) -> Tensor:
        values = pair.log_likelihood_ratio(points.x) if config.fresh else optimal_witness(pair, points)
        return values[None]

    (rate,) = mean_powers(witness, pair.data, pair.model, config, seed=seed)
    return rate
