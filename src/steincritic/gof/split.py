"""The paper's test: train on one part of the data, average the witness over the other."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints, sample_points, scored
from steincritic.errors import InputError, ModelError, check_choice, check_count
from steincritic.gof.null import as_null_tensor, check_draws, fresh_monte_carlo, pooled_bootstrap
from steincritic.gof.result import GofResult
from steincritic.models.base import SamplingModel, ScoreModel, as_model
from steincritic.rng import derive, generator
from steincritic.shapes import NullDraws, PerPoint
from steincritic.training.fit import Training
from steincritic.training.progress import Callback
from steincritic.training.staging import Staged
from steincritic.witness import DEFAULT_STAGING, Critic, fit_critic

_LEAST_TEST_POINTS = 2


@dataclass(frozen=True, kw_only=True)
class Split:
    """The split test, [repasky2023] section 4.1.

    Args:
        train: share of the data that trains the critic; the rest is tested.
        threshold: "fresh" Monte Carlo (exact), or the paper's "pooled" bootstrap (approximate).
        draws: null draws.
        pool: size of the pool in multiples of the tested points.
    """

    train: float = 0.5
    threshold: str = "fresh"
    draws: int = 999
    pool: int = 50
    staging: Staged = DEFAULT_STAGING
    network: MLP = field(default_factory=MLP)
    training: Training = field(default_factory=Training)
    standardize: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.train < 1:
            raise InputError(f"train is the share of points to train on, in (0, 1): got {self.train}")
        check_choice(self.threshold, name="threshold", choices=tuple(_THRESHOLDS))
        check_count(self.pool, name="pool")
        check_count(self.draws, name="draws")


def split_test(
    model: Any,
    x: Any,
    *,
    level: float = 0.05,
    seed: int = 0,
    config: Split | None = None,
    callbacks: Sequence[Callback] | None = None,
) -> GofResult:
    """Test H0: p = q with a critic trained on the points that are not tested."""
    config = config or Split()
    check_draws(config.draws, level)
    model = as_model(model)
    if not isinstance(model, SamplingModel):
        raise ModelError(
            "the split test draws from the model to find its threshold, and this model has no "
            "sample(n, seed=0); pass a (score, sample) pair"
        )
    points = scored(model, x)
    trained = round(config.train * len(points))
    if trained < 1 or len(points) - trained < _LEAST_TEST_POINTS:
        raise InputError(
            f"x has {len(points)} points, too few to train on a share of {config.train:g} and test on at "
            f"least {_LEAST_TEST_POINTS}; collect more points or use a kernel test"
        )
    train, test = points.split([trained, len(points) - trained], seed=derive(seed, "split"))
    critic = fit_critic(
        model,
        train,
        staging=config.staging,
        network=config.network,
        training=config.training,
        standardize=config.standardize,
        seed=derive(seed, "critic"),
        callbacks=callbacks,
    )
    null, exact = _THRESHOLDS[config.threshold](model, critic, test, config, seed)
    return GofResult(
        statistic=float(critic.witness(test).mean()),
        null_distribution=as_null_tensor(null),
        level=level,
        method="split",
        threshold=config.threshold,
        exact=exact,
        n=len(test),
        seed=seed,
        settings=asdict(config),
    )


def _fresh(
    model: ScoreModel, critic: Critic, test: ScoredPoints, config: Split, seed: int
) -> tuple[NullDraws, bool]:
    def draw_witness(count: int, part: int) -> PerPoint:
        draws = sample_points(model, count, seed=derive(seed, "null", part), like=test.x)
        return critic.witness(draws)

    return fresh_monte_carlo(draw_witness, len(test), draws=config.draws), True


def _pooled(
    model: ScoreModel, critic: Critic, test: ScoredPoints, config: Split, seed: int
) -> tuple[NullDraws, bool]:
    n = len(test)
    pool = critic.witness(sample_points(model, config.pool * n, seed=derive(seed, "pool"), like=test.x))
    source = generator(seed, "bootstrap", device=pool.device)
    return pooled_bootstrap(pool, n, draws=config.draws, generator=source), False


_THRESHOLDS: dict[str, Callable[[ScoreModel, Critic, ScoredPoints, Split, int], tuple[NullDraws, bool]]] = {
    "fresh": _fresh,
    "pooled": _pooled,
}
