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

import torch
from torch import Tensor, nn

from steincritic.critics.module import ModuleNetwork
from steincritic.critics.network import Network
from steincritic.data.frame import model_frame
from steincritic.data.points import PointsLike, ScoredPoints, fold_sets, model_and_points
from steincritic.devices import DeviceLike
from steincritic.errors import InputError
from steincritic.models.base import ModelLike
from steincritic.rng import derive, generator
from steincritic.stein.operator import stein_values
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Staged, fixed

GRID = tuple(10 ** (k / 4) for k in range(-12, 9))  # 1e-3 to 100
_FOLDS = 5
_TOGETHER = 50  # datasets whose critics train in one bank


@dataclass(frozen=True)
class Pace:
    """From the smallest λ of the grid with ρ <= reached, down by T**power over a share of the T steps."""

    reached: float
    power: float
    settled: float

    def staging(self, ratios: Sequence[float], steps: int, epochs: int) -> Staged:
        initial = next(
            (lam for lam, ratio in zip(GRID, ratios, strict=True) if ratio <= self.reached), GRID[-1]
        )
        fall = steps**self.power
        return Staged(
            initial=initial, floor=initial / fall, decay=fall ** (-1 / max(1, self.settled * epochs))
        )


PACES = (Pace(reached=4.0, power=0.5, settled=2 / 3), Pace(reached=16.0, power=1.0, settled=1.0))


def suggest_staging(
    model: ModelLike | None,
    x: PointsLike,
    *,
    network: Network | None = None,
    training: Training | None = None,
    seed: int = 0,
    device: DeviceLike = None,
) -> Staged:
    r"""A staging for `fit_critic` with this model, data and training; `staging="auto"` takes it.

    A bank of critics, one for each λ of a grid from 0.001 to 100, trains for one epoch and gives two
    beginnings, where ρ has fallen to 4 and to 16. From the first λ falls by √T within two thirds of the
    epochs, from the second by T over all of them, as step sizes do in the classical schedules of T steps.
    Held-out points decide. In all it costs about as much as ten critics, trained together.

    >>> import steincritic as sc
    >>> p, q = sc.models.GaussianMixture([[0.5, 0.0]]), sc.models.GaussianMixture([[0.0, 0.0]])
    >>> staging = suggest_staging(q, p.sample(200, seed=1))
    >>> 0.01 < staging.initial < 100
    True
    """
    if isinstance(network, nn.Module | ModuleNetwork):
        raise InputError("suggest_staging trains many critics at once: pass an MLP, not one module")
    adapted, points = model_and_points(model, x, device=device)
    inside = model_frame(adapted, points, seed=seed).enter(points).alone()
    return suggest_stagings(inside, seeds=[seed], training=training or Training(), network=network)[0]


def suggest_stagings(
    points: ScoredPoints, *, seeds: Sequence[int], training: Training, network: Network | None = None
) -> list[Staged]:
    """A staging for each of (r, n, d) standardized datasets; see `suggest_staging`."""
    if len(points) < 4:
        raise InputError(f"choosing a staging holds out points: x has {len(points)}, at least 4 are needed")
    chosen = []
    for k in range(0, len(seeds), _TOGETHER):
        rows = slice(k, k + _TOGETHER)
        chosen += _suggest(points.sets(rows), seeds[rows], replace(training, selection="last"), network)
    return chosen


def _suggest(
    points: ScoredPoints, seeds: Sequence[int], training: Training, network: Network | None
) -> list[Staged]:
    ratios = first_epoch_ratios(points, seeds=seeds, training=training, network=network).tolist()
    steps = training.epochs * -(-len(points) // training.batch_size)
    candidates = [[pace.staging(row, steps, training.epochs) for row in ratios] for pace in PACES]
    signal = held_out_signal(points, candidates, seeds=seeds, training=training, network=network)
    return [candidates[best][r] for r, best in enumerate(signal.argmax(0).tolist())]


def held_out_signal(
    points: ScoredPoints,
    candidates: Sequence[Sequence[Staged]],
    *,
    seeds: Sequence[int],
    training: Training,
    network: Network | None = None,
) -> Tensor:
    """(c, r): mean over standard deviation of the witness on points not trained on, averaged over folds."""
    folds = min(_FOLDS, len(points) // 2)
    train, test = fold_sets(_shuffled(points, seeds), folds)
    fitted = fit_bank(
        train.repeat(len(candidates)),
        staging=[staging for row in candidates for staging in row for _ in range(folds)],
        seeds=[derive(seed, "fold", k) for _ in candidates for seed in seeds for k in range(folds)],
        network=network,
        training=training,
    )
    fitted.require_success()
    values = fitted.witness(test.repeat(len(candidates)))
    signal = values.mean(-1) / values.std(-1).clamp(min=torch.finfo(values.dtype).tiny)
    return signal.view(len(candidates), len(seeds), folds).mean(-1)


def first_epoch_ratios(
    points: ScoredPoints, *, seeds: Sequence[int], training: Training, network: Network | None = None
) -> Tensor:
    """(r, g): ρ on the trained points of each (r, n, d) dataset after one epoch, for every λ of the grid."""
    repeated = points.repeat(len(GRID))
    fitted = fit_bank(
        repeated,
        staging=[fixed(lam) for lam in GRID for _ in seeds],
        seeds=list(seeds) * len(GRID),
        network=network,
        training=replace(training, epochs=1, selection="last"),
    )
    fitted.require_success()
    bank = fitted.snapshots.banks[0]
    repeated = repeated.to(dtype=bank.dtype)
    f, div_f = bank.field_and_divergence(repeated.x)
    lam = torch.tensor(GRID, dtype=bank.dtype, device=bank.device).repeat_interleave(len(seeds))
    ratio = stein_values(repeated.score, f, div_f).mean(-1) / (lam * (f * f).sum(-1).mean(-1))
    return ratio.view(len(GRID), -1).T


def _shuffled(points: ScoredPoints, seeds: Sequence[int]) -> ScoredPoints:
    """Every dataset's rows in an order of its own."""
    orders = [torch.randperm(len(points), generator=generator(seed, "folds")) for seed in seeds]
    return ScoredPoints.stack(
        [one[order.to(points.x.device)] for one, order in zip(points.each(), orders, strict=True)]
    )
