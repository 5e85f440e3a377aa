"""Mixtures with far modes, data with other weights, and models that lack a sampler or know less."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from steincritic import Model
from steincritic.models import DiffusionModel, GaussianMixture, PairModel
from steincritic.models.ladder import KernelNoise
from steincritic.rng import derive, generator
from steincritic.shapes import Points

DISTANCES = (0, 2, 4, 6, 8, 10, 12)
_STEP = 5  # of the schedule, at which nets are tested
_KEPT = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)
_FEW = 30  # draws of an estimate that is taken for a score


@dataclass(frozen=True)
class Problem:
    """A model, and data from its modes with other weights; none of a mode for a weight of 0."""

    model: Callable[[], GaussianMixture]
    weights: Sequence[float]
    n: int

    def data(self) -> GaussianMixture:
        q, w = self.model(), torch.tensor(self.weights, dtype=torch.float64)
        return GaussianMixture(q.means[w > 0], q.covariances[w > 0], w[w > 0])


def twelve() -> GaussianMixture:
    """In 4-D, at least 6 apart in a box of side 10, with standard deviation 0.7."""
    source, centers = generator(1, "twelve modes"), [torch.zeros(4, dtype=torch.float64)]
    while len(centers) < 12:
        center = 10 * torch.rand(4, generator=source, dtype=torch.float64) - 5
        if min(float((center - other).norm()) for other in centers) > 6:
            centers.append(center)
    return GaussianMixture(torch.stack(centers), 0.5)


def two(distance: float, dim: int = 1) -> GaussianMixture:
    """Half and half, apart in the first column."""
    means = torch.zeros(2, dim, dtype=torch.float64)
    means[:, 0] = torch.tensor([-distance / 2, distance / 2])
    return GaussianMixture(means)


def four() -> GaussianMixture:
    """The data that nets were trained on, if they were trained well."""
    return GaussianMixture([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]], 0.01)


_OFF = torch.linspace(0.4, 1.6, 12).tolist()  # up to 60 % off
PROBLEMS: dict[str, Problem] = {
    "twelve modes, weights off by up to 60%": Problem(twelve, _OFF, 300),
    "two modes apart in one of 10 columns, .6/.4": Problem(partial(two, 8, 10), (0.6, 0.4), 300),
}
LINES: dict[str, Problem] = {  # two modes at many distances
    **{f"all in one of two, {a} apart": Problem(partial(two, a), (1, 0), 200) for a in DISTANCES},
    **{f".6/.4 for .5/.5, {a} apart": Problem(partial(two, a), (0.6, 0.4), 200) for a in DISTANCES},
}
NETS: dict[str, Problem] = {
    "four modes of a diffusion net, .35/.25/.25/.15": Problem(four, (0.35, 0.25, 0.25, 0.15), 200)
}
NULLS: dict[str, Problem] = {
    "twelve modes": Problem(twelve, (1,) * 12, 300),
    "two modes, 12 apart": Problem(partial(two, 12), (1, 1), 200),
}


def scores_of(model: GaussianMixture | DiffusionModel) -> PairModel:
    """All that is known of it at no noise."""
    return PairModel(model.score)


@dataclass(frozen=True, eq=False)
class ScoresAlone:
    """A model without its sampler."""

    model: GaussianMixture

    def score(self, x: Points) -> Points:
        return self.model.score(x)

    def with_noise(self, sd: Tensor) -> Model:
        return self.model.with_noise(sd)


@dataclass(frozen=True, eq=False)
class TakenForScores(ScoresAlone):
    """A model that takes an estimate from a few draws for its noised score: wrong under random signs."""

    def with_noise(self, sd: Tensor) -> Model:
        return KernelNoise(self.model.sample(_FEW, seed=derive(1, "few")), sd)


def net_of(data: GaussianMixture) -> DiffusionModel:
    """The best net there is for these data, at a little noise; it knows all noisier steps."""

    def net(x: Tensor, time: Tensor) -> Tensor:
        kept = float(_KEPT[int(time[0])])
        noise = (1 - kept) * torch.eye(data.dim, dtype=torch.float64)
        level = GaussianMixture(math.sqrt(kept) * data.means, kept * data.covariances + noise, data.weights)
        return -math.sqrt(1 - kept) * level.score(x)

    return DiffusionModel.at_step(net, _STEP, _KEPT)
