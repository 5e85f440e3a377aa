"""What a model is to this library: something with a score, perhaps with a sampler."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

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
    an energy `nn.Module` E(x) with q ∝ exp(-E), or a module with `log_prob(x)`; a callable log-density,
    normalized or not; flows of zuko and normflows; mixtures and kernel densities of scikit-learn; frozen
    distributions of scipy.stats; a log-density that went through `jax.jit`; NumPyro distributions;
    models of PyMC and PyStan; an OpenMM context. What no class tells (a NumPyro model, a diffusion net)
    has its own name in `models.adapters`.

    >>> q = as_model(torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3)))
    >>> q.score(torch.ones(1, 3))
    tensor([[-1., -1., -1.]])
    """
    from steincritic.models.adapters import EnergyModel, ModuleDensity, adapt
    from steincritic.models.density import DistributionModel, LogDensity, PairModel, check_support

    if (model := adapt(obj)) is not None:  # first: estimators of scikit-learn have another kind of score
        return model
    if isinstance(obj, torch.distributions.Distribution):
        check_support(obj)
        return DistributionModel(obj)
    if isinstance(obj, ScoreModel):
        return obj
    if isinstance(obj, nn.Module):
        return ModuleDensity(obj) if hasattr(obj, "log_prob") else EnergyModel(obj)
    if isinstance(obj, tuple) and len(obj) == 2 and callable(obj[0]) and (obj[1] is None or callable(obj[1])):
        return PairModel(obj[0], obj[1])
    if callable(obj):
        return LogDensity(obj)
    raise InputError(
        "a model must have score(x), or be a torch distribution, an energy nn.Module, a log-density "
        f"callable or a (score, sample) pair; got {type(obj).__name__}"
    )
