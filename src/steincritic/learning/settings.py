"""The settings of learning."""

import math
from dataclasses import dataclass, field

from steincritic.critics.mlp import MLP
from steincritic.critics.network import Network
from steincritic.errors import InputError, check_choice, check_count, check_positive
from steincritic.training.staging import Staging, fixed


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How an energy model is learned.

    Args:
        steps: of the model; before each the critic takes `critic_steps` of its own.
        batch_size: rows of every one of these steps, each on rows of its own.
        learning_rate, critic_learning_rate: of Adam; held, then falling to zero by half a cosine.
        cooldown: share of the steps, at the end, in which they fall.
        betas: of both Adams.
        weight_decay, critic_weight_decay: decoupled from the gradient (AdamW); a step takes this times the
            rate of the weights away.
        averaging: the result is an average of the model's parameters, this much of it kept each step;
            0 for the last parameters themselves.
        staging: λ. Its stages are counted in steps of the model; `every=None` is one pass over the data.
        critic: the network.
        divergence: of the critic in training: "exact", or one "gaussian" or "rademacher" probe per point.
        held_out: share of the rows that is only measured on.
        log_every: steps between two rows of the history, two calls of the callbacks, two checkpoints.
        dtype: "float32" or "float64".
    """

    steps: int = 2000
    critic_steps: int = 5
    batch_size: int = 256
    learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    cooldown: float = 0.5
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    critic_weight_decay: float = 0.0
    averaging: float = 0.99
    staging: Staging = field(default_factory=lambda: fixed(1.0))
    critic: Network = field(default_factory=MLP)
    divergence: str = "exact"
    held_out: float = 0.1
    log_every: int = 50
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("steps", "critic_steps", "batch_size", "log_every"):
            check_count(getattr(self, name), name=name)
        for name in ("learning_rate", "critic_learning_rate"):
            check_positive(getattr(self, name), name=name)
        for name in ("averaging", "held_out"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must lie in [0, 1), got {getattr(self, name)!r}")
        for name in ("weight_decay", "critic_weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must be zero or a positive number, got {getattr(self, name)!r}")
        if not 0 <= self.cooldown <= 1:
            raise InputError(f"cooldown is a share of the steps, in [0, 1]: got {self.cooldown!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be two numbers in [0, 1), got {self.betas!r}")
        if not hasattr(self.staging, "advance"):
            raise InputError(f"staging must be Staged, Adaptive or fixed(lambda), got {self.staging!r}")
        check_choice(self.divergence, name="divergence", choices=("exact", "gaussian", "rademacher"))
        check_choice(self.dtype, name="dtype", choices=("float32", "float64"))


# found good for an EnergyMLP: its coordinates are standardized, so the same rates serve many data
FOR_PERCEPTRONS = Learning(
    steps=1200,
    learning_rate=3e-3,
    critic_learning_rate=5e-3,
    betas=(0.9, 0.99),
    weight_decay=0.1,
    staging=fixed(3.0),
)
