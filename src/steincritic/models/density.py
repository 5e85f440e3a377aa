"""Models made from a log-density, a torch distribution, or a pair of callables."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, VonMises, constraints

from steincritic.errors import InputError, ModelError, check_count
from steincritic.models.base import Described
from steincritic.shapes import PerPoint, Points

_EDGES = {"lower_bound": 1.0, "upper_bound": -1.0}  # of constraints, and the way into the support
_PROBES = 64  # draws that are moved to the edges
_NEAR = 1e-6, 1e-12  # of a standard deviation: how near
_FALL = 0.1  # of the log-density between the two; a power of 0.01 of the distance falls by 0.14


class LogDensity(Described):
    """A log-density, normalized or not, whose score is taken by automatic differentiation."""

    def __init__(self, log_prob: Callable[[Tensor], Tensor], *, dim: int | None = None) -> None:
        self._log_prob = log_prob
        self.dim = dim

    def log_prob(self, x: Points) -> PerPoint:
        value = self._log_prob(x)
        if value.shape == (len(x), 1):  # the usual shape of an energy network's output
            value = value[:, 0]
        if value.shape != (len(x),):
            raise ModelError(
                f"the log-density must return one number per row, shape ({len(x)},), for x of shape "
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
        super().__init__(self._in_own_precision(), dim=shape[0] if shape else 1)

    def _about(self) -> str:
        return type(self._distribution).__name__

    def _in_own_precision(self) -> Callable[[Tensor], Tensor]:
        """The log-density; a few distributions take no points of another precision than their parameters'."""
        try:
            draw = self.sample(1)
        except NotImplementedError:  # nothing to try it on
            return self._joint_log_prob
        try:
            self._joint_log_prob(draw.double())
        except RuntimeError:
            return in_own_precision(self._joint_log_prob, draw[:0])
        return self._joint_log_prob

    def _joint_log_prob(self, x: Points) -> PerPoint:
        value = self._distribution.log_prob(x[:, 0] if self._is_scalar else x)
        return (value.sum(-1) if value.ndim == 2 else value).to(x)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        return seeded_draws(lambda: self._distribution.sample((n,)), seed=seed).view(n, -1)


def check_support(distribution: Distribution) -> None:
    """Stein's identity needs a density that vanishes where its support ends.

    A distribution that does not state its support is trusted.
    """
    try:
        support: Any = distribution.support
    except NotImplementedError:
        return
    inner = support
    while hasattr(inner, "base_constraint"):
        inner = inner.base_constraint
    on_circle = isinstance(distribution, VonMises)
    if inner is constraints.real and not on_circle:
        return
    edges = [(getattr(inner, name), way) for name, way in _EDGES.items() if hasattr(inner, name)]
    if on_circle or support.is_discrete or not edges or not _vanishes(DistributionModel(distribution), edges):
        raise InputError(
            f"a model needs a density that vanishes where its support ends, {type(distribution).__name__} "
            f"lives on {'a circle' if on_circle else support}: Stein's identity fails there; model the "
            "logarithm or logit of the data"
        )


def _vanishes(model: DistributionModel, edges: list[tuple[Any, float]]) -> bool:
    """Does the density of draws fall as one of their coordinates is moved nearer to an edge?"""
    x = model.sample(_PROBES).double()
    eps = torch.finfo(x.dtype).eps
    for edge, way in edges:
        bound = torch.as_tensor(edge).to(x).expand(x.shape[1])
        for j in range(x.shape[1]):
            near, nearer = x.clone(), x.clone()
            for moved, share in zip((near, nearer), _NEAR, strict=True):
                moved[:, j] = bound[j] + way * torch.maximum(share * x[:, j].std(), 4 * eps * bound[j].abs())
            if not (model.log_prob(near) - model.log_prob(nearer)).median() > _FALL:
                return False
    return True


class PairModel(Described):
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


def in_own_precision(function: Callable[[Tensor], Tensor], like: Tensor) -> Callable[[Tensor], PerPoint]:
    """A function that is asked in one dtype, on one device, and answers in those of its argument."""
    return lambda x: function(x.to(like)).to(x)


def seeded_draws(draw: Callable[[], Tensor], *, seed: int) -> Points:
    """Draws of a sampler that knows only torch's global generators: these get the seed, then are restored."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.random.manual_seed(seed)
        return draw()
