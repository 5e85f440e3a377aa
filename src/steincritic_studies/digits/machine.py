"""A Gaussian-Bernoulli RBM that learns digits in logit space from a Stein critic."""

from collections.abc import Sequence
from pathlib import Path

import torch

from steincritic.critics.mlp import MLP
from steincritic.learning import FittedEnergy, Learning, fit_energy
from steincritic.models.rbm import GaussianBernoulliRBM
from steincritic.rng import derive, generator
from steincritic.training.progress import Callback
from steincritic_studies.digits.data import Digits

FOR_DIGITS = Learning(
    steps=500,  # longer learning finds a lower Fisher divergence, but draws that are less like digits
    critic_steps=2,
    batch_size=100,
    learning_rate=1e-2,
    critic=MLP(hidden=(256, 256)),
    divergence="gaussian",
    log_every=25,
)
_FIRST_WEIGHTS = 0.01  # standard deviation, before the machine learns


def learn_machine(
    train: Digits,
    *,
    hidden: int,
    sweeps: int,
    learning: Learning,
    seed: int,
    device: torch.device,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
) -> FittedEnergy:
    """The start is a Gaussian at the mean of the data, its hidden units balanced there."""
    x = train.logits(seed=derive(seed, "train noise"))
    location = x.mean(0)
    source = generator(seed, "first weights")
    weights = _FIRST_WEIGHTS * torch.randn(x.shape[1], hidden, generator=source)
    start = GaussianBernoulliRBM(weights, location, -0.5 * location @ weights, sweeps=sweeps)
    return fit_energy(
        start.to(device),
        x,
        config=learning,
        seed=derive(seed, "learning"),
        callbacks=callbacks,
        checkpoint=checkpoint,
        device=device,
    )
