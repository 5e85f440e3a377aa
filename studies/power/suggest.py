r"""λ through training, chosen from the data: the start by the first epoch, the fall by held-out points.

For any critic the scale of f is right when $\rho = E\,T_q f / (\lambda E|f|^2)$ is one: the derivative of the
loss along f is zero there. Under Adam the parameters, and so f, grow at a speed that λ does not change.
With a small λ the target f*/λ is far away and ρ is far above one after an epoch; with a large λ every step
of Adam is a large step of λf, which overshoots. So ρ after one epoch shows where an initial λ lies.

Two paces are tried. One stops early at a λ that keeps learning features, which suits p and q that differ
sharply in few directions. The other starts and ends low, near the lazy regime, which suits smooth
differences everywhere. Five-fold cross-validation chooses: the larger mean over standard deviation of the
witness on held-out points wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from steincritic import GofResult, Model, ScoredPoints, Split, Staged, Training, fit_bank, fixed
from steincritic.data.frame import model_frame
from steincritic.data.points import fold_sets
from steincritic.gof.split import split_sizes
from steincritic.rng import derive, generator
from steincritic.stein import stein_values

GRID = tuple(10 ** (k / 4) for k in range(-12, 9))  # 1e-3 to 100
_FOLDS = 5


@dataclass(frozen=True)
class Pace:
    """From the smallest λ of the grid with ρ <= reached, down by T**power over a share of the T steps."""

    reached: float
    power: float
    settled: float

    def staging(self, ratios: Sequence[float], steps: int, epochs: int) -> Staged:
        low_enough = (lam for lam, ratio in zip(GRID, ratios, strict=True) if ratio <= self.reached)
        initial, fall = next(low_enough, GRID[-1]), steps**self.power
        decay = fall ** (-1 / max(1, self.settled * epochs))
        return Staged(initial=initial, floor=initial / fall, decay=decay)


PACES = (Pace(reached=4.0, power=0.5, settled=2 / 3), Pace(reached=16.0, power=1.0, settled=1.0))


@dataclass(frozen=True)
class SuggestedSplit:
    """The split test whose critic of every dataset has the staging suggested for the dataset."""

    split: Split
    name: ClassVar[str] = "split"

    @property
    def draws(self) -> int | None:
        return self.split.draws

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        sizes, results = split_sizes(len(datasets), self.split), []
        for points, seed in zip(datasets.each(), seeds, strict=True):
            trained, _ = points.split(sizes, seed=derive(seed, "split"))  # as Split does
            critic_seed = derive(seed, "critic")
            framed = model_frame(model, trained, seed=critic_seed).enter(trained)
            staging = suggest_staging(framed, seed=critic_seed, training=self.split.training or Training())
            test = replace(self.split, staging=staging)
            results += test.run(model, points.alone(), level=level, seeds=[seed])
        return results


def suggest_staging(points: ScoredPoints, *, seed: int, training: Training) -> Staged:
    """A staging for standardized points."""
    steps = training.epochs * -(-len(points) // training.batch_size)
    ratios = first_epoch_ratios(points, seed=seed, training=training)
    stagings = [pace.staging(ratios, steps, training.epochs) for pace in PACES]
    return max(stagings, key=lambda staging: held_out_signal(points, staging, seed=seed, training=training))


def first_epoch_ratios(points: ScoredPoints, *, seed: int, training: Training) -> list[float]:
    """ρ on the trained points after one epoch, for every λ of the grid."""
    fitted = fit_bank(
        points,
        staging=[fixed(lam) for lam in GRID],
        seeds=[seed] * len(GRID),
        training=replace(training, epochs=1),
    )
    fitted.require_success()
    points = points.to(dtype=fitted.bank.dtype)
    f, div_f = fitted.bank.field_and_divergence(points.x)
    ratios = stein_values(points.score, f, div_f).mean(-1) / f.square().sum(-1).mean(-1)
    return [float(ratio) / lam for ratio, lam in zip(ratios, GRID, strict=True)]


def held_out_signal(points: ScoredPoints, staging: Staged, *, seed: int, training: Training) -> float:
    """Mean over standard deviation of the witness on points not trained on, averaged over folds."""
    folds = min(_FOLDS, len(points) // 2)
    order = torch.randperm(len(points), generator=generator(seed, "folds")).to(points.x.device)
    train, test = fold_sets(points[order].alone(), folds)
    seeds = [derive(seed, "fold", k) for k in range(folds)]
    fitted = fit_bank(train, staging=staging, seeds=seeds, training=training)
    fitted.require_success()
    values = fitted.witness(test)
    return float((values.mean(-1) / values.std(-1).clamp(min=torch.finfo(values.dtype).tiny)).mean())
