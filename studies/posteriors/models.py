"""Two posteriors written out in torch, with exact draws: eight schools and a collinear regression.

In both one scale makes the rest normal. So the scale's own posterior is a curve, drawn from by its inverse
distribution function on a fine grid, and the other coordinates are drawn from their normal law given it:
independent draws without a chain, against which tests of chains can be judged.
"""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from steincritic.models.density import LogDensity
from steincritic.rng import generator
from steincritic.shapes import PerPoint, Points

EFFECTS = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)  # of coaching in eight schools [rubin1981]
ERRORS = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)
PRIOR = 5.0  # scale of every prior
OBSERVED = 40  # rows of the regression
_GRID = (-25.0, 12.0, 40_001)  # of the logarithm of the scale


class EightSchools(LogDensity):
    """mu ~ N(0, 5), tau ~ half-Cauchy(5), theta_base ~ N(0, 1), effect ~ N(mu + tau theta_base, error).

    Coordinates: mu, log tau, theta_base (the non-centered form).
    """

    names = ("mu", "log tau", *(f"theta_base[{j}]" for j in range(8)))

    def __init__(self) -> None:
        self.effects = torch.tensor(EFFECTS, dtype=torch.float64)
        self.errors = torch.tensor(ERRORS, dtype=torch.float64)
        super().__init__(self._joint, dim=len(self.names))

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = generator(seed, "eight schools")
        log_tau = _inverse_draws(*self._scale_curve, n, source)[:, None]
        tau = log_tau.exp()
        spread = self.errors**2 + tau**2  # (n, 8) of an effect around mu
        precision = PRIOR**-2 + (1 / spread).sum(1, keepdim=True)
        mu = (self.effects / spread).sum(1, keepdim=True) / precision
        mu = mu + _normals((n, 1), source) / precision.sqrt()
        precision = 1 + (tau / self.errors) ** 2
        base = tau * (self.effects - mu) / self.errors**2 / precision
        return torch.cat([mu, log_tau, base + _normals((n, 8), source) / precision.sqrt()], 1)

    def _joint(self, x: Points) -> PerPoint:
        mu, log_tau, base = x[:, :1], x[:, 1], x[:, 2:]
        effects, errors = self.effects.to(x), self.errors.to(x)
        residual = (effects - mu - log_tau.exp()[:, None] * base) / errors
        prior = -0.5 * (mu[:, 0] / PRIOR) ** 2 - 0.5 * base.square().sum(1) + _half_cauchy(log_tau)
        return prior - 0.5 * residual.square().sum(1)

    @cached_property
    def _scale_curve(self) -> tuple[Tensor, Tensor]:
        """log tau and its log-density given the effects, mu and theta_base integrated out."""
        log_tau = torch.linspace(*_GRID, dtype=torch.float64)
        spread = self.errors**2 + (2 * log_tau).exp()[:, None]
        precision = PRIOR**-2 + (1 / spread).sum(1)
        pull = (self.effects / spread).sum(1)
        fit = -0.5 * (spread.log() + self.effects**2 / spread).sum(1)
        return log_tau, _half_cauchy(log_tau) + fit + 0.5 * (pull**2 / precision - precision.log())


class CollinearRegression(LogDensity):
    """y ~ N(X beta, sigma), beta ~ N(0, 5), sigma ~ half-Cauchy(5); two columns of X nearly agree.

    Coordinates: beta (the intercept first), log sigma.
    """

    names = (*(f"beta[{j}]" for j in range(5)), "log sigma")

    def __init__(self) -> None:
        self.design, self.response = regression_data()
        values, self._axes = torch.linalg.eigh(self.design.T @ self.design)
        self._values = values.clamp(min=0)
        super().__init__(self._joint, dim=len(self.names))

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = generator(seed, "regression")
        log_sigma = _inverse_draws(*self._scale_curve, n, source)[:, None]
        precision = self._values * (-2 * log_sigma).exp() + PRIOR**-2  # (n, 5) along the axes
        mean = (self.design.T @ self.response) @ self._axes * (-2 * log_sigma).exp() / precision
        along = mean + _normals((n, 5), source) / precision.sqrt()
        return torch.cat([along @ self._axes.T, log_sigma], 1)

    def _joint(self, x: Points) -> PerPoint:
        beta, log_sigma = x[:, :-1], x[:, -1]
        residual = self.response.to(x) - beta @ self.design.T.to(x)
        fit = -0.5 * residual.square().sum(1) * (-2 * log_sigma).exp() - OBSERVED * log_sigma
        return fit - 0.5 * (beta / PRIOR).square().sum(1) + _half_cauchy(log_sigma)

    @cached_property
    def _scale_curve(self) -> tuple[Tensor, Tensor]:
        """log sigma and its log-density given the response, beta integrated out."""
        log_sigma = torch.linspace(*_GRID, dtype=torch.float64)
        noise = (-2 * log_sigma).exp()[:, None]
        precision = self._values * noise + PRIOR**-2
        pull = (self.design.T @ self.response) @ self._axes * noise
        fit = -0.5 * noise[:, 0] * self.response.square().sum() - OBSERVED * log_sigma
        gain = 0.5 * (pull**2 / precision - precision.log()).sum(1)
        return log_sigma, _half_cauchy(log_sigma) + fit + gain


Posterior = EightSchools | CollinearRegression
POSTERIORS: dict[str, type[Posterior]] = {
    "eight schools": EightSchools,
    "collinear regression": CollinearRegression,
}


def regression_data() -> tuple[Tensor, Tensor]:
    """X (40, 5) and y (40,): an intercept, two columns with correlation 0.99, two of their own."""
    source = generator(0, "collinear regression")
    columns = _normals((OBSERVED, 4), source)
    columns[:, 1] = columns[:, 0] + 0.15 * columns[:, 1]
    design = torch.cat([torch.ones(OBSERVED, 1, dtype=torch.float64), columns], 1)
    weights = torch.tensor([1.0, 1.0, -0.5, 0.5, 0.0], dtype=torch.float64)
    return design, design @ weights + _normals((OBSERVED,), source)


def _half_cauchy(log_scale: Tensor) -> Tensor:
    """Log-density of the logarithm of a scale with the prior half-Cauchy(5); the Jacobian is in it."""
    return log_scale - torch.log1p((2 * log_scale).exp() / PRIOR**2)


def _inverse_draws(grid: Tensor, log_density: Tensor, n: int, source: torch.Generator) -> Tensor:
    """Draws of a curve on an even grid, by its distribution function, straight between the grid points."""
    density = (log_density - log_density.max()).exp()
    mass = torch.nn.functional.pad(torch.cumulative_trapezoid(density), (1, 0))
    places = torch.rand(n, generator=source, dtype=torch.float64) * mass[-1]
    return torch.from_numpy(np.interp(places, mass, grid))


def _normals(shape: tuple[int, ...], source: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=source, dtype=torch.float64)
