"""Posteriors of posteriordb whose densities are written out here, by the name of their model.

Written from the models' mathematics; [magnusson2025] names the models and their sources. A model takes its
data `d`, each part a tensor.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from steincritic import InputError
from steincritic.errors import did_you_mean
from steincritic.models import LogDensity
from steincritic.models.coordinates import Box
from steincritic.shapes import PerPoint, Points
from studies.posteriordb.database import Posterior

REAL, POSITIVE, SHARE = (-math.inf, math.inf), (0.0, math.inf), (0.0, 1.0)
Named = Mapping[str, Tensor]


class DatabasePosterior(LogDensity):
    """The log-density in unconstrained coordinates: logarithms and logits, their Jacobians included.

    Args:
        kinds: of the parameters by name: each is real, positive or a share, whatever the others are. One
            that is named as a difference, "mu[2]-mu[1]", is that of published parameters.
        joint: log-density at parameters (n, d), up to a constant.
        free: those parameters that posteriordb does not publish, from those that it does.
    """

    def __init__(
        self,
        kinds: Mapping[str, tuple[float, float]],
        joint: Callable[[Tensor], PerPoint],
        free: Callable[[Named], Named] = lambda published: {},
    ) -> None:
        self.kinds, self.joint, self.free = kinds, joint, free
        self.box = Box(*zip(*kinds.values(), strict=True))
        self.names = self.box.names(tuple(kinds))
        super().__init__(self._in_coordinates, dim=len(kinds))

    def unconstrain(self, draws: Mapping[str, Any]) -> Points:
        """(n, d) from draws by published name, each of n numbers."""
        published: Named = {name: torch.as_tensor(part).double().flatten() for name, part in draws.items()}
        parameters = {**published, **self.free(published)}
        for name in self.kinds.keys() - parameters.keys():
            high, low = name.split("-")
            parameters[name] = published[high] - published[low]
        return self.box.unconstrain(torch.stack([parameters[name] for name in self.kinds], -1))

    def _in_coordinates(self, x: Points) -> PerPoint:
        parameters, log_jacobian = self.box.constrain(x)
        return self.joint(parameters) + log_jacobian


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}[{j}]" for j in range(1, count + 1)]


def half_cauchy(scale: Tensor, width: float) -> Tensor:
    return -torch.log1p((scale / width) ** 2)


def normal(x: Tensor, mean: Tensor | float, sd: Tensor | float) -> Tensor:
    return -0.5 * ((x - mean) / sd) ** 2


Prior = Callable[[Tensor, Tensor], PerPoint | float]  # of weights (n, p) and the noise's scale (n,)


def linear(
    response: Tensor,
    columns: list[Tensor],
    names: list[str] | None = None,
    prior: Prior = lambda weights, scale: 0.0,
) -> DatabasePosterior:
    """response ~ N(columns weights, scale): by least squares, so that rows cost the same for any data."""
    design = torch.stack(columns, 1)
    count, (q, r) = len(response), torch.linalg.qr(design)
    best: Tensor = torch.linalg.solve_triangular(r, (q.T @ response)[:, None], upper=True)[:, 0]
    left = (response - design @ best).square().sum()

    def joint(x: Tensor) -> PerPoint:
        weights, scale = x[:, :-1], x[:, -1]
        squares: Tensor = ((weights - best) @ r.T).square().sum(-1) + left
        return -0.5 * squares / scale**2 - count * scale.log() + prior(weights, scale)

    return DatabasePosterior(
        dict.fromkeys(names or numbered("beta", len(columns)), REAL) | {"sigma": POSITIVE}, joint
    )


def _crossed(a: Tensor, b: Tensor) -> list[Tensor]:
    return [a, b, a * b]


def _scaled(x: Tensor, spreads: float = 1.0) -> Tensor:
    return (x - x.mean()) / (spreads * x.std())


def _levels(x: Tensor) -> list[Tensor]:
    """The second to the fourth level of a factor, as indicators."""
    return [(x == level).double() for level in (2, 3, 4)]


def _canopy(d: Any) -> list[Tensor]:
    """Logarithms of a mesquite's volume, area and shape."""
    return [(d.diam1 * d.diam2 * d.canopy_height).log(), (d.diam1 * d.diam2).log(), (d.diam1 / d.diam2).log()]


