"""Student's t distribution of vectors, with the score in closed form."""

import math

import numpy as np
import torch
from torch import Tensor

from steincritic.errors import InputError, check_count, check_positive
from steincritic.models.base import Described
from steincritic.models.mixture import as_parameter
from steincritic.rng import derive
from steincritic.shapes import Numbers, PerPoint, Points


class MultivariateT(Described):
    """Location (d,), shape matrix (d, d) and degrees of freedom."""

    def __init__(self, location: Numbers, shape: Numbers, freedom: float) -> None:
        check_positive(freedom, name="degrees of freedom")
        self.location, self.freedom = as_parameter(location, "location"), freedom
        self.dim = len(self.location)
        factor, failed = torch.linalg.cholesky_ex(as_parameter(shape, "shape").to(self.location))
        if bool(failed):
            raise InputError("the shape matrix is not positive definite, so there is no density")
        self._factor = factor  # (d, d) lower
        half = 0.5 * (freedom + self.dim)
        self._log_scale = float(
            math.lgamma(half)
            - math.lgamma(0.5 * freedom)
            - 0.5 * self.dim * math.log(math.pi * freedom)
            - factor.diagonal().log().sum()
        )

    def log_prob(self, x: Points) -> PerPoint:
        squared = self._whitened(x).square().sum(-1)
        log_tail: Tensor = 0.5 * (self.freedom + self.dim) * torch.log1p(squared / self.freedom)
        return self._log_scale - log_tail

    def score(self, x: Points) -> Points:
        r"""$-(\nu + d)\, \Sigma^{-1}(x - \mu) / (\nu + (x - \mu)^\top \Sigma^{-1} (x - \mu))$."""
        y = self._whitened(x)
        pull: Tensor = torch.linalg.solve_triangular(self._factor.to(x), y, upper=False, left=False)
        return -(self.freedom + self.dim) * pull / (self.freedom + y.square().sum(-1, keepdim=True))

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        source = np.random.default_rng(derive(seed, "student"))
        z = source.standard_normal((n, self.dim))
        t = z * np.sqrt(self.freedom / source.chisquare(self.freedom, (n, 1)))
        away: Tensor = torch.as_tensor(t).to(self.location) @ self._factor.T
        return self.location + away

    def _whitened(self, x: Points) -> Points:
        away = x - self.location.to(x)
        whitened: Tensor = torch.linalg.solve_triangular(self._factor.to(x).T, away, upper=True, left=False)
        return whitened
