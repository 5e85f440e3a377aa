r"""Where to begin λ: at the size with which a critic reaches its own scale within the first epoch.

For any critic the scale of f is right when $\rho = E\,T_q f / (\lambda E|f|^2)$ is one: the derivative of the
loss along f is zero there. Under Adam the parameters, and so f, grow at a speed that λ does not change.
With a small λ the target f*/λ is far away, ρ is far above one after an epoch, and the critic "never leaves
the ground"; with a large λ every step of Adam is a large step of λf, which overshoots. Between the two lies
the λ at which ρ has just come down; training may start there.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from steincritic.critics.module import ModuleNetwork
from steincritic.critics.network import Network
from steincritic.data.points import scored
from steincritic.errors import InputError
from steincritic.models.base import as_model
from steincritic.shapes import PerMember
from steincritic.stein.operator import stein_values
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Staged, fixed
from steincritic.witness import best_device, model_frame

_GRID = tuple(10 ** (k / 4) for k in range(-12, 9))  # 1e-3 to 100
_REACHED = 2.0  # ρ within a factor of two of its fixed point counts as reached
_SETTLED = 2 / 3  # of the epochs, after which λ stays at its floor


def suggest_staging(
    model: Any,
    x: Any,
    *,
    network: Network | None = None,
    training: Training | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Staged:
    r"""A staging for `fit_critic` with this model, data and training.

    A bank of critics, one for each λ of a grid from 0.001 to 100, trains for one epoch; the initial λ is the
    smallest at which ρ has fallen to 2. Under Adam λ sets the step in function space, so over T steps it
    falls by a factor T, the classical 1/T decay of a step size: floor = initial / T, reached after two
    thirds of the epochs.

    >>> import steincritic as sc
    >>> p, q = sc.models.GaussianMixture([[0.5, 0.0]]), sc.models.GaussianMixture([[0.0, 0.0]])
    >>> staging = suggest_staging(q, p.sample(200, seed=1))
    >>> 0.01 < staging.initial < 100
    True
    """
    training = training or Training()
    rho = first_epoch_ratio(model, x, network=network, training=training, seed=seed, device=device)
    reached = [lam for lam, ratio in zip(_GRID, rho.tolist(), strict=True) if ratio <= _REACHED]
    initial = min(reached) if reached else _GRID[-1]
    n = len(scored(model, x))
    steps = training.epochs * -(-n // training.batch_size)
    stages = max(1.0, _SETTLED * training.epochs)
    return Staged(initial=initial, floor=initial / steps, decay=steps ** (-1 / stages))


def first_epoch_ratio(
    model: Any,
    x: Any,
    *,
    network: Network | None = None,
    training: Training | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> PerMember:
    """ρ on the trained points after one epoch, for every λ of the grid."""
    if isinstance(network, nn.Module | ModuleNetwork):
        raise InputError("suggest_staging trains many critics at once: pass an MLP, not one module")
    training = training or Training()
    points = scored(model, x)
    frame = model_frame(as_model(model) if model is not None else None, points, seed=seed)
    points = frame.enter(points.to(device=torch.device(device) if device else best_device(points.x)))
    fitted = fit_bank(
        points,
        staging=[fixed(lam) for lam in _GRID],
        seeds=[seed] * len(_GRID),
        network=network,
        training=replace(training, epochs=1, selection="last"),
    )
    fitted.require_success()
    bank = fitted.snapshots.banks[0]
    points = points.to(dtype=bank.dtype)
    f, div_f = bank.field_and_divergence(points.x)
    lam = torch.tensor(_GRID, dtype=bank.dtype, device=bank.device)
    return stein_values(points.score, f, div_f).mean(-1) / (lam * (f * f).sum(-1).mean(-1))
