"""The paper's test: train on one part of the data, average the witness over the other."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, Literal

import torch

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_choice, check_count
from steincritic.gof.null import as_null_tensor, reaching
from steincritic.gof.result import GofResult
from steincritic.gof.serial import Blocks, check_slowness, summed
from steincritic.gof.thresholds import THRESHOLDS, ModelWitness, Request, choose_threshold
from steincritic.models.base import Model
from steincritic.rng import derive
from steincritic.training.critic import fit_critics, hold_out
from steincritic.training.fit import Training, watches
from steincritic.training.pacing import DEFAULT_STAGING, paced
from steincritic.training.staging import Adaptive, Staged

_LEAST_TEST_POINTS = 2
_TOGETHER = 500  # critics trained in one bank


@dataclass(frozen=True, kw_only=True)
class Split:
    """The split test, [repasky2023] section 5.1: a critic trained on the points that are not tested.

    Args:
        train: share of the data that trains the critic; the rest is tested.
        threshold: "fresh" Monte Carlo or "permutation" against a pool (exact), the paper's "pooled"
            bootstrap (approximate), or, without model draws, "bootstrap-t" (approximate); "auto"
            is fresh up to two million coordinates of model draws, permutation beyond, and bootstrap-t
            for a model without a sampler. See `gof.thresholds`.
        draws: null draws; the default grows for a small level.
        pool: model draws of "permutation" and "pooled", in multiples of the tested points.
        staging, training: by default about 4,000 steps at most, however many points there are. Where
            either goes by the monitor, a fifth of the points to train on is held out for it.
        slowness, chains: as for `Combined`; such rows are cut in their order, and blocks of them resampled.
    """

    name: ClassVar[str] = "split"

    train: float = 0.5
    threshold: Literal["auto", "fresh", "permutation", "pooled", "bootstrap-t"] = "auto"
    draws: int = 999
    pool: int = 50
    staging: Staged | Adaptive = DEFAULT_STAGING
    network: MLP = field(default_factory=MLP)
    training: Training | None = None
    standardize: bool = True
    slowness: float = 1.0
    chains: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.train < 1:
            raise InputError(f"train is the share of points to train on, in (0, 1): got {self.train}")
        check_choice(self.threshold, name="threshold", choices=("auto", *THRESHOLDS))
        check_count(self.pool, name="pool")
        check_count(self.draws, name="draws")
        check_slowness(self.slowness, self.chains)

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        settled = reaching(self, level)._paced(split_sizes(len(datasets), self)[0])
        results = []
        for start in range(0, len(seeds), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            results += settled._run_together(model, datasets.sets(part), level=level, seeds=seeds[part])
        return results

    def _paced(self, trained: int) -> "Split":
        """With the training that so many points get, where none was asked for."""
        if self.training not in (None, Training(selection="monitor")):
            return self
        training, staging = paced(trained, training=self.training, staging=self.staging)
        return replace(self, training=training, staging=staging)

    def _run_together(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        sizes = split_sizes(len(datasets), self)
        name = choose_threshold(self.threshold, model, n=sizes[1], dim=datasets.dim, draws=self.draws)
        in_order = self.slowness > 1
        if in_order:
            name = "bootstrap-t"
        parts = [
            [points[: sizes[0]], points[sizes[0] :]]
            if in_order
            else points.split(sizes, seed=derive(seed, "split"))
            for points, seed in zip(datasets.each(), seeds, strict=True)
        ]
        critic_seeds = [derive(seed, "critic") for seed in seeds]
        trained, held_out = [train for train, _ in parts], None
        if watches(self.training or Training(), self.staging):
            pairs = zip(trained, critic_seeds, strict=True)
            halves = [hold_out(train, seed=seed, in_order=in_order) for train, seed in pairs]
            trained, held_out = [train for train, _ in halves], ScoredPoints.stack([v for _, v in halves])
        critics = fit_critics(
            model,
            ScoredPoints.stack(trained),
            seeds=critic_seeds,
            staging=self.staging,
            network=self.network,
            training=self.training,
            validation=held_out,
            standardize=self.standardize,
        )
        results = []
        for critic, (_, test), seed in zip(critics, parts, seeds, strict=True):
            values, shrink = critic.witness(test).to(torch.float64), 1.0
            if in_order:
                blocks = Blocks.of(len(test), max(1, round(self.chains * (1 - self.train))), self.slowness)
                values, shrink = summed(values[:, None], blocks.lengths)[:, 0], blocks.shrink
            draw = ModelWitness(model, critic.witness, like=test.x, seed=seed)
            null = THRESHOLDS[name](values, draw, Request(draws=self.draws, pool=self.pool, seed=seed))
            results.append(
                GofResult(
                    statistic=null.statistic * shrink,
                    null_distribution=as_null_tensor(null.null_distribution),
                    level=level,
                    test=self.name,
                    threshold=name,
                    exact=null.exact,
                    n=len(test),
                    seed=seed,
                    notes=null.doubts,
                    doubts=null.doubts,
                    settings=asdict(self),
                )
            )
        return results


def split_sizes(n: int, config: Split) -> tuple[int, int]:
    """Trained and tested points."""
    trained = round(config.train * n)
    if trained < 1 or n - trained < _LEAST_TEST_POINTS:
        raise InputError(
            f"x has {n} points, too few to train on a share of {config.train:g} and test on at "
            f"least {_LEAST_TEST_POINTS}; collect more points or use a kernel test"
        )
    return trained, n - trained


def after_lenses(split: GofResult, lenses: GofResult) -> GofResult:
    """The result of the split test, with what the lenses saw that did not decide."""
    names = ("test", "seed", "spent", "readings", "examined", "settings")
    fields = {name: getattr(lenses, name) for name in names}
    return replace(split, notes=(*lenses.notes, *split.notes), **fields)
