r"""Noised scores where a model does not know them, and draws where it knows nothing else.

With noise of standard deviation $\sigma$ the score is that of a denoiser (Tweedie's formula),

$$s_\sigma(y) = \frac{E[x \mid y] - y}{\sigma^2},$$

so draws of the model give it as a weighted mean of draws, and a model that knows it at every level has draws:
points from far out follow $dy/d\sigma = -\sigma s_\sigma(y)$ down the ladder [song2021]. Both are
approximate. They choose where a test looks; the level of no test hangs on them.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from steincritic.models.base import Described, NoisedModel, noise_levels
from steincritic.rng import Source
from steincritic.shapes import Points

_HELD = 2**22  # weights at a time
_FAR = 1000.0  # standard deviations of the points, where the model looks like one point
_TOP, _BOTTOM = 12.0, 0.03  # of the ladder, in standard deviations of the model
_STEPS = 25
_PROBES = 256


class KernelNoise(Described):
    """A law known by draws alone, with noise on them: a normal kernel at every draw.

    Args:
        draws: (m, d).
        sd: (d,) of the noise.
    """

    def __init__(self, draws: Points, sd: Tensor) -> None:
        self.dim = draws.shape[1]
        self._draws, self._sd = draws, sd

    def score(self, x: Points) -> Points:
        sd = self._sd.to(x)
        inside = (self._draws / self._sd).to(x)
        half, rows = inside.square().sum(-1) / 2, max(1, _HELD // len(inside))
        parts = [
            torch.baddbmm(-half, y[None], inside.T[None])[0].softmax(-1) @ inside - y
            for y in (x / sd).split(rows)
        ]
        return torch.cat(parts) / sd


def ladder_draws(model: NoisedModel, points: Points, n: int, *, seed: int) -> Tensor:
    """(n, d) draws, approximately, of a model that knows its score at every level of noise.

    Args:
        points: give a first idea of place and scale; the model's own come from its score at the highest
            level, so that hardly anything depends on them.
    """
    source = Source(seed, "ladder", device=points.device)
    center, scale = _place(model, points, source)
    rungs = list(_rungs(model, scale))
    z = source.normals(n, len(scale), dtype=scale.dtype)
    y = center + (scale.square() + rungs[0].square()).sqrt() * z
    levels = [model.with_noise(noise_for(model, sd)) for sd in rungs]
    for (sd, level), (below, next_level) in pairwise(zip(rungs, levels, strict=True)):
        slope = sd * level.score(y)
        predictor = y + (sd - below) * slope
        y = y + (sd - below) * (slope + below * next_level.score(predictor)) / 2  # Heun's method
    return y


def _place(model: NoisedModel, points: Points, source: Source) -> tuple[Tensor, Tensor]:
    """Mean and standard deviations of the model: where all noise is, its denoiser is nearly linear."""
    x = points.to(torch.float64)
    spread = x.std(0).clamp(min=1e-300)
    levels = noise_levels(model)
    far = _FAR * spread if levels is None else torch.full_like(spread, levels[-1])
    z = source.normals(_PROBES, x.shape[1], dtype=torch.float64)
    z = torch.cat([z, -z])
    y = x.mean(0) + far * z
    clean = y + far.square() * model.with_noise(noise_for(model, far)).score(y).to(y)
    slope = ((clean - clean.mean(0)) * z).mean(0) / z.square().mean(0)
    variance = far * slope / (1 - slope / far).clamp(min=1e-6)
    scale = variance.clamp(min=1e-12 * far.square()).sqrt()
    return clean.mean(0), scale if levels is None else scale.square().mean().sqrt().expand_as(scale)


def _rungs(model: NoisedModel, scale: Tensor) -> Iterator[Tensor]:
    """Standard deviations of noise, the largest first."""
    ladder = [_TOP * (_BOTTOM / _TOP) ** (k / _STEPS) for k in range(_STEPS + 1)]
    levels = noise_levels(model)
    if levels is None:
        yield from (step * scale for step in ladder)
        return
    nearest = [nearest_level(levels, step * float(scale[0])) for step in ladder]
    yield from (torch.full_like(scale, level) for level in dict.fromkeys(nearest))


def nearest_level(levels: Sequence[float], target: float) -> float:
    return min(levels, key=lambda known: abs(math.log(known / target)))


def noise_for(model: NoisedModel, sd: Tensor) -> Tensor:
    """As the model takes it: a model with levels of its own takes one number."""
    return sd if noise_levels(model) is None else sd[0]
