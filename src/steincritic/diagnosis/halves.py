"""Two critics, one per half of the data: every point is judged by the one that has not seen it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.frame import model_frame
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.engine import spread
from steincritic.errors import InputError
from steincritic.lenses.critics import moved_blocks
from steincritic.models.base import Model, SamplingModel
from steincritic.models.coordinates import Coordinates
from steincritic.rng import derive, generator
from steincritic.shapes import PerPoint, Points
from steincritic.training.critic import Critic
from steincritic.training.fit import fit_bank
from steincritic.training.pacing import paced
from steincritic.training.progress import ProgressBar

FEWEST = 20  # points
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
    own: Values  # of these points
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
    own = [points[part.to(points.x.device)] for part in rows]
    trained = [other[:size] for other in reversed(own)]
    training, staging = paced(size)
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
    if isinstance(model, SamplingModel):
        count = draw_count(n, points.dim)
        draws = sample_points(model, count, seed=derive(seed, "draws"), like=points.x)
    critics = [Critic(fitted[k : k + 1], frame, model) for k in range(2)]
    first, second = (
        Half(
            rows[k],
            own[k],
            critic,
            values_of(critic, own[k], blocks),
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

    made = dict(spread(look, pieces, "threads" if on_cpu else "serial"))
    shares, gaps = (torch.cat([made[k][part] for k in range(len(pieces))]) for part in range(2))
    return Values(shares.sum(-1), shares, gaps)


def draw_count(n: int, dim: int) -> int:
    """Model draws that points are compared with: many per point, within a bound on memory."""
    fewest, most = _DRAWS
    return min(max(_DRAWS_PER_POINT * n, fewest), most, max(1000, _DRAWN_NUMBERS // dim))
