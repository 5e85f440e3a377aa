"""Models made from a log-density, a network, a torch distribution, a flow, or a pair of callables."""

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from steincritic.errors import InputError, ModelError, check_count
from steincritic.models.base import Described
from steincritic.shapes import PerPoint, Points


class LogDensity(Described):
    """A log-density, normalized or not, whose score is taken by automatic differentiation."""

    def __init__(self, log_prob: Callable[[Tensor], Tensor], *, dim: int | None = None) -> None:
        self._log_prob = log_prob
        self.dim = dim

    def log_prob(self, x: Points) -> PerPoint:
        value = self._log_prob(x)
        if not isinstance(value, Tensor):
            raise ModelError(
                f"the log-density must return a tensor, got {type(value).__name__}; a function that fits a "
                "model to the data is tested as sc.Fitted(fit, x) (--fitted)"
            )
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
                return self._flat(x.detach())
            (score,) = torch.autograd.grad(value.sum(), x)
        return score

    def _flat(self, x: Points) -> Points:
        """The score where the log-density does not depend on x, as torch sees it."""
        raise ModelError(
            "the log-density does not depend on x through torch operations, so it has no gradient; pass a "
            "(score, sample) pair instead"
        )


class EnergyModel(LogDensity):
    """An energy with q ∝ exp(-E): an `nn.Module` E(x) of shape (n,) or (n, 1), asked in the dtype and on the
    device of its weights. Draws: `LangevinModel(net, dim=...)`."""

    def __init__(self, energy: nn.Module, *, dim: int | None = None) -> None:
        self.like = weights_like(energy)
        super().__init__(in_own_precision(lambda x: -energy(x), self.like), dim=dim)


class ModuleDensity(LogDensity):
    """An `nn.Module` with `log_prob(x)`, asked in the dtype and on the device of its weights."""

    def __init__(self, module: nn.Module) -> None:
        self.like = weights_like(module)
        super().__init__(in_own_precision(module.log_prob, self.like))  # type: ignore[arg-type]


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
        with suppress(NotImplementedError):  # there is nothing to try it on
            draw = self.sample(1)
            try:
                self._joint_log_prob(draw.double())
            except RuntimeError:  # a few take no points of another precision than their parameters'
                self._log_prob = in_own_precision(self._joint_log_prob, draw[:0])

    def _about(self) -> str:
        return type(self._distribution).__name__

    def _joint_log_prob(self, x: Points) -> PerPoint:
        value = self._distribution.log_prob(x[:, 0] if self._is_scalar else x)
        return (value.sum(-1) if value.ndim == 2 else value).to(x)

    def _flat(self, x: Points) -> Points:
        return torch.zeros_like(x)  # of a uniform density

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        return seeded_draws(lambda: self._distribution.sample((n,)), seed=seed).view(n, -1)


class FlowModel(LogDensity):
    """A flow of any torch library, whose draws come from torch's global generators.

    Dimension, dtype and device are those of its draws.
    """

    def __init__(self, log_prob: Callable[[Tensor], Tensor], draw: Callable[[int], Tensor]) -> None:
        self._draw = draw
        probe = seeded_draws(lambda: draw(2), seed=0)
        if probe.ndim != 2:
            raise InputError(
                f"a flow must describe vectors, draws of shape (n, d); got {tuple(probe.shape)}: flatten "
                "its points, or fix its context to one row"
            )
        self.like = probe[:0, 0]
        super().__init__(in_own_precision(log_prob, self.like), dim=probe.shape[1])

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        return seeded_draws(lambda: self._draw(n), seed=seed)


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


def weights_like(module: nn.Module) -> Tensor:
    """An empty tensor with the dtype and device of a module's weights; float64 where it has none."""
    for weight in (*module.parameters(), *module.buffers()):
        if weight.is_floating_point():
            return torch.empty(0, dtype=weight.dtype, device=weight.device)
    return torch.empty(0, dtype=torch.float64)


def seeded_draws(draw: Callable[[], Tensor], *, seed: int) -> Points:
    """Draws of a sampler that knows only torch's global generators: these get the seed, then are restored."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.random.manual_seed(seed)
        return draw()
