r"""Where to begin λ: at the size with which a critic reaches its own scale within the first epoch.

For any critic the scale of f is right when $\rho = E\,T_q f / (\lambda E|f|^2)$ is one: the derivative of the
loss along f is zero there. Under Adam the parameters, and so f, grow at a speed that λ does not change.
With a small λ the target f*/λ is far away, ρ is far above one after an epoch, and the critic "never leaves
the ground"; with a large λ every step of Adam is a large step of λf, which overshoots. Between the two lies
the λ at which ρ has just come down; training may start there.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from steincritic.critics.network import Network
from steincritic.data.points import ScoredPoints
from steincritic.stein.operator import stein_values
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Staged, fixed

GRID = tuple(10 ** (k / 4) for k in range(-12, 9))  # 1e-3 to 100
_REACHED = 2.0  # ρ within a factor of two of its fixed point counts as reached
_SETTLED = 2 / 3  # of the epochs, after which λ stays at its floor
_TOGETHER = 50  # datasets whose critics train in one bank


def suggest_stagings(
    points: ScoredPoints, *, seeds: Sequence[int], training: Training, network: Network | None = None
) -> list[Staged]:
    """A staging for each of (r, n, d) standardised datasets; see `suggest_staging`."""
    parts = [slice(k, k + _TOGETHER) for k in range(0, len(seeds), _TOGETHER)]
    ratios = torch.cat(
        [
            first_epoch_ratios(
                ScoredPoints(points.x[rows], points.score[rows]),
                seeds=seeds[rows],
                training=training,
                network=network,
            )
            for rows in parts
        ]
    )
    steps = training.epochs * -(-len(points) // training.batch_size)
    stages = max(1.0, _SETTLED * training.epochs)
    initials = [
        next((lam for lam, ratio in zip(GRID, row, strict=True) if ratio <= _REACHED), GRID[-1])
        for row in ratios.tolist()
    ]
    return [Staged(initial=lam, floor=lam / steps, decay=steps ** (-1 / stages)) for lam in initials]


def first_epoch_ratios(
    points: ScoredPoints, *, seeds: Sequence[int], training: Training, network: Network | None = None
) -> Tensor:
    """(r, g): ρ on the trained points of each (r, n, d) dataset after one epoch, for every λ of the grid."""
    count = len(GRID)
    repeated = ScoredPoints(*(t.repeat_interleave(count, 0) for t in (points.x, points.score)))
    fitted = fit_bank(
        repeated,
        staging=[fixed(lam) for _ in seeds for lam in GRID],
        seeds=[seed for seed in seeds for _ in GRID],
        network=network,
        training=replace(training, epochs=1, selection="last"),
    )
    fitted.require_success()
    bank = fitted.snapshots.banks[0]
    repeated = repeated.to(dtype=bank.dtype)
    f, div_f = bank.field_and_divergence(repeated.x)
    lam = torch.tensor(GRID, dtype=bank.dtype, device=bank.device).repeat(len(seeds))
    ratio = stein_values(repeated.score, f, div_f).mean(-1) / (lam * (f * f).sum(-1).mean(-1))
    return ratio.view(-1, count)
