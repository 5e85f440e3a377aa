"""A log-density of bounded parameters, in coordinates without bounds."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, biject_to, constraints
from torch.distributions.constraints import Constraint

from steincritic.errors import InputError
from steincritic.models.density import LogDensity
from steincritic.shapes import PerPoint, Points


class Coordinates:
    """The way from parameters to coordinates without bounds, and back: logarithms, logits, or as they are.

    Args:
        support: where the parameters live, or a prior with such a support.
    """

    def __init__(self, support: Constraint | Distribution) -> None:
        stated: Any = support.support if isinstance(support, Distribution) else support
        inner = stated
        while hasattr(inner, "base_constraint"):
            inner = inner.base_constraint
        if stated.is_discrete:
            raise InputError(f"discrete parameters have no score: their support is {stated}")
        self._support = stated
        self._transform = None if inner is constraints.real else biject_to(stated)

    def constrain(self, x: Points) -> tuple[Points, PerPoint]:
        """Parameters, and the logarithm of the Jacobian's determinant."""
        if self._transform is None:
            return x, x.new_zeros(len(x))
        theta = self._transform(x)
        return theta, self._transform.log_abs_det_jacobian(x, theta).reshape(len(x), -1).sum(-1)

    def unconstrain(self, draws: Any) -> Points:
        """Draws (n, d) of the parameters as points."""
        theta = torch.as_tensor(draws).detach()
        if self._transform is None:
            return theta
        lost = ~self._support.check(theta).reshape(len(theta), -1).all(-1)
        if bool(lost.any()):
            raise InputError(
                f"{int(lost.sum())} of {len(theta)} draws lie outside of the parameters' bounds, the first "
                f"is row {int(lost.nonzero()[0, 0])}; pass draws of the parameters themselves"
            )
        x: Tensor = self._transform.inv(theta)
        return x


class BoundedDensity(LogDensity):
    """A log-density of bounded parameters, in coordinates without bounds, Jacobian included.

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
        own, coordinates = LogDensity(log_prob), Coordinates(support)

        def joint(x: Points) -> PerPoint:
            theta, log_jacobian = coordinates.constrain(x)
            return (own.log_prob(theta) + log_jacobian).to(x)

        self._coordinates, self.unconstrain = coordinates, coordinates.unconstrain
        super().__init__(joint, dim=dim)

    def constrain(self, x: Points) -> Points:
        """Points as parameters."""
        return self._coordinates.constrain(x)[0]