def _sizes(d: Any) -> list[Tensor]:
    return [d.diam1, d.diam2, d.canopy_height, d.total_height, d.density]


_CAUCHY = ("kidscore_momhs", "kidscore_momiq", "kidscore_momhsiq", "kidscore_interaction")  # prior of sigma
RESPONSE_AND_COLUMNS: dict[str, Callable[[Any], tuple[Tensor, list[Tensor]]]] = {  # beside a constant
    "kidscore_momhs": lambda d: (d.kid_score, [d.mom_hs]),
    "kidscore_momiq": lambda d: (d.kid_score, [d.mom_iq]),
    "kidscore_momhsiq": lambda d: (d.kid_score, [d.mom_hs, d.mom_iq]),
    "kidscore_interaction": lambda d: (d.kid_score, _crossed(d.mom_hs, d.mom_iq)),
    "kidscore_interaction_c": lambda d: (
        d.kid_score,
        _crossed(d.mom_hs - d.mom_hs.mean(), d.mom_iq - d.mom_iq.mean()),
    ),
    "kidscore_interaction_c2": lambda d: (d.kid_score, _crossed(d.mom_hs - 0.5, d.mom_iq - 100)),
    "kidscore_interaction_z": lambda d: (d.kid_score, _crossed(_scaled(d.mom_hs, 2), _scaled(d.mom_iq, 2))),
    "kidscore_mom_work": lambda d: (d.kid_score, _levels(d.mom_work)),
    "earn_height": lambda d: (d.earn, [d.height]),
    "log10earn_height": lambda d: (d.earn.log10(), [d.height]),
    "logearn_height": lambda d: (d.earn.log(), [d.height]),
    "logearn_height_male": lambda d: (d.earn.log(), [d.height, d.male]),
    "logearn_logheight_male": lambda d: (d.earn.log(), [d.height.log(), d.male]),
    "logearn_interaction": lambda d: (d.earn.log(), _crossed(d.height, d.male)),
    "logearn_interaction_z": lambda d: (d.earn.log(), _crossed(_scaled(d.height), d.male)),
    "mesquite": lambda d: (d.weight, [*_sizes(d), d.group]),
    "logmesquite": lambda d: (d.weight.log(), [*map(torch.log, _sizes(d)), d.group]),
    "logmesquite_logvolume": lambda d: (d.weight.log(), _canopy(d)[:1]),
    "logmesquite_logva": lambda d: (d.weight.log(), [*_canopy(d)[:2], d.group]),
    "logmesquite_logvash": lambda d: (d.weight.log(), [*_canopy(d), d.total_height.log(), d.group]),
    "logmesquite_logvas": lambda d: (
        d.weight.log(),
        [*_canopy(d), d.total_height.log(), d.density.log(), d.group],
    ),
    "nes": lambda d: (
        d.partyid7,
        [d.real_ideo, d.race_adj, *_levels(d.age_discrete), d.educ1, d.gender, d.income],
    ),
}


def regression(model: str, d: Any) -> DatabasePosterior:
    response, columns = RESPONSE_AND_COLUMNS[model](d)
    columns = [torch.ones_like(response), *columns]
    if model in _CAUCHY:
        return linear(response, columns, prior=lambda weights, scale: half_cauchy(scale, 2.5))
    return linear(response, columns)


def sparse(d: Any) -> DatabasePosterior:
    """blr: weights and scale normal with standard deviation 10."""
    return linear(d.y, [*d.X.T], prior=lambda w, scale: normal(w, 0, 10).sum(-1) + normal(scale, 0, 10))


