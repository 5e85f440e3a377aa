"""Frame: a change of variables to the model's own location and scale."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints, sample_points
from steincritic.models.base import Model, SamplingModel
from steincritic.rng import derive
from steincritic.shapes import counted

_DRAWS = 2000  # of the model, for its location and scale


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

    def __repr__(self) -> str:
        return f"Frame({counted(self.scale.shape[-1], 'dimension')})"

    def enter(self, points: ScoredPoints) -> ScoredPoints:
        location, scale = self.location.to(points.x), self.scale.to(points.x)
        return ScoredPoints((points.x - location) / scale, points.score * scale)


def model_frame(model: Model | None, points: ScoredPoints, *, seed: int) -> Frame:
    """Location and scale of the model, from its own draws where it has any, else of the points."""
    if isinstance(model, SamplingModel):
        draws = sample_points(model, _DRAWS, seed=derive(seed, "frame"), like=points.x)
        return Frame.of(draws.x)
    return Frame.of(points.x)
