"""q(y | x) as a torch distribution made from x: by a function, a module, or a conditional flow of zuko."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent

from steincritic.errors import InputError, ModelError
from steincritic.models.base import Described
from steincritic.models.density import seeded_draws
from steincritic.models.regression import Regression
from steincritic.shapes import PerPoint, Points


class DistributionGiven(Described):
    """The model whose y at rows x follow the distribution `make(x)`, one batch member per row.

    Computes in the precision of the module's parameters, if it is one, and answers in that of y.

    >>> q = DistributionGiven(lambda x: torch.distributions.Normal(2 * x, 1.0))
    >>> q.score(torch.tensor([[1.0]]), torch.tensor([[3.0]]))
    tensor([[-1.]])
    """

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        self._make = make
        parameters = make.parameters() if isinstance(make, nn.Module) else ()
        self.like = next((p.detach().flatten()[:0] for p in parameters if p.is_floating_point()), None)
        self._is_checked = False

    def _about(self) -> str:
        return type(self._make).__name__

    def given(self, x: Points) -> Distribution:
        """The distribution of y at each row of x: batch shape (n,)."""
        made = self._made(x)
        shape = tuple(made.batch_shape)
        if shape[:1] != (len(x),) or len(shape) + len(made.event_shape) > 2:
            raise ModelError(
                f"the distribution of y at {len(x)} rows of x must have batch shape ({len(x)},), or "
                f"({len(x)}, dy) of numbers; got batch {shape}, event {tuple(made.event_shape)}"
            )
        if not self._is_checked:
            _check_support(made)
            self._is_checked = True
        return Independent(made, 1) if len(shape) == 2 else made

    def log_prob(self, x: Points, y: Points) -> PerPoint:
        made = self.given(x)
        inside = y if self.like is None else y.to(self.like)
        value = made.log_prob(inside if made.event_shape else inside[:, 0])
        return value.to(y)

    def score(self, x: Points, y: Points) -> Points:
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            value = self.log_prob(x, y).sum()
            (score,) = torch.autograd.grad(value, y) if value.requires_grad else (torch.zeros_like(y),)
        return score  # zero for a uniform y

    def sample(self, x: Points, *, seed: int = 0) -> Points:
        made = self.given(x)
        return seeded_draws(made.sample, seed=seed).reshape(len(x), -1).to(x)

    def _made(self, x: Points) -> Distribution:
        try:
            made = self._make(x if self.like is None else x.to(self.like))
        except RuntimeError:  # a function that calls a network in single precision
            if self.like is not None or x.dtype != torch.float64:
                raise
            made = self._make(x.float())
            self.like = x.float().flatten()[:0]
        if not isinstance(made, Distribution):
            raise InputError(
                "a conditional model must turn x into a torch distribution of y, or be a pair of functions "
                f"(score, sample); got {type(made).__name__}"
            )
        return made


def adapt_conditional(obj: Any) -> DistributionGiven | Regression | None:
    """A function of x, a module or a flow as a conditional model; None where it is none of them."""
    if hasattr(obj, "predict") and hasattr(obj, "fit"):
        raise InputError(
            f"a regressor says nothing of the noise around its predictions: pass "
            f"sc.models.Regression({type(obj).__name__.lower()}, scale), scale a number or a function of x"
        )
    return DistributionGiven(obj) if callable(obj) else None


def _check_support(made: Distribution) -> None:
    """A discrete y has no score. Bounds are no matter: y is compared with draws at the same x."""
    base = getattr(made, "base", made)  # zuko's flows do not state their support, their base does
    try:
        support: Any = base.support
    except NotImplementedError:
        return
    if support.is_discrete:
        raise InputError(f"y must be continuous to have a score; {type(base).__name__} lives on {support}")