def trend(d: Any) -> DatabasePosterior:
    """kilpisjarvi: a line through temperatures by year, with priors that come with the data."""

    def prior(weights: Tensor, scale: Tensor) -> Tensor:
        level = normal(weights[:, 0], d.pmualpha, d.psalpha)
        return level + normal(weights[:, 1], d.pmubeta, d.psbeta)

    return linear(d.y, [torch.ones_like(d.x), d.x], ["alpha", "beta"], prior)


def autoregression(d: Any) -> DatabasePosterior:
    """arK: each value from the K before it."""
    lags = int(d.K)
    past = [d.y[lags - k : len(d.y) - k] for k in range(1, lags + 1)]

    def prior(weights: Tensor, scale: Tensor) -> Tensor:
        return normal(weights, 0, 10).sum(-1) + half_cauchy(scale, 2.5)

    return linear(d.y[lags:], [torch.ones_like(past[0]), *past], ["alpha", *numbered("beta", lags)], prior)


def diamonds(d: Any) -> DatabasePosterior:
    """Prices of diamonds by 24 centered columns, the constant after them."""
    centered = d.X[:, 1:] - d.X[:, 1:].mean(0)

    def prior(weights: Tensor, scale: Tensor) -> Tensor:
        # Student's t with 3 degrees of freedom, for the level of prices and for the noise
        level = -2 * (((weights[:, -1] - 8) / 10) ** 2 / 3).log1p() - 2 * ((scale / 10) ** 2 / 3).log1p()
        return normal(weights[:, :-1], 0, 1).sum(-1) + level

    names = [*numbered("b", centered.shape[1]), "Intercept"]
    return linear(d.Y, [*centered.T, torch.ones_like(d.Y)], names, prior)


def arma(d: Any) -> DatabasePosterior:
    """ARMA(1, 1), the first error taken as if none was before it."""

    def joint(x: Tensor) -> PerPoint:
        mu, phi, theta, sigma = x.unbind(-1)
        errors = [d.y[0] - mu - phi * mu]
        for before, now in pairwise(d.y):
            errors.append(now - mu - phi * before - theta * errors[-1])
        fit = normal(torch.stack(errors), 0, sigma).sum(0) - len(d.y) * sigma.log()
        return fit + normal(mu, 0, 10) + normal(phi, 0, 2) + normal(theta, 0, 2) + half_cauchy(sigma, 2.5)

    return DatabasePosterior({"mu": REAL, "phi": REAL, "theta": REAL, "sigma": POSITIVE}, joint)


def garch(d: Any) -> DatabasePosterior:
    """GARCH(1, 1); beta1 is a share of what alpha1 leaves."""

    def joint(x: Tensor) -> PerPoint:
        mu, alpha0, alpha1, share = x.unbind(-1)
        variances = [torch.full_like(mu, float(d.sigma1) ** 2)]
        for before in d.y[:-1]:
            variances.append(alpha0 + alpha1 * (before - mu) ** 2 + share * (1 - alpha1) * variances[-1])
        variance = torch.stack(variances)
        fit: Tensor = -0.5 * ((d.y[:, None] - mu) ** 2 / variance + variance.log()).sum(0)
        return fit + (1 - alpha1).log()

    def free(draws: Named) -> Named:
        return {left: draws["beta1"] / (1 - draws["alpha1"])}

    left = "beta1/(1-alpha1)"
    return DatabasePosterior({"mu": REAL, "alpha0": POSITIVE, "alpha1": SHARE, left: SHARE}, joint, free)


def eight_schools(d: Any, *, centered: bool) -> DatabasePosterior:
    """Effects theta of schools, or theta_trans = (theta - mu) / tau."""

    def joint(x: Tensor) -> PerPoint:
        effect, mu, tau = x[:, :-2], x[:, -2:-1], x[:, -1:]
        theta = effect if centered else mu + tau * effect
        prior = normal(effect, mu, tau) - tau.log() if centered else normal(effect, 0, 1)
        shared = normal(mu, 0, 5) + half_cauchy(tau, 5)
        return (prior + normal(d.y, theta, d.sigma)).sum(-1) + shared[:, 0]

    def free(draws: Named) -> Named:
        theta = zip(names, numbered("theta", len(d.y)), strict=True)
        return {name: (draws[part] - draws["mu"]) / draws["tau"] for name, part in theta if not centered}

    names = numbered("theta" if centered else "theta_trans", len(d.y))
    return DatabasePosterior(dict.fromkeys(names, REAL) | {"mu": REAL, "tau": POSITIVE}, joint, free)


