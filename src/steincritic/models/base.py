"""What a model is to this library: something with a score, perhaps with a sampler."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from steincritic.errors import InputError
from steincritic.shapes import PerPoint, Points


@runtime_checkable
class ScoreModel(Protocol):
    """q, known by its score s_q = ∇ log q at points; nothing else is ever asked of it."""

    def score(self, x: Points) -> Points: ...


@runtime_checkable
class SamplingModel(ScoreModel, Protocol):
    """A score model that can also be sampled; the seed alone decides the draws."""

    def sample(self, n: int, *, seed: int = 0) -> Points: ...


@runtime_checkable
class DensityModel(ScoreModel, Protocol):
    """A score model whose log-density is known, up to a constant or exactly."""

    def log_prob(self, x: Points) -> PerPoint: ...


def dimension(model: ScoreModel) -> int | None:
    """The model's number of coordinates where it states one (attribute `dim`)."""
    dim = getattr(model, "dim", None)
    return dim if isinstance(dim, int) else None


def as_model(obj: Any) -> ScoreModel:
    """Make a score model of whatever describes q.

    Accepted: an object with `score(x)` (and, for exact tests, `sample(n, seed=0)`); a
    `torch.distributions.Distribution`; a pair `(score, sample)` of callables, or `(score, None)`;
    an energy `nn.Module` E(x) with q ∝ exp(-E); a callable log-density, normalised or not.

    >>> q = as_model(torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3)))
    >>> q.score(torch.ones(1, 3))
    tensor([[-1., -1., -1.]])
    """
    from steincritic.models.density import DistributionModel, LogDensity, PairModel

    if isinstance(obj, torch.distributions.Distribution):
        return DistributionModel(obj)
    if isinstance(obj, ScoreModel):
        return obj
    if isinstance(obj, nn.Module):
        return LogDensity(_negative(obj))
    if isinstance(obj, tuple) and len(obj) == 2 and callable(obj[0]):
        return PairModel(obj[0], obj[1])
    if callable(obj):
        return LogDensity(obj)
    raise InputError(
        "a model must have score(x), or be a torch distribution, an energy nn.Module, a log-density "
        f"callable or a (score, sample) pair; got {type(obj).__name__}"
    )


def _negative(energy: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: -energy(x)
