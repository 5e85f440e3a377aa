"""The suggested staging of a model and data; the rule is in `training/suggest.py`."""

from typing import Any

import torch
from torch import nn

from steincritic.critics.module import ModuleNetwork
from steincritic.critics.network import Network
from steincritic.data.points import ScoredPoints, scored
from steincritic.errors import InputError
from steincritic.models.base import as_model
from steincritic.training.fit import Training
from steincritic.training.staging import Staged
from steincritic.training.suggest import suggest_stagings
from steincritic.witness import best_device, model_frame


def suggest_staging(
    model: Any,
    x: Any,
    *,
    network: Network | None = None,
    training: Training | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Staged:
    r"""A staging for `fit_critic` with this model, data and training; `staging="auto"` takes it.

    A bank of critics, one for each λ of a grid from 0.001 to 100, trains for one epoch and tells two
    beginnings, where ρ has fallen to 4 and to 16. Under Adam λ sets the step in function space, and over T
    steps a step size falls by √T or T in the classical schedules: from the first λ by √T within two thirds of
    the epochs, or from the second by T over all of them. Held-out points decide between the two. In all it
    costs about as much as ten critics, trained together.

    >>> import steincritic as sc
    >>> p, q = sc.models.GaussianMixture([[0.5, 0.0]]), sc.models.GaussianMixture([[0.0, 0.0]])
    >>> staging = suggest_staging(q, p.sample(200, seed=1))
    >>> 0.01 < staging.initial < 100
    True
    """
    if isinstance(network, nn.Module | ModuleNetwork):
        raise InputError("suggest_staging trains many critics at once: pass an MLP, not one module")
    points = scored(model, x)
    frame = model_frame(as_model(model) if model is not None else None, points, seed=seed)
    points = frame.enter(points.to(device=torch.device(device) if device else best_device(points.x)))
    one = ScoredPoints(points.x[None], points.score[None])
    return suggest_stagings(one, seeds=[seed], training=training or Training(), network=network)[0]
