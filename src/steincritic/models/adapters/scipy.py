"""scipy.stats: frozen multivariate normal, t and Dirichlet, gaussian_kde, and distributions of one number."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Dirichlet

from steincritic.errors import InputError, check_count, check_positive
from steincritic.models.adapters.kernel_density import KernelDensity, lower_factor, unwhitened, whitened
from steincritic.models.adapters.numeric import NumericDensity
from steincritic.models.base import Described, Model, as_model
from steincritic.models.bounded import BoundedModel
from steincritic.models.mixture import GaussianMixture, as_parameter
from steincritic.rng import derive
from steincritic.shapes import Numbers, PerPoint, Points

_WAYS_OUT = (
    "of scipy.stats, frozen multivariate_normal, multivariate_t and dirichlet, gaussian_kde and frozen "
    "continuous distributions of one number are models here"
)


class MultivariateT(Described):
    """Student's t of vectors: location (d,), shape matrix (d, d) and degrees of freedom."""

    def __init__(self, location: Numbers, shape: Numbers, freedom: float) -> None:
        check_positive(freedom, name="degrees of freedom")
        self.location, self.freedom = as_parameter(location, "location"), freedom
        self.dim = len(self.location)
        self._factor = factor = lower_factor(shape, self.location, "shape")
        half = 0.5 * (freedom + self.dim)
        self._log_scale = float(
            math.lgamma(half)
            - math.lgamma(0.5 * freedom)
            - 0.5 * self.dim * math.log(math.pi * freedom)
            - factor.diagonal().log().sum()
        )

    def log_prob(self, x: Points) -> PerPoint:
        squared = whitened(x - self.location.to(x), self._factor).square().sum(-1)
        log_tail: Tensor = 0.5 * (self.freedom + self.dim) * torch.log1p(squared / self.freedom)
        return self._log_scale - log_tail

    def score(self, x: Points) -> Points:
        r"""$-(\nu + d)\, \Sigma^{-1}(x - \mu) / (\nu + (x - \mu)^\top \Sigma^{-1} (x - \mu))$."""
        y = whitened(x - self.location.to(x), self._factor)
        pull = unwhitened(y, self._factor)
        return -(self.freedom + self.dim) * pull / (self.freedom + y.square().sum(-1, keepdim=True))

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        source = np.random.default_rng(derive(seed, "student"))
        z = source.standard_normal((n, self.dim))
        t = z * np.sqrt(self.freedom / source.chisquare(self.freedom, (n, 1)))
        away: Tensor = torch.as_tensor(t).to(self.location) @ self._factor.T
        return self.location + away


def adapt(obj: Any) -> Model | None:
    import scipy.stats as stats

    match type(obj).__name__:
        case "multivariate_normal_frozen":
            return GaussianMixture(np.atleast_2d(obj.mean), np.array(obj.cov)[None])
        case "multivariate_t_frozen" if math.isinf(obj.df):
            return GaussianMixture(np.atleast_2d(obj.loc), np.asarray(obj.shape)[None])
        case "multivariate_t_frozen":
            return MultivariateT(np.atleast_1d(obj.loc), np.atleast_2d(obj.shape), float(obj.df))
        case "dirichlet_frozen":
            return as_model(Dirichlet(torch.as_tensor(np.array(obj.alpha, dtype=np.float64))))
    if isinstance(obj, stats.gaussian_kde):
        return KernelDensity(obj.dataset.T, obj.covariance, obj.weights)
    if isinstance(obj, stats.distributions.rv_frozen):
        return _of_numbers(obj)
    if type(obj).__name__.endswith("_gen"):
        raise InputError(f"{_WAYS_OUT}; {type(obj).__name__} has no parameters yet: call it with them")
    if type(obj).__module__.startswith("scipy.stats"):
        raise InputError(
            f"{_WAYS_OUT}; got {type(obj).__name__}: pass a (score, sample) pair, or a NumericDensity of its "
            "logpdf in coordinates without bounds"
        )
    return None


def _of_numbers(frozen: Any) -> Model:
    name = getattr(frozen.dist, "name", type(frozen).__name__)
    if not hasattr(frozen, "logpdf") or not hasattr(frozen.dist, "pdf"):
        raise InputError(f"{_WAYS_OUT}; {name} is discrete and has no score")
    low, high = frozen.support()
    if np.size(low) != 1:
        raise InputError(f"{_WAYS_OUT}; this {name} has several parameters in an array: freeze one at a time")
    if name == "vonmises":  # says that it lives on the whole line
        raise InputError(f"{_WAYS_OUT}; {name} lives on a circle, which has no coordinate without an edge")
    model = NumericDensity(
        lambda x: frozen.logpdf(x[:, 0]),
        1,
        scale=float(frozen.ppf(0.75) - frozen.ppf(0.25)),
        draw=lambda n, rng: frozen.rvs(size=(n, 1), random_state=rng),
        support=(float(low), float(high)),
    )
    bounded = math.isfinite(low) or math.isfinite(high)
    return BoundedModel(model, [(float(low), float(high))]) if bounded else model
