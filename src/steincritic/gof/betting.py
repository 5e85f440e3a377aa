"""Bettors: a critic trained on the past of a stream, and the e-values of its bets on what comes next.

An e-value has mean at most one under the model. A gambler who starts with 1 and multiplies the
e-values of points as they come holds wealth W with P(sup W >= 1/level) <= level (Ville), however long
the stream is and however often the wealth is looked at.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.devices import DeviceLike
from steincritic.errors import InputError, check_choice, check_count, check_positive
from steincritic.gof.thresholds import dependence
from steincritic.models.base import SamplingModel
from steincritic.rng import derive
from steincritic.shapes import PerPoint
from steincritic.training.critic import Critic, fit_critic
from steincritic.training.fit import Training
from steincritic.training.pacing import DEFAULT_STAGING
from steincritic.training.staging import Staged

SPENT = 0.1  # share of the level that pays for the bounds of truncated bets
_SCALE_DRAWS = 2000
_TOGETHER = 2**22  # coordinates of model draws held at a time


@dataclass(frozen=True, kw_only=True)
class Sequential:
    """How a stream is bet on.

    Args:
        bets: "soft-rank" compares every point with fresh model draws; "truncated" bets on a truncated
            witness and draws from the model only when the critic is trained anew.
        etas: soft-rank: steepness of the bets, in units of the witness's spread under the model, one
            account each; 0 is money kept aside.
        draws: soft-rank: model draws per point.
        stakes: truncated: shares of the largest bet that cannot ruin, one account each.
        limit: truncated: where the witness is cut on both sides, in units of its spread.
        bound_draws: truncated: model draws that bound the mean of the cut witness, for each critic.
        first: points to see before the first critic is trained; no bets until then.
        growth: a new critic is trained when the past has grown by this factor.
        longest: a longer batch is bet on in pieces of this size, with a chance to retrain in between.
    """

    bets: Literal["soft-rank", "truncated"] = "soft-rank"
    etas: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
    draws: int = 16
    stakes: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.8)
    limit: float = 3.0
    bound_draws: int = 20_000
    first: int = 50
    growth: float = 1.5
    longest: int = 100
    staging: Staged = DEFAULT_STAGING
    network: MLP = field(default_factory=MLP)
    training: Training = field(default_factory=Training)
    standardize: bool = True

    def __post_init__(self) -> None:
        check_choice(self.bets, name="bets", choices=("soft-rank", "truncated"))
        for name, most in (("etas", math.inf), ("stakes", 1.0)):
            stakes = tuple(getattr(self, name))
            object.__setattr__(self, name, stakes)
            if not all(0 <= stake < most for stake in stakes) or not any(stakes):
                raise InputError(f"{name} must be numbers in [0, {most:g}), one of them not 0: got {stakes}")
        for name, least in (("draws", 1), ("bound_draws", 2), ("first", 2), ("longest", 1)):
            check_count(getattr(self, name), name=name, least=least)
        check_positive(self.limit, name="limit")
        if not 1 < self.growth < math.inf:
            raise InputError(f"growth is a factor above 1, got {self.growth!r}")

    @property
    def accounts(self) -> int:
        return len(self.etas if self.bets == "soft-rank" else self.stakes)

    @property
    def start(self) -> float:
        """The first wealth. Truncated bets set a share of the level aside for bounds that may fail."""
        return 1.0 if self.bets == "soft-rank" else 1.0 - SPENT


@dataclass(frozen=True, eq=False)
class Bettor:
    """A critic trained on the past, with what its bets need to know of the model."""

    critic: Critic
    trained_on: int  # points
    number: int  # 1 is the first critic
    scale: float  # spread of the witness under the model
    bound: float  # truncated: on the mean of the cut witness under the model

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
    level: float,
    seed: int,
    device: DeviceLike = None,
) -> tuple[Bettor, tuple[str, ...]]:
    """A bettor from all of the past, and doubts about the model's draws.

    The scale comes from model draws of its own, and so does the bound: neither may depend on the draws
    that a point is compared with. The bounds of all critics together fail with probability at most
    `SPENT` times the level, as 1/(1*2) + 1/(2*3) + ... = 1.
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
    bettor = Bettor(critic, trained_on=len(past), number=number, scale=1.0, bound=0.0)
    draws = sample_points(model, _SCALE_DRAWS, seed=derive(seed, "scale", number), like=past.x)
    values = bettor.witness(draws)
    bettor = replace(bettor, scale=float(values.std()) or 1.0)
    doubts = dependence(model, draws.x, values)
    if config.bets == "truncated":
        draws = sample_points(model, config.bound_draws, seed=derive(seed, "bound", number), like=past.x)
        cut = bettor.witness(draws).clamp(-config.limit, config.limit)
        error = SPENT * level / (number * (number + 1))
        bettor = replace(bettor, bound=mean_bound(cut, limit=config.limit, error=error))
    return bettor, doubts


