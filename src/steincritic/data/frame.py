"""Frame: a change of variables to the model's own location and scale."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints, sample_points
from steincritic.models.base import Model, SamplingModel
from steincritic.rng import derive
from steincritic.shapes import counted

_DRAWS = 2000  # of the model, for its location and scale
_LEAST_VARIANCE = 1e-12  # of a direction, in units of the largest


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """Per-coordinate location and scale: y = (x - location) / scale.

    A change of variables: the score of y is scale * score of x, so every Stein identity holds in y.
    """

    location: Tensor  # (d,), or (t, 1, d) for stacked datasets with a frame each
    scale: Tensor

    @classmethod
    def identity(cls, dim: int) -> "Frame":
        return cls(torch.zeros(dim, dtype=torch.float64), torch.ones(dim, dtype=torch.float64))

    @classmethod
    def of(cls, x: Tensor) -> "Frame":
        """Mean and standard deviation of a sample, or of each of (t, n, d); where constant, scale 1."""
        x = x.to(torch.float64)
        stacked = x.ndim == 3
        location = x.mean(-2, keepdim=stacked)
        scale = x.std(-2, keepdim=stacked) if x.shape[-2] > 1 else torch.zeros_like(location)
        return cls(location, torch.where(scale > 0, scale, torch.ones_like(scale)))

    @classmethod
    def by_scores(cls, points: ScoredPoints) -> "Frame":
        """One over the standard deviation of the score: for a normal model its standard deviation, for one
        with several modes about that within a mode."""
        steep = points.score.to(torch.float64).std(-2)
        scale = 1 / torch.where((steep > 0) & steep.isfinite(), steep, torch.ones_like(steep))
        return cls(points.x.to(torch.float64).mean(-2), scale)

    def __repr__(self) -> str:
        return f"Frame({counted(self.scale.shape[-1], 'dimension')})"

    def enter(self, points: ScoredPoints) -> ScoredPoints:
        location, scale = self.location.to(points.x), self.scale.to(points.x)
        return ScoredPoints((points.x - location) / scale, points.score * scale)


@dataclass(frozen=True, eq=False, repr=False)
class RowFrame:
    """A location and a scale for each of the n rows that every dataset has: those of y given x there."""

    location: Tensor  # (n, d)
    scale: Tensor

    @classmethod
    def of(cls, draws: Tensor, covariates: int) -> "RowFrame":
        """From (k, n, d) draws with the same x in each: y by its own draws at each row, x over the rows."""
        rows, y = Frame.of(draws[0, :, :covariates]), draws[..., covariates:].to(torch.float64)
        spread = y.std(0)
        location = torch.cat([rows.location.expand(len(spread), -1), y.mean(0)], 1)
        scale = torch.cat([rows.scale.expand(len(spread), -1), spread], 1)
        return cls(location, torch.where(scale > 0, scale, torch.ones_like(scale)))

    def enter(self, points: ScoredPoints) -> ScoredPoints:
        """Of (..., k n, d) points, row after row."""
        sets = points.map(lambda t: t.unflatten(-2, (-1, len(self.location))))
        return Frame(self.location, self.scale).enter(sets).map(lambda t: t.flatten(-3, -2))


def model_frame(model: Model | None, points: ScoredPoints, *, seed: int, draws: int = _DRAWS) -> Frame:
    """Location and scale of the model, from its own draws where it has any, else of the points."""
    if isinstance(model, SamplingModel):
        return Frame.of(sample_points(model, draws, seed=derive(seed, "frame"), like=points.x).x)
    return Frame.of(points.x)


@dataclass(frozen=True, eq=False, repr=False)
class Whitening:
    """A linear change of variables to uncorrelated coordinates, y = C^(-1/2) x, as near to x as can be."""

    root: Tensor  # (d, d) C^(1/2)
    inverse: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "Whitening":
        """From the covariance of a sample; directions that hardly vary count as varying a little."""
        return cls._by(_covariance(x))

    @classmethod
    def by_scores(cls, points: ScoredPoints) -> "Whitening":
        """From a sample and its scores: C is the geometric mean of Cov[x] and the inverse of Cov[score].

        Where the score is that of a normal model, -C^-1 (x - m), this is its C for any sample of more than d
        points, whether or not they come from the model.
        """
        root = _power(_covariance(points.x), 0.5)
        middle = _power(root @ _covariance(points.score) @ root, -0.5)
        return cls._by(root @ middle @ root)

    @classmethod
    def _by(cls, covariance: Tensor) -> "Whitening":
        return cls(_power(covariance, 0.5), _power(covariance, -0.5))

    @property
    def condition(self) -> float:
        """Largest over smallest standard deviation of any direction."""
        return float(torch.linalg.matrix_norm(self.root, 2) * torch.linalg.matrix_norm(self.inverse, 2))

    def enter(self, points: ScoredPoints) -> ScoredPoints:
        return ScoredPoints(points.x @ self.inverse.to(points.x), points.score @ self.root.to(points.x))


def _covariance(x: Tensor) -> Tensor:
    return torch.cov(x.to(torch.float64).T).reshape(x.shape[-1], -1)


def _power(matrix: Tensor, power: float) -> Tensor:
    """Of a covariance; directions that hardly vary count as varying a little."""
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp(min=_LEAST_VARIANCE * float(values[-1].clamp(min=1e-300)))
    result: Tensor = (vectors * values**power) @ vectors.T
    return result
