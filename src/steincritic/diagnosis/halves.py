"""Two critics, one per half of the data: every point is judged by the one that has not seen it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.frame import model_frame
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.engine import spread
from steincritic.errors import InputError
from steincritic.gof.fisher_ball import FisherTerms
from steincritic.lenses.critics import moved_blocks
from steincritic.models.base import Model, SamplingModel
from steincritic.models.coordinates import Coordinates
from steincritic.rng import derive, generator
from steincritic.shapes import PerPoint, Points
from steincritic.training.critic import Critic
from steincritic.training.fit import fit_bank
from steincritic.training.pacing import DEFAULT_STAGING, paced
from steincritic.training.progress import ProgressBar

FEWEST = 20  # points
_CONFIDENCE = 0.95
_DRAWS_PER_POINT = 20
_DRAWS = (10_000, 200_000)  # fewest and most
_DRAWN_NUMBERS = 20_000_000  # coordinates of model draws at most
_ROWS = 4096  # points that a thread takes at a time


@dataclass(frozen=True, eq=False)
class Values:
    """What one critic says of some points; on the CPU in double precision."""

    witness: PerPoint
    shares: Tensor  # (n, k) the witness split over blocks of coordinates
    gap: Points  # (n, d) the estimate of s_q - s_p


@dataclass(frozen=True, eq=False)
class Half:
    """Points of one half, with the critic that was trained on the other."""

    rows: Tensor  # their numbers in the data
    points: ScoredPoints
    critic: Critic
    held_out: Values  # of these points
    draws: Values | None  # of the model's draws
    trained: Values  # of the points that the critic was trained on

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def of_draws(self) -> Values:
        """Where the model can be sampled."""
        assert self.draws is not None
        return self.draws


@dataclass(frozen=True, eq=False)
class Halves:
    first: Half
    second: Half
    draws: ScoredPoints | None
    blocks: tuple[slice, ...]

    def __iter__(self) -> Iterator[Half]:
        return iter((self.first, self.second))

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def gathered(self, parts: Sequence[Tensor]) -> Tensor:
        """One value per point from those of the two halves, in the order of the data."""
        out = torch.empty(len(self), *parts[0].shape[1:], dtype=parts[0].dtype)
        for half, part in zip(self, parts, strict=True):
            out[half.rows] = part
        return out


def split_in_halves(
    model: Model | None, points: ScoredPoints, *, seed: int, in_order: bool = False, fixed: int = 0
) -> Halves:
    """Train both critics in one bank, and evaluate them on all points and on draws of the model.

    Halves are random, or the first and the second half of the rows. So many first columns are covariates,
    which critics see and do not move.
    """
    n = len(points)
    if n < FEWEST:
        raise InputError(f"x has {n} points, too few to see where a model fails; collect at least {FEWEST}")
    order = torch.arange(n) if in_order else torch.randperm(n, generator=generator(seed, "halves"))
    rows = (order[: n // 2], order[n // 2 :])
    size = n // 2
    frame = model_frame(model, points, seed=seed)
    parts = [points[part.to(points.x.device)] for part in rows]
    trained = [other[:size] for other in reversed(parts)]
    training, staging = paced(size, training=None, staging=DEFAULT_STAGING)
    fitted = fit_bank(
        frame.enter(ScoredPoints.stack(trained)),
        staging=staging,
        seeds=[derive(seed, "critic", k) for k in range(2)],
        network=MLP(fixed=fixed),
        training=training,
        callbacks=[ProgressBar("training critics of both halves")],
    )
    fitted.require_success()
    blocks = moved_blocks(points.dim, fixed)
    draws = None
    if isinstance(model, SamplingModel):  # many draws per point, within a bound on memory
        fewest, most = _DRAWS
        count = min(max(_DRAWS_PER_POINT * n, fewest), most, max(1000, _DRAWN_NUMBERS // points.dim))
        draws = sample_points(model, count, seed=derive(seed, "draws"), like=points.x)
    critics = [Critic(fitted[k : k + 1], frame, model) for k in range(2)]
    first, second = (
        Half(
            rows[k],
            parts[k],
            critic,
            values_of(critic, parts[k], blocks),
            None if draws is None else values_of(critic, draws, blocks),
            values_of(critic, trained[k], blocks),
        )
        for k, critic in enumerate(critics)
    )
    return Halves(first, second, draws, blocks)


def in_own_columns(halves: Halves, coordinates: Coordinates | None) -> Halves:
    """The same values at points in the columns of a model with bounds; no scores are known there."""
    if coordinates is None:
        return halves
    first, second = (replace(half, points=own_columns(half.points, coordinates)) for half in halves)
    draws = None if halves.draws is None else own_columns(halves.draws, coordinates)
    return Halves(first, second, draws, halves.blocks)


def own_columns(points: ScoredPoints, coordinates: Coordinates | None) -> ScoredPoints:
    """Points in the columns of a model with bounds, for rules and pictures; their scores are left out."""
    if coordinates is None:
        return points
    x = coordinates.constrain(points.x.double())[0].to(points.x)
    return ScoredPoints(x, torch.full_like(x, torch.nan))


def values_of(critic: Critic, points: ScoredPoints, blocks: Sequence[slice]) -> Values:
    """In pieces, which the threads of a CPU take one by one."""
    on_cpu = points.x.device.type == "cpu"
    size = _ROWS if on_cpu else len(points)
    pieces = [points[k : k + size] for k in range(0, len(points), size)]

    def look(piece: ScoredPoints) -> list[Tensor]:
        both = critic.shares(piece, blocks), critic.score_gap(piece)
        return [part.to("cpu", torch.float64) for part in both]

    answers = dict(spread(look, pieces, "threads" if on_cpu else "serial"))
    shares, gaps = (torch.cat([answers[k][part] for k in range(len(pieces))]) for part in range(2))
    return Values(shares.sum(-1), shares, gaps)


@dataclass(frozen=True)
class FisherBound:
    r"""Fisher divergence $E_p \|s_q - s_p\|^2$, columns in standard deviations of the model: from below."""

    lower: float  # exceeded by the divergence with this confidence; 0 where nothing can be said
    estimate: float  # of the part that the critics found
    confidence: float


def fisher_bound(halves: Halves) -> FisherBound:
    r"""How wrong is the model? The better bound of the two halves, each at half of the error.

    $$E_p\|s_q - s_p\|^2 \ge E_p[2 a\, T_q g - a^2 \|g\|^2]$$

    for every field g and number a. g is a critic's estimate of the gap s_q - s_p; g and a come from one half,
    the mean from the other, whose points are independent of both.
    """
    z = NormalDist().inv_cdf(1 - (1 - _CONFIDENCE) / 2)
    means, bounds = [], []
    for half in halves:
        # the field is the score gap; the witness's own field is that times the squared scale
        scale = half.critic.frame.scale.to(half.held_out.gap)
        learned, held_out = (
            FisherTerms(part.shares.sum(-1), (part.gap * scale).square().sum(-1))
            for part in (half.trained, half.held_out)
        )
        values = held_out.values(learned.best_factor())
        mean, error = float(values.mean()), float(values.std()) / math.sqrt(len(values))
        means.append(mean)
        bounds.append(mean - z * error)
    lower = max(0.0, *bounds)
    # where one half found much and the other nothing, what was found is at least what is certain
    return FisherBound(lower, max(lower, sum(means) / 2), _CONFIDENCE)
