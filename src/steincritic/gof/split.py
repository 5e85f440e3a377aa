"""The paper's test: train on one part of the data, average the witness over the other."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints, scored
from steincritic.errors import DoubtfulWarning, InputError, check_choice, check_count
from steincritic.gof.null import as_null_tensor, check_draws
from steincritic.gof.result import GofResult
from steincritic.gof.thresholds import THRESHOLDS, ModelWitness, Request, choose_threshold
from steincritic.models.base import as_model
from steincritic.rng import derive
from steincritic.training.critic import fit_critic
from steincritic.training.fit import Training
from steincritic.training.pacing import DEFAULT_STAGING, paced
from steincritic.training.progress import Callback
from steincritic.training.staging import Staged

_LEAST_TEST_POINTS = 2


@dataclass(frozen=True, kw_only=True)
class Split:
    """The split test, [repasky2023] section 4.1.

    Args:
        train: share of the data that trains the critic; the rest is tested.
        threshold: "fresh" Monte Carlo or "permutation" against a pool (exact), the paper's "pooled"
            bootstrap (approximate), or, without model draws, "bootstrap-t" or "z" (approximate); "auto"
            is fresh up to two million coordinates of model draws, permutation beyond, and bootstrap-t
            for a model without a sampler. See `gof.thresholds`.
        draws: null draws.
        pool: model draws of "permutation" and "pooled", in multiples of the tested points.
    """

    train: float = 0.5
    threshold: str = "auto"
    draws: int = 999
    pool: int = 50
    staging: Staged | Literal["auto"] = DEFAULT_STAGING
    network: MLP = field(default_factory=MLP)
    training: Training = field(default_factory=Training)
    standardize: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.train < 1:
            raise InputError(f"train is the share of points to train on, in (0, 1): got {self.train}")
        check_choice(self.threshold, name="threshold", choices=("auto", *THRESHOLDS))
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
    """Test H0: p = q with a critic trained on the points that are not tested.

    Args:
        model: q. May be None when x is ScoredPoints and the threshold needs no draws.
        x: the data.
    """
    given = config is not None
    config = config or Split()
    check_draws(config.draws, level)
    model = None if model is None and isinstance(x, ScoredPoints) else as_model(model)
    points = scored(model, x)
    trained, tested = split_sizes(len(points), config)
    if not given:
        training, staging = paced(trained, training=config.training)
        config = replace(config, training=training, staging=staging)
    threshold = choose_threshold(config.threshold, model, n=tested, dim=points.dim, draws=config.draws)
    train, test = points.split([trained, tested], seed=derive(seed, "split"))
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
    values = critic.witness(test).to(torch.float64)
    draw = ModelWitness(model, critic.witness, like=test.x, seed=seed)
    request = Request(draws=config.draws, pool=config.pool, level=level, seed=seed)
    null = THRESHOLDS[threshold](values, draw, request)
    for doubt in null.doubts:
        warnings.warn(doubt, DoubtfulWarning, stacklevel=2)
    return GofResult(
        statistic=null.statistic,
        null_distribution=as_null_tensor(null.null_distribution),
        level=level,
        method="split",
        threshold=threshold,
        exact=null.exact,
        n=len(test),
        seed=seed,
        notes=null.doubts,
        settings=asdict(config),
    )


def split_sizes(n: int, config: Split) -> tuple[int, int]:
    """Trained and tested points."""
    trained = round(config.train * n)
    if trained < 1 or n - trained < _LEAST_TEST_POINTS:
        raise InputError(
            f"x has {n} points, too few to train on a share of {config.train:g} and test on at "
            f"least {_LEAST_TEST_POINTS}; collect more points or use a kernel test"
        )
    return trained, n - trained
