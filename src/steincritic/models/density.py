"""Models made from a log-density, a torch distribution, or a pair of callables."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, VonMises, constraints

from steincritic.errors import InputError, ModelError, check_count
from steincritic.shapes import PerPoint, Points


class LogDensity:
    """A log-density, normalised or not, whose score is taken by automatic differentiation."""

    def __init__(self, log_prob: Callable[[Tensor], Tensor], *, dim: int | None = None) -> None:
        self._log_prob = log_prob
        self.dim = dim

    def log_prob(self, x: Points) -> PerPoint:
        value = self._log_prob(x)
        if value.shape == (len(x), 1):  # the usual shape of an energy network's output
            value = value[:, 0]
        if value.shape != (len(x),):
            raise ModelError(
                f"the log-density must return one number a row, shape ({len(x)},), for x of shape "
                f"{tuple(x.shape)}; got {tuple(value.shape)}"
            )
        return value

    def score(self, x: Points) -> Points:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = self.log_prob(x)
            if not value.requires_grad:
                raise ModelError(
                    "the log-density does not depend on x through torch operations, so it has no "
                    "gradient; pass a (score, sample) pair instead"
                )
            (score,) = torch.autograd.grad(value.sum(), x)
        return score


class DistributionModel(LogDensity):
    """A torch distribution over vectors (or over numbers, taken as one dimension)."""

    def __init__(self, distribution: Distribution) -> None:
        if len(distribution.batch_shape) + len(distribution.event_shape) > 1:
            raise InputError(
                "a torch distribution must describe one vector: batch and event shape together at "
                f"most (d,), got batch {tuple(distribution.batch_shape)} and event "
                f"{tuple(distribution.event_shape)}; wrap it in torch.distributions.Independent"
            )
        check_support(distribution)
        self._distribution = distribution
        self._is_scalar = not distribution.batch_shape and not distribution.event_shape
        shape = (*distribution.batch_shape, *distribution.event_shape)
        self.like = lent_draws(lambda: distribution.sample((1,)), seed=0)[:0].view(-1)
        super().__init__(at_home(self._joint_log_prob, self.like), dim=shape[0] if shape else 1)

    def _joint_log_prob(self, x: Points) -> PerPoint:
        value = self._distribution.log_prob(x[:, 0] if self._is_scalar else x)
        return value.sum(-1) if value.ndim == 2 else value

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        return lent_draws(lambda: self._distribution.sample((n,)), seed=seed).view(n, -1)


def check_support(distribution: Distribution) -> None:
    """Stein's identity needs a density on all of space; a distribution that does not say is believed."""
    try:
        support = distribution.support
    except NotImplementedError:
        return
    inner: Any = support
    while hasattr(inner, "base_constraint"):
        inner = inner.base_constraint
    if inner is not constraints.real or isinstance(distribution, VonMises):  # a circle, whatever it says
        raise InputError(
            f"a distribution must have all of space as its support, {type(distribution).__name__} has "
            f"{support}: Stein's identity fails at an edge and for numbers that jump; model the logarithm or "
            "logit of the data"
        )


class PairModel:
    """A score callable and, where there is one, a sampler `sample(n, seed)`."""

    def __init__(
        self,
        score: Callable[[Tensor], Tensor],
        sample: Callable[[int, int], Tensor] | None = None,
        *,
        dim: int | None = None,
    ) -> None:
        self.score = score
        self.dim = dim
        if sample is not None:
            sampler = sample
            self.sample = lambda n, *, seed=0: sampler(n, seed)


def at_home(function: Callable[[Tensor], Tensor], like: Tensor) -> Callable[[Tensor], PerPoint]:
    """A function that is asked in one dtype, on one device, and answers in those of its argument."""
    return lambda x: function(x.to(like)).to(x)


def lent_draws(draw: Callable[[], Tensor], *, seed: int) -> Points:
    """Draws of a sampler that knows only torch's global generators: these get the seed, then are restored."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.random.manual_seed(seed)
        return draw()