def gauss_mix(d: Any) -> DatabasePosterior:
    """Two normals, the second to the right of the first."""

    def joint(x: Tensor) -> PerPoint:
        first, gap, sd, theta = x[:, :1], x[:, 1:2], x[:, 2:4], x[:, 4:]
        mu = torch.cat([first, first + gap], -1)
        weights = torch.cat([theta, 1 - theta], -1).log() - sd.log()
        each = weights[:, None] + normal(d.y[:, None], mu[:, None], sd[:, None])
        prior = (normal(mu, 0, 2) + normal(sd, 0, 2)).sum(-1)
        return torch.logsumexp(each, -1).sum(-1) + prior + 4 * (theta.log() + (1 - theta).log())[:, 0]

    scales = dict.fromkeys(["mu[2]-mu[1]", *numbered("sigma", 2)], POSITIVE)
    return DatabasePosterior({"mu[1]": REAL, **scales, "theta": SHARE}, joint)


def _kernel(x: Tensor, height: Tensor, length: Tensor) -> Tensor:
    """(n, N, N) squared-exponential covariances."""
    squares = (x[:, None] - x) ** 2
    return height[:, None, None] ** 2 * torch.exp(-0.5 * squares / length[:, None, None] ** 2)


def _curve_prior(length: Tensor, height: Tensor) -> Tensor:
    return 24 * length.log() - 4 * length + normal(height, 0, 2)


def gaussian_process(d: Any) -> DatabasePosterior:
    """A curve under noise, integrated out; sigma is the variance of the noise."""

    def joint(x: Tensor) -> PerPoint:
        length, height, noise = x.unbind(-1)
        covariance = _kernel(d.x, height, length) + torch.diag_embed(noise[:, None].expand(-1, len(d.x)))
        root = torch.linalg.cholesky(covariance)
        z = torch.linalg.solve_triangular(root, d.y[:, None].expand(len(x), -1, 1), upper=False)[..., 0]
        fit: Tensor = -0.5 * z.square().sum(-1) - root.diagonal(dim1=1, dim2=2).log().sum(-1)
        return fit + _curve_prior(length, height) + normal(noise, 0, 1)

    return DatabasePosterior(dict.fromkeys(("rho", "alpha", "sigma"), POSITIVE), joint)


def poisson_process(d: Any) -> DatabasePosterior:
    """Counts whose log-rate is a curve f = L f_tilde."""
    names, jitter = numbered("f_tilde", len(d.x)), 1e-10 * torch.eye(len(d.x), dtype=torch.float64)

    def root(length: Tensor, height: Tensor) -> Tensor:
        lower: Tensor = torch.linalg.cholesky(_kernel(d.x, height, length) + jitter)
        return lower

    def joint(x: Tensor) -> PerPoint:
        length, height, base = x[:, 0], x[:, 1], x[:, 2:]
        f = (root(length, height) @ base[..., None])[..., 0]
        fit: Tensor = (d.k * f - f.exp() + normal(base, 0, 1)).sum(-1)
        return fit + _curve_prior(length, height)

    def free(draws: Named) -> Named:
        f = torch.stack([draws[name] for name in numbered("f", len(d.x))], -1)
        lower = root(draws["rho"], draws["alpha"])
        base = torch.linalg.solve_triangular(lower, f[..., None], upper=False)[..., 0]
        return dict(zip(names, base.unbind(-1), strict=True))

    return DatabasePosterior({"rho": POSITIVE, "alpha": POSITIVE, **dict.fromkeys(names, REAL)}, joint, free)


