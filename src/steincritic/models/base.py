"""What a model is to this library: something with a score, and what else it may offer.

Only the score is needed. Everything else a model can have is declared here and asked for by these protocols
and functions, nowhere else:

| it has | protocol | what it is for |
|---|---|---|
| `sample(n, seed=0)` | `SamplingModel` | exact tests, regions, p-values of points |
| `log_prob(x)` | `DensityModel` | `doctor`'s check of the score, Langevin chains |
| `effective_sample_size(x)` | `ChainModel` | what its draws are worth |
| `unconstrain(draws)` | `ConstrainedModel` | named draws of a posterior |
| `with_noise(sd)` | `NoisedModel`, `knows_noise` | weights of separated modes, without draws too |
| `dim`, `names`, `like` | `dimension`, `coordinate_names`, `own_dtype` | checks, labels, precision |
| `fitted_to` | `fitted_points` | a warning where the same points are tested |
| `columns` | `fitted_columns` | the order of the columns it was fitted on |
| `coordinates` | `bounded.coordinates_of` | the way to coordinates without bounds, and back |
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from steincritic.errors import InputError
from steincritic.shapes import Numbers, PerPoint, Points, counted


@runtime_checkable
class Model(Protocol):
    """q, known by its score s_q = ∇ log q at points; nothing else has to be known of it."""

    def score(self, x: Points) -> Points: ...


@runtime_checkable
class SamplingModel(Model, Protocol):
    """A model that can also be sampled; the seed alone decides the draws."""

    def sample(self, n: int, *, seed: int = 0) -> Points: ...


@runtime_checkable
class DensityModel(Model, Protocol):
    """A model whose log-density is known, up to a constant or exactly."""

    def log_prob(self, x: Points) -> PerPoint: ...


@runtime_checkable
class ChainModel(Model, Protocol):
    """A model whose sampler knows how many independent draws its draws are worth."""

    def effective_sample_size(self, x: Points) -> float: ...


@runtime_checkable
class ConstrainedModel(Model, Protocol):
    """A posterior that takes draws of its own named parameters to the coordinates of its score."""

    def unconstrain(self, draws: Any) -> Points: ...


@runtime_checkable
class NoisedModel(Model, Protocol):
    """A model that knows the score of its draws with normal noise added to them.

    One that knows it at some levels alone says which: `noise_levels`, standard deviations that are the same
    for all coordinates.
    """

    def with_noise(self, sd: Numbers) -> Model:
        """The law of x + sd * z with z standard normal; sd is a number, or one per coordinate."""
        ...


class Described:
    """The one-line description that models share: their kind, what there is to say, their dimensions."""

    columns: tuple[str, ...] | None = None  # that the model was fitted on, where it knows them

    def __repr__(self) -> str:
        dim = getattr(self, "dim", None)
        parts = self._about(), "" if dim is None else counted(dim, "dimension")
        return f"{type(self).__name__}({' in '.join(filter(None, parts))})"

    def _about(self) -> str:
        return ""


def pass_on(model: object, wrapper: object, *names: str) -> None:
    """What a model has of these goes to the model made of it."""
    for name in names:
        if hasattr(model, name):
            setattr(wrapper, name, getattr(model, name))


Score: TypeAlias = Callable[[Tensor], Tensor]
Sampler: TypeAlias = Callable[[int, int], Tensor]  # n and seed to (n, d)
# What `as_model` takes; the last stands for objects of other libraries, recognized by their class.
ModelLike: TypeAlias = Model | Distribution | nn.Module | Score | tuple[Score, Sampler | None] | object


def dimension(model: Model) -> int | None:
    """The model's number of coordinates where it states one (attribute `dim`)."""
    dim = getattr(model, "dim", None)
    return dim if isinstance(dim, int) else None


def coordinate_names(model: Model | None) -> tuple[str, ...] | None:
    """What the model calls its coordinates, where it names them."""
    names = getattr(model, "names", None)
    return None if names is None else tuple(map(str, names))


def fitted_columns(model: Model | None) -> tuple[str, ...] | None:
    """Names of the columns that the model was fitted on, in its order, where it knows them."""
    columns = getattr(model, "columns", None)
    return columns if isinstance(columns, tuple) else None


def own_dtype(model: Model) -> torch.dtype | None:
    """The precision that the model computes in, where it states one (attribute `like`, a tensor)."""
    like = getattr(model, "like", None)
    return like.dtype if isinstance(like, Tensor) else None


def noise_levels(model: Model | None) -> tuple[float, ...] | None:
    """Standard deviations of noise at which alone the model knows its score; None where at any."""
    levels = getattr(model, "noise_levels", None)
    return None if levels is None else tuple(levels)


def knows_noise(model: Model | None) -> bool:
    return isinstance(model, NoisedModel) and noise_levels(model) != ()


def fitted_points(model: Model | None) -> Tensor | None:
    """The points that the model was fitted to, where it keeps them."""
    points = getattr(model, "fitted_to", None)
    return points if isinstance(points, Tensor) else None


def as_model(obj: ModelLike) -> Model:
    """Make a score model of whatever describes q.

    Accepted: an object with `score(x)` (and, for exact tests, `sample(n, seed=0)`); a
    `torch.distributions.Distribution`; a pair `(score, sample)` of callables, or `(score, None)`;
    an energy `nn.Module` E(x) with q ∝ exp(-E), or a module with `log_prob(x)`; a callable log-density,
    normalized or not; flows of zuko and normflows; mixtures and kernel densities of scikit-learn; frozen
    distributions of scipy.stats; a log-density that went through `jax.jit`; NumPyro distributions;
    models of PyMC and BridgeStan; posteriors of sbi; an OpenMM context. What cannot be recognized
    (a NumPyro model, a diffusion net) has its own class in `sc.models`. A distribution on a half-line,
    in a box or on a simplex becomes a `BoundedModel`.

    >>> q = as_model(torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3)))
    >>> q.score(torch.ones(1, 3))
    tensor([[-1., -1., -1.]])
    """
    from steincritic.models.adapters import adapt
    from steincritic.models.bounded import BoundedModel
    from steincritic.models.conditional import is_conditional
    from steincritic.models.coordinates import of_distribution
    from steincritic.models.density import (
        DistributionModel,
        EnergyModel,
        LogDensity,
        ModuleDensity,
        PairModel,
    )

    if (model := adapt(obj)) is not None:  # first: estimators of scikit-learn have another kind of score
        return model
    if isinstance(obj, Distribution):
        within, distribution = of_distribution(obj), DistributionModel(obj)
        return distribution if within is None else BoundedModel(distribution, within)
    if is_conditional(obj):
        raise InputError(
            "a model of y given x is tested with its target: pass target='NAME' (--target NAME) to gof_test "
            "or check"
        )
    if isinstance(obj, Model):
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
