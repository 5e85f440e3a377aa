"""Many tests to one rejection rate, with its interval."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import torch

from steincritic.data.points import ScoredPoints
from steincritic.errors import check_choice, check_count
from steincritic.gof.null import check_draws, fresh_monte_carlo, pooled_bootstrap
from steincritic.models.base import SamplingModel
from steincritic.rng import Streams, derive, generator
from steincritic.shapes import PerPoint
from steincritic.training.fitted import FittedBank

Witness = Callable[[ScoredPoints, int], PerPoint]


@dataclass(frozen=True)
class Rate:
    """Rejections among independent tests."""

    rejections: int
    trials: int

    @property
    def value(self) -> float:
        return self.rejections / self.trials

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Wilson's interval, which stays inside [0, 1] and is right near its ends.

        >>> tuple(round(end, 3) for end in Rate(0, 100).interval())
        (0.0, 0.037)
        """
        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        n, p = self.trials, self.value
        center = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, center - half), min(1.0, center + half)

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.rejections + other.rejections, self.trials + other.trials)


@dataclass(frozen=True, kw_only=True)
class SplitPower:
    """How the power of trained critics is measured, [repasky2023] section 5.1.2.

    Args:
        n: tested points a test.
        runs: tests a critic, each on fresh data and with its own bootstrap.
        draws: null draws a test.
        pool: model draws, in multiples of n, shared by the tests of one critic.
        threshold: "pooled" bootstrap (centered), or "fresh" Monte Carlo shared by the tests of a critic.
        probe: estimate the divergence with one Gaussian probe a point, as the paper does in the test
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
        witness: (points, seed) -> one value a point; the seed is for what randomness it has.
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
        source = generator(seed, "bootstrap", device=pool.device)
        null = pooled_bootstrap(pool, n, draws=config.runs * config.draws, generator=source).view(
            config.runs, -1
        )
    pvalues = ((null >= observed[:, None]).sum(-1) + 1) / (config.draws + 1)
    return Rate(int((pvalues <= config.level).sum()), config.runs)


def _probe(points: ScoredPoints, seed: int) -> torch.Tensor:
    streams = Streams.from_seeds([seed], device=points.x.device)
    return streams.normals(0, tuple(points.x.shape), points.x.dtype)