def _forward(emitted: Tensor, stay: Tensor, back: Tensor) -> PerPoint:
    """Log-likelihood of two hidden states, none of them favored at first.

    Args:
        emitted: (T, n, 2) log-density of what was seen, by state.
        stay: probability of the first state after the first; back: of the first after the second.
    """
    steps = torch.stack([torch.stack([stay, 1 - stay], -1), torch.stack([back, 1 - back], -1)], -2).log()
    ahead = emitted[0]
    for now in emitted[1:]:
        ahead = torch.logsumexp(ahead[:, :, None] + steps, 1) + now
    return torch.logsumexp(ahead, -1)


def hidden_states(d: Any) -> DatabasePosterior:
    """hmm_example: two states, normal around mu with standard deviation 1."""

    def joint(x: Tensor) -> PerPoint:
        stay, back, first, gap = x.unbind(-1)
        mu = torch.stack([first, first + gap], -1)
        fit = _forward(normal(d.y[:, None, None], mu, 1), stay, back)
        return fit + normal(mu[:, 0], 3, 1) + normal(mu[:, 1], 10, 1)

    places = {"mu[1]": POSITIVE, "mu[2]-mu[1]": POSITIVE}
    return DatabasePosterior({"theta1[1]": SHARE, "theta2[1]": SHARE, **places}, joint)


def drive(d: Any, *, exponential: bool) -> DatabasePosterior:
    """Basketball: speed u and distance v, exponential or normal in each of two states."""
    u, v = d.u[:, None, None], d.v[:, None, None]

    def joint(x: Tensor) -> PerPoint:
        stay, back = x[:, 0], x[:, 1]
        phi, lam = (torch.stack([x[:, k], x[:, k] + x[:, k + 1]], -1) for k in (2, 4))
        if exponential:
            emitted = (phi * lam).log() - phi * u - lam * v
        else:
            emitted = normal(u, phi, d.tau) + normal(v, lam, d.rho)
        chances: Tensor = torch.stack([stay, 1 - stay, back, 1 - back], -1).log() @ (d.alpha - 1).flatten()
        prior = sum(normal(at[:, 0], 0, 1) + normal(at[:, 1], 3, 1) for at in (phi, lam))
        return _forward(emitted, stay, back) + chances + prior

    kinds = {"theta1[1]": SHARE, "theta2[1]": SHARE}
    for name in ("phi", "lambda"):
        kinds |= {f"{name}[1]": POSITIVE if exponential else REAL, f"{name}[2]-{name}[1]": POSITIVE}
    return DatabasePosterior(kinds, joint)


MODELS: dict[str, Callable[[Any], DatabasePosterior]] = {
    **{name: partial(regression, name) for name in RESPONSE_AND_COLUMNS},
    "blr": sparse,
    "kilpisjarvi": trend,
    "arK": autoregression,
    "diamonds": diamonds,
    "arma11": arma,
    "garch11": garch,
    "eight_schools_noncentered": partial(eight_schools, centered=False),
    "eight_schools_centered": partial(eight_schools, centered=True),
    "low_dim_gauss_mix": gauss_mix,
    "gp_regr": gaussian_process,
    "gp_pois_regr": poisson_process,
    "hmm_example": hidden_states,
    "hmm_drive_0": partial(drive, exponential=True),
    "hmm_drive_1": partial(drive, exponential=False),
}


def density(posterior: Posterior) -> DatabasePosterior:
    """The posterior's log-density in unconstrained coordinates."""
    if posterior.model not in MODELS:
        raise InputError(
            f"no density of model {posterior.model!r} is written out{did_you_mean(posterior.model, MODELS)}"
        )
    data = {name: torch.tensor(part, dtype=torch.float64) for name, part in posterior.data.items()}
    return MODELS[posterior.model](SimpleNamespace(**data))


def reference_points(posterior: Posterior, q: DatabasePosterior) -> Tensor:
    """(chains, draws, d) reference draws in the coordinates of the density."""
    chains, draws, _ = posterior.draws.shape
    named = dict(zip(posterior.names, posterior.draws.flatten(0, 1).unbind(-1), strict=True))
    return q.unconstrain(named).view(chains, draws, -1)