def log_evalues(
    bettor: Bettor, model: SamplingModel, points: ScoredPoints, config: Sequential, *, seed: int
) -> Tensor:
    """(n, k) log e-values of points that the bettor was not trained on, one column per account."""
    if config.bets == "truncated":
        stakes = torch.tensor(config.stakes, dtype=torch.float64)
        return truncated(bettor.witness(points), stakes, bound=bettor.bound, limit=config.limit)
    etas, parts = torch.tensor(config.etas, dtype=torch.float64), []
    rows = max(1, _TOGETHER // (config.draws * points.dim))
    for start in range(0, len(points), rows):
        part = points[start : start + rows]
        count = len(part) * config.draws
        draws = sample_points(model, count, seed=derive(seed, "rivals", start), like=points.x)
        others = bettor.witness(draws).view(len(part), config.draws)
        parts.append(soft_rank(bettor.witness(part), others, etas))
    return torch.cat(parts)


def soft_rank(own: PerPoint, others: Tensor, etas: Tensor) -> Tensor:
    r"""(n, k) log e-values of points among fresh model draws, one column per η.

    $$e = \frac{(m + 1)\, g(x)}{g(x) + \sum_{j=1}^m g(y_j)}, \qquad g = \exp(\eta w)$$

    Under the model x and its draws y_1 ... y_m are exchangeable given the critic. The m + 1 ratios that
    put each in the place of x then have one law, and their mean is one: E[e] = 1 exactly, for any w.

    Args:
        own: (n,) witness of the points.
        others: (n, m) witness of model draws, other ones for every point.
        etas: (k,) steepness; 0 is no bet.
    """
    tilted = etas * torch.cat([own[:, None], others], -1)[..., None]  # (n, m + 1, k)
    return math.log(tilted.shape[1]) + tilted[:, 0] - tilted.logsumexp(1)


def truncated(own: PerPoint, stakes: Tensor, *, bound: float, limit: float) -> Tensor:
    r"""(n, k) log e-values of bets on a truncated witness, one column per stake.

    $$e = 1 + c\,(v(x) - \delta), \qquad v = \max(-b, \min(w, b)), \quad c = \frac{\text{stake}}{b + \delta}$$

    E[e] <= 1 where δ >= E_q v, and e >= 0 for stakes up to one. Stein's identity is not asked for.

    Args:
        own: (n,) witness of the points.
        stakes: (k,) in [0, 1): shares of the largest bet that cannot ruin.
        bound: δ, see `mean_bound`.
        limit: b.
    """
    gain = own.clamp(-limit, limit) - bound
    return torch.log1p(stakes / (limit + bound) * gain[:, None])


def mean_bound(values: PerPoint, *, limit: float, error: float) -> float:
    r"""An upper bound on the mean of values in [-b, b], wrong with probability at most `error`.

    The empirical Bernstein bound [maurer2009], theorem 4, with variance $s^2$ and $L = \log(2/\text{error})$:
    $$\delta = \bar v + \sqrt{2 s^2 L / m} + \frac{7 \cdot 2b\, L}{3 (m - 1)}$$
    """
    m, log_term = len(values), math.log(2 / error)
    spread = math.sqrt(2 * float(values.var()) * log_term / m)
    return float(values.mean()) + spread + 14 * limit * log_term / (3 * (m - 1))


def wealth_path(log_wealths: Tensor, log_evalues: Tensor) -> tuple[Tensor, Tensor]:
    """Log wealth of every account, (n, k), and of all together, (n,), after each point.

    k accounts hold equal shares of the start, each bets in its own way, and what counts is their mean.
    """
    paths = log_wealths + log_evalues.cumsum(0)
    return paths, pooled_wealth(paths)


def pooled_wealth(log_wealths: Tensor) -> Tensor:
    """log of the mean over accounts (the last axis) of wealths given by their logs."""
    return log_wealths.logsumexp(-1) - math.log(log_wealths.shape[-1])
