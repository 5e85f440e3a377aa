"""Pace: how long to train on n points, and how far λ falls meanwhile."""

from dataclasses import replace
from typing import TypeVar

from steincritic.training.fit import Training
from steincritic.training.staging import Adaptive, Staged

Falling = TypeVar("Falling", bound=Staged | Adaptive)
DEFAULT_STAGING = Staged(initial=0.4, floor=5e-4, decay=0.85)
_STEPS = 4000  # of training, for however many points


def paced(n: int, *, training: Training | None, staging: Falling) -> tuple[Training, Falling]:
    """Settings for n points: beyond some thousands of them, larger batches and then fewer epochs.

    The number of steps stays within a budget, and λ falls by as many stages as before.
    """
    training = training or Training()
    batch = min(max(training.batch_size, n * training.epochs // _STEPS), 5 * training.batch_size)
    per_epoch = -(-n // batch)
    epochs = max(1, min(training.epochs, round(_STEPS / per_epoch)))
    if batch == training.batch_size and epochs == training.epochs:
        return training, staging
    every = max(1, per_epoch * epochs // training.epochs)
    return replace(training, batch_size=batch, epochs=epochs), replace(staging, every=every)
