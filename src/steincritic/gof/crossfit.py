"""Every point tested: cross-fitted critics, with the null by rerunning the whole pipeline on model draws.

The statistic is made of a small panel of numbers, a pure function of a dataset and a seed. Two of three
members are what critics see of points that they were not trained on: see `lenses.critics`.

- *sparse*: the largest share of a coordinate, early in training.
- *dense*: the length of the vector of positive shares, late in training.
- *kernel*: a kernel Stein discrepancy; finds smooth differences that are spread thin.

The panel of the observed data stands beside those of B datasets of n model draws; everything is standardized
over the B + 1 runs alike. So under the model the B + 1 values are exchangeable and the rank of the observed
one is an exact p-value, whatever training does inside.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.frame import Frame, model_frame
from steincritic.data.points import ScoredPoints
from steincritic.errors import check_count, without
from steincritic.gof.null import as_null_tensor, check_draws, draws_for
from steincritic.gof.null_runs import PASS_ON, NullRuns, NullSets
from steincritic.gof.result import GofResult
from steincritic.gof.test import sampling_model
from steincritic.lenses.critics import (
    MEMORY_GONE,
    STAGING,
    Critics,
    check_folds,
    chunks,
    largest,
    length,
    shares,
)
from steincritic.models.base import Model, SamplingModel
from steincritic.rng import derive, generator
from steincritic.shapes import NullDraws
from steincritic.stein.kernels import RBF
from steincritic.stein.tiles import stein_sums
from steincritic.training.fit import Training
from steincritic.training.staging import Staged

DRAWS = {"cpu": 59, "cuda": 199}
_KERNEL = RBF(factor=0.125)
_SHARPNESS = 2.0  # of the soft maximum over the panel
_OF_CRITICS = ("folds", "look", "early", "late", "staging", "network", "training")
_UNHASHED = ("draws", "stop_early", "cache", "null_pool")  # change no run


@without(memory_gib=MEMORY_GONE, engine=PASS_ON, address=PASS_ON)
@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """The cross-fit test; exact for any sample size and any model that can be sampled.

    Args:
        folds, look: as for `Critics`.
        draws: B, null datasets; by default 59 on a CPU and 199 on a GPU, more for a small level.
        early, late: looks up to this share of the epochs make the sparse member, looks from that share
            on the dense one.
        stop_early: give up once so many null statistics reached the observed one (Besag and Clifford
            1991); the p-value stays valid. The standardization then comes from a quarter of the draws,
            which are not ranked.
        cache, null_seed, null_pool: as for `Combined`.
    """

    name: ClassVar[str] = "crossfit"

    folds: int = 5
    draws: int | None = None
    look: int = 5
    early: float = 1 / 3
    late: float = 1 / 2
    kernel: RBF = _KERNEL
    staging: Staged = STAGING
    network: MLP = field(default_factory=MLP)
    training: Training = field(default_factory=Training)
    stop_early: int | None = None
    cache: bool | Path = True
    null_seed: int = 0
    null_pool: int | None = None

    def __post_init__(self) -> None:
        for name in ("draws", "stop_early", "null_pool"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name=name)
        _ = self.critics  # checks its own

    @property
    def critics(self) -> Critics:
        """The lens that this test looks through."""
        return Critics(**{name: getattr(self, name) for name in _OF_CRITICS})

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        way_out = "tests split and ksd work without, and LangevinModel(model) adds a sampler"
        sampled = sampling_model(model, why="the cross-fit test", way_out=way_out)
        check_folds(len(datasets), self.folds)
        usual = DRAWS.get(datasets.x.device.type, DRAWS["cpu"])
        draws = self.draws or draws_for(level, usual)
        check_draws(draws, level)
        frame = model_frame(sampled, datasets, seed=0)
        orders = [derive(seed, "order") for seed in seeds]
        shuffled = ScoredPoints.stack(
            [dataset.shuffled(seed=order) for dataset, order in zip(datasets.each(), orders, strict=True)]
        )
        observed = panel(frame.enter(shuffled), [derive(seed, "observed") for seed in seeds], self)
        null = self._null(sampled, frame, datasets)
        ranked = [self._ranked(observed[t : t + 1], null, draws, seed) for t, seed in enumerate(seeds)]
        settings = {k: v for k, v in asdict(self).items() if k != "cache"}
        settings |= {"draws": draws, "null_pool": self.null_pool or draws}
        return [
            GofResult(
                statistic=observed_value,
                null_distribution=as_null_tensor(null_distribution),
                level=level,
                test=self.name,
                threshold="full-pipeline Monte Carlo",
                exact=True,
                n=len(datasets),
                seed=seed,
                notes=(f"{null.reused} null runs came from the cache.",) if null.reused else (),
                settings=settings,
            )
            for (observed_value, null_distribution), seed in zip(ranked, seeds, strict=True)
        ]

    def _null(self, model: SamplingModel, frame: Frame, datasets: ScoredPoints) -> NullRuns:
        sets = NullSets(model, len(datasets), datasets.x, self.null_seed)
        return NullRuns(
            sets,
            partial(_framed_panel, self, frame),
            settings={k: v for k, v in asdict(self).items() if k not in _UNHASHED},
            cache=self.cache,
            most=next(chunks(2**62, len(datasets), datasets.dim, self.critics)).stop,
        )

    def _ranked(self, observed: Tensor, null: NullRuns, draws: int, seed: int) -> tuple[float, NullDraws]:
        """The statistic of the observed panel, (1, 2k + 1), and its null draws."""
        if self.stop_early is None:
            runs = null.rows(0, max(draws, self.null_pool or 0))
            if self.null_pool is not None:
                runs = runs[torch.randperm(len(runs), generator=generator(seed, "null choice"))[:draws]]
            values = statistic(torch.cat([observed, runs]))
            return float(values[0]), values[1:]
        scale = null.rows(0, pilot := max(20, draws // 4))
        observed_value = statistic(observed, scale)
        collected, drawn = torch.zeros(0, dtype=torch.float64), 0
        while drawn < draws and int((collected >= observed_value).sum()) < self.stop_early:
            count = min(draws - drawn, max(self.stop_early, 10))
            fresh = statistic(null.rows(pilot + drawn, count), scale)
            collected, drawn = torch.cat([collected, fresh]), drawn + count
        return float(observed_value), collected


def panel(datasets: ScoredPoints, seeds: Sequence[int], config: CrossFit) -> Tensor:
    """(r, 2k + 1) numbers of (r, n, d) standardized datasets: a pure function of each and its seed."""
    parts = []
    runs, n, d = datasets.x.shape
    for rows in chunks(runs, n, d, config.critics):
        chunk = datasets.sets(rows)
        kernel = stein_sums(chunk, [config.kernel]).statistic("u").cpu()
        parts.append(torch.cat([*shares(chunk, seeds[rows], config.critics), kernel], -1))
    return torch.cat(parts)


def _framed_panel(config: CrossFit, frame: Frame, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
    return panel(frame.enter(datasets), seeds, config)


def members(panels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of the witness early and late in training, (r, k) each, and the kernel discrepancy, (r, 1)."""
    k = panels.shape[-1] // 2
    return panels[:, :k], panels[:, k:-1], panels[:, -1:]


def statistic(panels: Tensor, scale: Tensor | None = None) -> Tensor:
    """(r,): a soft maximum of the standardized members.

    Standardized over the r datasets themselves, or over others where their panels are given as a scale.
    """
    evidence = []
    pairs = zip(members(panels), members(panels if scale is None else scale), strict=True)
    for (member, others), shrink in zip(pairs, (largest, length, largest), strict=True):  # the kernel has one
        shares, reference = _standardized(member, others), _standardized(others, others)
        evidence.append(_standardized(shrink(shares), shrink(reference)))
    return torch.logsumexp(_SHARPNESS * torch.stack(evidence), dim=0) / _SHARPNESS


def _standardized(values: Tensor, reference: Tensor) -> Tensor:
    mean, sd = reference.mean(0), reference.std(0)
    varies = sd > 1e-12 * mean.abs()  # beyond rounding
    return (values - mean) / torch.where(varies, sd, torch.ones_like(sd))
