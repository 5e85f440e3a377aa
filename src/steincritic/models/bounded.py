"""Bounded supports: half-lines, boxes and simplexes as models in coordinates without bounds.

With x = T(z) for z in all of space, the density of z is that of x times |det J|, so its score is

$$s_z = J^\\top s_x + \\nabla_z \\log|\\det J|.$$

It vanishes at infinity wherever the density of x can be integrated, so Stein's identity holds in z whatever
happens at the edge. A critic f(z) is a critic of x times a factor that vanishes at the edge (J f), so this is
the boundary factor too. Only the score of x is needed.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint

from steincritic.errors import InputError, ModelError
from steincritic.models.base import Described, ModelLike, as_model, dimension, fitted_points, pass_on
from steincritic.models.coordinates import (
    Bounds,
    Box,
    Coordinates,
    Simplex,
    as_box,
    of_constraint,
    of_distribution,
)
from steincritic.models.density import LogDensity
from steincritic.rng import derive
from steincritic.shapes import PerPoint, Points

_LEAST_KEPT = 0.01  # share of a sampler's draws within the bounds


class BoundedModel(Described):
    """A model whose columns have bounds; score and draws in these columns, as of any other model.

    Tests work in coordinates without bounds: `unbounded`. Draws outside of the bounds are left out, so that
    a model that goes on beyond them is cut off there.

    Args:
        model: anything `as_model` takes.
        coordinates: or bounds: "simplex", or (low, high) per column, None for a column without.

    >>> from steincritic.models import PairModel
    >>> q = BoundedModel(PairModel(lambda x: -torch.ones_like(x)), [(0.0, None)])  # exponential
    >>> q.unbounded.score(torch.zeros(1, 1))  # of log x, at x = 1
    tensor([[0.]])
    """

    def __init__(self, model: ModelLike, coordinates: Coordinates | Bounds) -> None:
        adapted = as_model(model)
        self.model: Any = adapted.model if isinstance(adapted, BoundedModel) else adapted
        self.dim = dimension(self.model)
        if isinstance(coordinates, Box | Simplex):
            self.coordinates: Coordinates = coordinates
        else:
            if self.dim is None and isinstance(coordinates, str | Mapping):
                raise InputError(
                    "the model does not state its number of columns: give bounds as one pair each"
                )
            columns = len(coordinates) if self.dim is None else self.dim
            self.coordinates = as_box(coordinates, [f"x{j + 1}" for j in range(columns)])
        self.dim = self.coordinates.dim or self.dim
        self.score = self.model.score
        self.cut = 0.0  # share of the last draws that lay outside
        pass_on(self.model, self, "log_prob", "columns", "like", "fitted_to")
        if hasattr(self.model, "sample"):
            self.sample = self._sample
        self.unbounded = UnboundedModel(self)

    def _about(self) -> str:
        return type(self.model).__name__

    def _sample(self, n: int, *, seed: int = 0) -> Points:
        parts: list[Points] = []
        while sum(map(len, parts)) < n:
            again = derive(seed, "within bounds", len(parts)) if parts else seed
            x = torch.as_tensor(self.model.sample(n, seed=again)).detach()
            if x.ndim != 2:
                raise ModelError(f"model.sample({n}) must return shape ({n}, d), got {tuple(x.shape)}")
            outside, on_edge = self.coordinates.lost(x)
            parts.append(x[~(outside | on_edge).any(-1)])
            if len(parts) > 1:
                continue
            self.cut = 1 - len(parts[0]) / len(x)
            if len(parts[0]) < _LEAST_KEPT * n:
                raise ModelError(
                    f"{len(parts[0])} of {n} draws of the model lie within its bounds: are bounds and "
                    "sampler in the same coordinates?"
                )
        return torch.cat(parts)[:n]


class UnboundedModel(Described):
    """A bounded model in coordinates without bounds, Jacobian included."""

    def __init__(self, bounded: BoundedModel) -> None:
        self.bounded: Any = bounded
        self.coordinates = bounded.coordinates
        self.dim = bounded.dim
        if self.dim is not None and isinstance(self.coordinates, Simplex):
            self.dim -= 1
        pass_on(bounded, self, "columns", "like")
        for name in ("log_prob", "sample"):
            if hasattr(bounded, name):
                setattr(self, name, getattr(self, f"_{name}"))
        if hasattr(bounded.model, "effective_sample_size"):
            self.effective_sample_size = lambda z: bounded.model.effective_sample_size(self._at(z))
        if (points := fitted_points(bounded)) is not None:
            self.fitted_to = self.coordinates.unconstrain(points.double()).to(points)

    def _about(self) -> str:
        return repr(self.bounded)

    @property
    def cut(self) -> float:
        """Share of the last draws that lay outside of the bounds and were left out."""
        return float(self.bounded.cut)

    def _at(self, z: Points) -> Points:
        """x, in the precision of z."""
        return self.coordinates.inward(self.coordinates.constrain(z.detach().double())[0].to(z))

    def score(self, z: Points) -> Points:
        x = self._at(z)
        score = torch.as_tensor(self.bounded.score(x)).detach()
        if score.shape != x.shape:
            raise ModelError(
                f"model.score must return the shape of its argument, {tuple(x.shape)}; got "
                f"{tuple(score.shape)}"
            )
        return self.coordinates.pulled(z.double(), score.to(z).double()).to(z)

    def _log_prob(self, z: Points) -> PerPoint:
        x, log_jacobian = self.coordinates.constrain(z.double())
        value: Tensor = torch.as_tensor(self.bounded.log_prob(self.coordinates.inward(x.to(z))))
        return value.to(z) + log_jacobian.to(z)

    def _sample(self, n: int, *, seed: int = 0) -> Points:
        x: Tensor = self.bounded.sample(n, seed=seed)
        return self.coordinates.unconstrain(x.double()).to(x)


def unbounded(model: Any) -> Any:
    """The model in the coordinates that tests work in."""
    return model.unbounded if isinstance(model, BoundedModel) else model


def coordinates_of(model: object) -> Coordinates | None:
    """The coordinates of a model with bounds, and of what is made of one."""
    coordinates = getattr(model, "coordinates", None)
    return coordinates if isinstance(coordinates, Box | Simplex) else None


class BoundedDensity(LogDensity):
    """A log-density of bounded parameters, in coordinates without bounds, Jacobian included.

    Unlike `BoundedModel` it is a posterior: its points are unbounded, and draws go through `unconstrain`.

    Args:
        log_prob: log-density of parameters (n, d), normalized or not.
        support: where they live: a torch constraint, or a prior with such a support.

    >>> prior = torch.distributions.Uniform(torch.zeros(2), torch.ones(2))
    >>> q = BoundedDensity(lambda theta: theta.log().sum(-1), prior)
    >>> q.score(torch.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    def __init__(
        self,
        log_prob: Callable[[Tensor], Tensor],
        support: Constraint | Distribution,
        *,
        dim: int | None = None,
    ) -> None:
        within = of_distribution(support) if isinstance(support, Distribution) else of_constraint(support)
        self._within: Coordinates = within or Box(-math.inf, math.inf)
        density = LogDensity(log_prob)

        def joint(x: Points) -> PerPoint:
            theta, log_jacobian = self._within.constrain(x)
            return (density.log_prob(theta) + log_jacobian).to(x)

        super().__init__(joint, dim=dim)

    def constrain(self, x: Points) -> Points:
        """Points as parameters."""
        return self._within.constrain(x)[0]

    def unconstrain(self, draws: Any) -> Points:
        """Draws (n, d) of the parameters as points."""
        theta = torch.as_tensor(draws).detach()
        outside = self._within.lost(theta)[0].any(-1)
        if bool(outside.any()):
            raise InputError(
                f"{int(outside.sum())} of {len(theta)} draws lie outside of the parameters' bounds, the "
                f"first is row {int(outside.nonzero()[0, 0])}; pass draws of the parameters themselves"
            )
        return self._within.unconstrain(self._within.inward(theta))
