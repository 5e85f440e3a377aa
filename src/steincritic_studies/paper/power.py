"""The paper's way of measuring power, and the best critic there is, where p is known."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from steincritic.data.points import ScoredPoints
from steincritic.data.problems import Problem
from steincritic.errors import check_choice, check_count
from steincritic.gof.null import check_draws, fresh_monte_carlo, pooled_bootstrap
from steincritic.gof.power import Rate
from steincritic.models.base import SamplingModel
from steincritic.rng import Source, Streams, derive
from steincritic.shapes import PerPoint, Points
from steincritic.stein.divergence import exact
from steincritic.stein.operator import stein_values
from steincritic.training.fitted import FittedBank

Witness = Callable[[ScoredPoints, int], PerPoint]


@dataclass(frozen=True, kw_only=True)
class SplitPower:
    """How the power of trained critics is measured, [repasky2023] section 6.1.2.

    Args:
        n: tested points per test.
        runs: tests per critic, each on fresh data and with its own bootstrap.
        draws: null draws per test.
        pool: model draws, in multiples of n, shared by the tests of one critic.
        threshold: "pooled" bootstrap (centered), or "fresh" Monte Carlo shared by the tests of a critic.
        probe: estimate the divergence with one Gaussian probe per point, as the paper does in the test
            itself; exact otherwise.
    """

    n: int
    runs: int = 500
    draws: int = 500
    pool: int = 50
    threshold: str = "pooled"
    probe: bool = False
    level: float = 0.05

    def __post_init__(self) -> None:
        for name in ("n", "runs", "draws", "pool"):
            check_count(getattr(self, name), name=name)
        check_choice(self.threshold, name="threshold", choices=("pooled", "fresh"))
        check_draws(self.draws, self.level)


def split_power(
    fitted: FittedBank, data: SamplingModel, model: SamplingModel, config: SplitPower, *, seed: int
) -> list[Rate]:
    """The rejection rate of every critic of a bank, on data that it was not trained on."""
    bank = fitted.snapshots.banks[0]

    def member(k: int) -> Rate:
        def witness(points: ScoredPoints, stream: int) -> PerPoint:
            points = points.to(dtype=bank.dtype, device=bank.device)
            probe = _probe(points, stream) if config.probe else None
            return fitted[k : k + 1].witness(points, probe)[0]

        return mean_power(witness, data, model, config, seed=derive(seed, "power", k))

    return [member(k) for k in range(len(fitted))]


def mean_power(
    witness: Witness, data: SamplingModel, model: SamplingModel, config: SplitPower, *, seed: int
) -> Rate:
    """The rejection rate of the test whose statistic is the mean of a given function of the points.

    Args:
        witness: (points, seed) -> one value per point; the seed is for what randomness it has.
    """
    n = config.n

    def values(source: SamplingModel, count: int, name: str) -> PerPoint:
        x = source.sample(count, seed=derive(seed, name))
        return witness(ScoredPoints(x, model.score(x)), derive(seed, name, "probe"))

    observed = values(data, config.runs * n, "data").view(config.runs, n).mean(-1)
    if config.threshold == "fresh":
        null = fresh_monte_carlo(
            lambda count, part: values(model, count, f"null {part}"), n, draws=config.draws
        ).expand(config.runs, -1)
    else:
        pool = values(model, config.pool * n, "pool")
        source = Source(seed, "bootstrap", device=pool.device)
        null = pooled_bootstrap(pool, n, draws=config.runs * config.draws, source=source).view(
            config.runs, -1
        )
    pvalues = ((null >= observed[:, None]).sum(-1) + 1) / (config.draws + 1)
    return Rate(int((pvalues <= config.level).sum()), config.runs)


class OptimalCritic:
    """f* = s_q - s_p, the scaleless optimum, [repasky2023] eq. (7); its power is a ceiling for critics."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def field(self, x: Points) -> Points:
        return self._problem.gap(x)

    @torch.no_grad()
    def witness(self, points: ScoredPoints) -> PerPoint:
        f, div_f = exact(self.field, points.x)
        return stein_values(points.score, f, div_f)


def _probe(points: ScoredPoints, seed: int) -> torch.Tensor:
    streams = Streams.from_seeds([seed], device=points.x.device)
    return streams.normals(0, tuple(points.x.shape), points.x.dtype)
