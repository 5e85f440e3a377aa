"""Bettors: a critic trained on the past of a stream, and the e-values of its bets on what comes next.

An e-value has mean at most one under the model. A gambler who starts with 1 and multiplies the
e-values of points as they come holds wealth W with P(sup W >= 1/level) <= level (Ville), however long
the stream is and however often the wealth is looked at.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.devices import DeviceLike
from steincritic.errors import InputError, check_count, without
from steincritic.gof.thresholds import dependence
from steincritic.models.base import SamplingModel
from steincritic.rng import derive
from steincritic.shapes import PerPoint
from steincritic.training.critic import Critic, fit_critic
from steincritic.training.fit import Training
from steincritic.training.pacing import DEFAULT_STAGING
from steincritic.training.staging import Staged

_SCALE_DRAWS = 2000
_TOGETHER = 2**22  # coordinates of model draws held at a time


_WAY_OUT = "leave it out; bets are by soft ranks"


@without(bets=_WAY_OUT, stakes=_WAY_OUT, limit=_WAY_OUT, bound_draws=_WAY_OUT)
@dataclass(frozen=True, kw_only=True)
class Sequential:
    """How a stream is bet on: every point is compared with fresh draws of the model.

    Args:
        etas: steepness of the bets, in units of the witness's spread under the model, one
            account each; 0 is money kept aside.
        draws: of the model, per point.
        first: points to see before the first critic is trained; no bets until then.
        growth: a new critic is trained when the past has grown by this factor.
        longest: a longer batch is bet on in pieces of this size, with a chance to retrain in between.
    """

    etas: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
    draws: int = 16
    first: int = 50
    growth: float = 1.5
    longest: int = 100
    staging: Staged = DEFAULT_STAGING
    network: MLP = field(default_factory=MLP)
    training: Training = field(default_factory=Training)
    standardize: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "etas", tuple(self.etas))
        if not all(0 <= eta < math.inf for eta in self.etas) or not any(self.etas):
            raise InputError(f"etas must be numbers in [0, inf), one of them not 0: got {self.etas}")
        for name, least in (("draws", 1), ("first", 2), ("longest", 1)):
            check_count(getattr(self, name), name=name, least=least)
        if not 1 < self.growth < math.inf:
            raise InputError(f"growth is a factor above 1, got {self.growth!r}")

    @property
    def accounts(self) -> int:
        return len(self.etas)


@dataclass(frozen=True, eq=False)
class Bettor:
    """A critic trained on the past, with what its bets need to know of the model."""

    critic: Critic
    trained_on: int  # points
    number: int  # 1 is the first critic
    scale: float  # spread of the witness under the model

    def witness(self, points: ScoredPoints) -> PerPoint:
        """In units of its spread under the model."""
        values = self.critic.witness(points).to("cpu", torch.float64) / self.scale
        if not bool(values.isfinite().all()):
            raise InputError("the witness is not finite at some points, so there is no bet on them")
        return values

    def to(self, device: torch.device) -> "Bettor":
        return replace(self, critic=self.critic.to(device))


def train_bettor(
    model: SamplingModel,
    past: ScoredPoints,
    config: Sequential,
    *,
    number: int,
    seed: int,
    device: DeviceLike = None,
) -> tuple[Bettor, tuple[str, ...]]:
    """A bettor from all of the past, and doubts about the model's draws.

    The scale comes from model draws of its own: it may not depend on those that a point is compared with.
    """
    critic = fit_critic(
        model,
        past,
        staging=config.staging,
        network=config.network,
        training=config.training,
        standardize=config.standardize,
        seed=derive(seed, "critic", number),
        device=device,
        callbacks=(),
    )
    bettor = Bettor(critic, trained_on=len(past), number=number, scale=1.0)
    draws = sample_points(model, _SCALE_DRAWS, seed=derive(seed, "scale", number), like=past.x)
    values = bettor.witness(draws)
    bettor = replace(bettor, scale=float(values.std()) or 1.0)
    doubts = dependence(model, draws.x, values)
    return bettor, doubts


def log_evalues(
    bettor: Bettor, model: SamplingModel, points: ScoredPoints, config: Sequential, *, seed: int
) -> Tensor:
    """(n, k) log e-values of points that the bettor was not trained on, one column per account."""
    etas, parts = torch.tensor(config.etas, dtype=torch.float64), []
    rows = max(1, _TOGETHER // (config.draws * points.dim))
    for start in range(0, len(points), rows):
        part = points[start : start + rows]
        count = len(part) * config.draws
        draws = sample_points(model, count, seed=derive(seed, "rivals", start), like=points.x)
        others = bettor.witness(draws).view(len(part), config.draws)
        parts.append(soft_rank(bettor.witness(part), others, etas))
    return torch.cat(parts)


def soft_rank(witness: PerPoint, others: Tensor, etas: Tensor) -> Tensor:
    r"""(n, k) log e-values of points among fresh model draws, one column per η.

    $$e = \frac{(m + 1)\, g(x)}{g(x) + \sum_{j=1}^m g(y_j)}, \qquad g = \exp(\eta w)$$

    Under the model x and its draws y_1 ... y_m are exchangeable given the critic. The m + 1 ratios that
    put each in the place of x then have one law, and their mean is one: E[e] = 1 exactly, for any w.

    Args:
        witness: (n,) of the points.
        others: (n, m) witness of model draws, other ones for every point.
        etas: (k,) steepness; 0 is no bet.
    """
    tilted = etas * torch.cat([witness[:, None], others], -1)[..., None]  # (n, m + 1, k)
    return math.log(tilted.shape[1]) + tilted[:, 0] - tilted.logsumexp(1)


def wealth_path(log_wealths: Tensor, log_evalues: Tensor) -> tuple[Tensor, Tensor]:
    """Log wealth of every account, (n, k), and of all together, (n,), after each point.

    k accounts hold equal shares of the start, each bets in its own way, and what counts is their mean.
    """
    paths = log_wealths + log_evalues.cumsum(0)
    return paths, pooled_wealth(paths)


def pooled_wealth(log_wealths: Tensor) -> Tensor:
    """log of the mean over accounts (the last axis) of wealths given by their logs."""
    return log_wealths.logsumexp(-1) - math.log(log_wealths.shape[-1])
