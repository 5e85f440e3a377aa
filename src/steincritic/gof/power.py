"""Many tests to one rejection rate, with its interval."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch

from steincritic.data.points import ScoredPoints
from steincritic.errors import check_count, check_level
from steincritic.gof.null import check_draws, fresh_monte_carlo, pooled_bootstrap
from steincritic.models.base import SamplingModel
from steincritic.rng import Streams, derive, generator
from steincritic.shapes import PerPoint
from steincritic.training.fit import FittedBank


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
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, centre - half), min(1.0, centre + half)

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
        threshold: "pooled" bootstrap (centred), or "fresh" Monte Carlo shared by the tests of a critic.
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
        check_level(self.level)
        check_draws(self.draws, self.level)


def split_power(
    fitted: FittedBank, data: SamplingModel, model: SamplingModel, config: SplitPower, *, seed: int
) -> list[Rate]:
    """The rejection rate of every critic of a bank, on data that it was not trained on."""
    return [
        _member_power(fitted[k : k + 1], data, model, config, seed=derive(seed, "power", k))
        for k in range(len(fitted))
    ]


def _member_power(
    critic: FittedBank, data: SamplingModel, model: SamplingModel, config: SplitPower, *, seed: int
) -> Rate:
    n, device = config.n, critic.snapshots.banks[0].device

    def witness(source: SamplingModel, count: int, name: str) -> PerPoint:
        x = source.sample(count, seed=derive(seed, name))
        points = ScoredPoints(x, model.score(x)).to(device=device)
        return critic.witness(points, _probe(points, config.probe, derive(seed, name, "probe")))[0]

    observed = witness(data, config.runs * n, "data").view(config.runs, n).mean(-1)
    source = generator(seed, "bootstrap", device=device)
    if config.threshold == "fresh":
        null = fresh_monte_carlo(
            lambda count, part: witness(model, count, f"null {part}"), n, draws=config.draws
        )
        larger = (null >= observed[:, None]).sum(-1)
    else:
        pool = witness(model, config.pool * n, "pool")
        null = pooled_bootstrap(pool, n, draws=config.runs * config.draws, generator=source)
        larger = (null.view(config.runs, -1) >= observed[:, None]).sum(-1)
    pvalues = (larger + 1) / (config.draws + 1)
    return Rate(int((pvalues <= config.level).sum()), config.runs)


def _probe(points: ScoredPoints, wanted: bool, seed: int) -> torch.Tensor | None:
    if not wanted:
        return None
    streams = Streams.from_seeds([seed], device=points.x.device)
    return streams.normals(0, tuple(points.x.shape), torch.float32)
