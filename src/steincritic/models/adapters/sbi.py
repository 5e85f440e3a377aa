"""sbi: posteriors at one observation, by their density or by their vector field."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from steincritic.errors import InputError, check_count, check_positive
from steincritic.models.adapters.diffusion import DiffusionModel
from steincritic.models.adapters.outside import require
from steincritic.models.bounded import BoundedDensity
from steincritic.models.density import in_own_precision, seeded_draws
from steincritic.shapes import Points

_TIMES = 2001  # of a vector field, among which that of a noise level is looked for


class SbiPosterior(BoundedDensity):
    """A posterior of sbi that has a density, at one observation.

    Where the prior is bounded, coordinates are logits or logarithms of the parameters. Direct posteriors
    (NPE) have draws too; for the others (chains on NLE or NRE, say) the density is known up to a constant.

    Args:
        posterior: as `build_posterior` returns it.
        x: the observation; its default where it was set.
    """

    def __init__(self, posterior: Any, x: Any = None) -> None:
        kinds = require("sbi.inference.posteriors", extra="sbi")
        self._posterior = posterior
        observed, prior = _observation_and_prior(posterior, x)
        probe = seeded_draws(lambda: prior.sample((2,)), seed=0)
        self.like = probe[:0, 0]
        potential = partial(posterior.potential, x=observed, track_gradients=True)
        super().__init__(in_own_precision(potential, self.like), prior, dim=probe.shape[1])
        if isinstance(posterior, kinds.DirectPosterior):
            self.sample = lambda n, *, seed=0: self.unconstrain(_draws(posterior, observed, n, seed))

    def _about(self) -> str:
        return type(self._posterior).__name__


class SbiVectorField(DiffusionModel):
    """A posterior of sbi that integrates a vector field (NPSE, FMPE), at one observation and one noise level.

    The net's error is divided by the noise in its score, which is useless near time 0. So the score is that
    of parameters with some noise: draws are `noised` before they are tested, and `sample` does so.

    Args:
        posterior, x: as for `SbiPosterior`.
        noise: its standard deviation, in those of the prior's narrowest parameter.
    """

    def __init__(self, posterior: Any, x: Any = None, *, noise: float = 0.1) -> None:
        check_positive(noise, name="noise")
        self._posterior = posterior
        self._x, prior = _observation_and_prior(posterior, x)
        net = posterior.vector_field_estimator
        if getattr(net, "compose_enabled", False):
            raise InputError(
                "the vector field is that of standardized parameters: train it without composing"
            )
        probe = seeded_draws(lambda: prior.sample((1000,)), seed=0)
        times = torch.linspace(net.t_min, net.t_max, _TIMES).to(probe.device)
        alpha, sigma = (f(times).reshape(_TIMES, -1)[:, 0] for f in (net.mean_t_fn, net.std_fn))
        k = min(int((sigma < noise * probe.std(0).min() * alpha).sum()), _TIMES - 1)
        super().__init__(
            self._field,
            sigma=sigma[k],
            alpha=alpha[k],
            time=float(times[k]),
            prediction="score",
            shape=probe.shape[1:],
        )

    def _field(self, theta: Tensor, times: Tensor) -> Tensor:
        potential = self._posterior.potential_fn
        potential.set_x(self._x)
        gradient: Tensor = potential.gradient(theta.float(), time=times[:1].float())
        return gradient.reshape(theta.shape)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        return self.noised(_draws(self._posterior, self._x, n, seed), seed=seed)


def _observation_and_prior(posterior: Any, x: Any) -> tuple[Tensor, Any]:
    observed = posterior.default_x if x is None else torch.as_tensor(x)
    if observed is None:
        raise InputError(
            "this sbi posterior has no observation: call posterior.set_default_x(x), or pass x to "
            "SbiPosterior(posterior, x)"
        )
    prior = getattr(posterior, "prior", None) or posterior.potential_fn.prior
    return observed, prior


def _draws(posterior: Any, x: Tensor, n: int, seed: int) -> Points:
    check_count(n, name="n")
    return seeded_draws(lambda: posterior.sample((n,), x=x, show_progress_bars=False), seed=seed)


def adapt(obj: Any) -> SbiPosterior | SbiVectorField | None:
    kinds = require("sbi.inference.posteriors", extra="sbi")
    if isinstance(obj, kinds.VectorFieldPosterior):
        return SbiVectorField(obj)
    base = require("sbi.inference.posteriors.base_posterior", extra="sbi").NeuralPosterior
    return SbiPosterior(obj) if isinstance(obj, base) else None
