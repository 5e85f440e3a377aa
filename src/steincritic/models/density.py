"""Models made from a log-density, a torch distribution, or a pair of callables."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution

from steincritic.errors import InputError, ModelError
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
        self._distribution = distribution
        self._is_scalar = not distribution.batch_shape and not distribution.event_shape
        shape = (*distribution.batch_shape, *distribution.event_shape)
        super().__init__(self._joint_log_prob, dim=shape[0] if shape else 1)

    def _joint_log_prob(self, x: Points) -> PerPoint:
        value = self._distribution.log_prob(x[:, 0] if self._is_scalar else x)
        return value.sum(-1) if value.ndim == 2 else value

    def sample(self, n: int, *, seed: int = 0) -> Points:
        # torch.distributions draws from the global generators alone: lend them the seed, then restore
        with torch.random.fork_rng():
            torch.random.manual_seed(seed)
            draws = self._distribution.sample((n,))
        return draws.view(n, -1)


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
