"""Posteriors of posteriordb whose densities are written out here, by the name of their model.

Written from the models' mathematics; [magnusson2025] names the models and their sources.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from steincritic.data.posteriordb import Posterior
from steincritic.errors import InputError, did_you_mean
from steincritic.shapes import PerPoint
from steincritic_studies.posteriordb import regressions
from steincritic_studies.posteriordb.density import POSITIVE, REAL, SHARE, DatabasePosterior, Written
from steincritic_studies.posteriordb.regressions import half_cauchy, normal, numbered

Data = Mapping[str, Any]
Named = Mapping[str, Tensor]


def arma(data: Data) -> Written:
    """ARMA(1, 1), the first error taken as if none was before it."""
    y = torch.tensor(data["y"], dtype=torch.float64)

    def joint(x: Tensor) -> PerPoint:
        mu, phi, theta, sigma = x.unbind(-1)
        error = y[0] - mu - phi * mu
        errors = [error]
        for before, now in pairwise(y):
            error = now - mu - phi * before - theta * error
            errors.append(error)
        fit = normal(torch.stack(errors), 0, sigma).sum(0) - len(y) * sigma.log()
        return fit + normal(mu, 0, 10) + normal(phi, 0, 2) + normal(theta, 0, 2) + half_cauchy(sigma, 2.5)

    return Written({"mu": REAL, "phi": REAL, "theta": REAL, "sigma": POSITIVE}, joint)


def garch(data: Data) -> Written:
    """GARCH(1, 1); beta1 is a share of what alpha1 leaves."""
    y = torch.tensor(data["y"], dtype=torch.float64)

    def joint(x: Tensor) -> PerPoint:
        mu, alpha0, alpha1, share = x.unbind(-1)
        variance = torch.full_like(mu, float(data["sigma1"]) ** 2)
        variances = [variance]
        for before in y[:-1]:
            variance = alpha0 + alpha1 * (before - mu) ** 2 + share * (1 - alpha1) * variance
            variances.append(variance)
        held = torch.stack(variances)
        fit = -0.5 * ((y[:, None] - mu) ** 2 / held + held.log()).sum(0)
        return fit + (1 - alpha1).log()

    def free(draws: Named) -> Named:
        return {**draws, _LEFT: draws["beta1"] / (1 - draws["alpha1"])}

    return Written({"mu": REAL, "alpha0": POSITIVE, "alpha1": SHARE, _LEFT: SHARE}, joint, free)


_LEFT = "beta1/(1-alpha1)"


def eight_schools(data: Data, *, centered: bool) -> Written:
    """Effects theta of schools, or theta_trans = (theta - mu) / tau."""
    y, sd = (torch.tensor(data[part], dtype=torch.float64) for part in ("y", "sigma"))

    def joint(x: Tensor) -> PerPoint:
        own, mu, tau = x[:, :-2], x[:, -2:-1], x[:, -1:]
        theta = own if centered else mu + tau * own
        prior = normal(own, mu, tau) - tau.log() if centered else normal(own, 0, 1)
        shared = normal(mu, 0, 5) + half_cauchy(tau, 5)
        return (prior + normal(y, theta, sd)).sum(-1) + shared[:, 0]

    def free(draws: Named) -> Named:
        own = {
            name.replace("theta", "theta_trans"): (part - draws["mu"]) / draws["tau"]
            for name, part in draws.items()
            if name.startswith("theta[")
        }
        return {**draws, **own}

    names = numbered("theta" if centered else "theta_trans", len(y))
    return Written(dict.fromkeys(names, REAL) | {"mu": REAL, "tau": POSITIVE}, joint, free)


def gauss_mix(data: Data) -> Written:
    """Two normals, the second to the right of the first."""
    y = torch.tensor(data["y"], dtype=torch.float64)

    def joint(x: Tensor) -> PerPoint:
        first, gap, sd, theta = x[:, :1], x[:, 1:2], x[:, 2:4], x[:, 4:]
        mu = torch.cat([first, first + gap], -1)
        weights = torch.cat([theta, 1 - theta], -1).log() - sd.log()
        fit = torch.logsumexp(weights[:, None] + normal(y[:, None], mu[:, None], sd[:, None]), -1).sum(-1)
        prior = (normal(mu, 0, 2) + normal(sd, 0, 2)).sum(-1)
        return fit + prior + 4 * (theta.log() + (1 - theta).log())[:, 0]

    kinds = {
        "mu[1]": REAL,
        "mu[2]-mu[1]": POSITIVE,
        "sigma[1]": POSITIVE,
        "sigma[2]": POSITIVE,
        "theta": SHARE,
    }
    return Written(kinds, joint, lambda draws: _gaps(draws, "mu"))


def _gaps(draws: Named, *ordered: str) -> Named:
    return {
        **draws,
        **{f"{name}[2]-{name}[1]": draws[f"{name}[2]"] - draws[f"{name}[1]"] for name in ordered},
    }


def _kernel(x: Tensor, height: Tensor, length: Tensor) -> Tensor:
    """(n, N, N) squared-exponential covariances."""
    squares = (x[:, None] - x) ** 2
    return height[:, None, None] ** 2 * torch.exp(-0.5 * squares / length[:, None, None] ** 2)


def _curve_prior(length: Tensor, height: Tensor) -> Tensor:
    return 24 * length.log() - 4 * length + normal(height, 0, 2)


def gaussian_process(data: Data) -> Written:
    """A curve under noise, integrated out; sigma is the variance of the noise."""
    x, y = (torch.tensor(data[part], dtype=torch.float64) for part in ("x", "y"))

    def joint(at: Tensor) -> PerPoint:
        length, height, noise = at.unbind(-1)
        covariance = _kernel(x, height, length) + torch.diag_embed(noise[:, None].expand(-1, len(x)))
        root: Tensor = torch.linalg.cholesky(covariance)
        z: Tensor = torch.linalg.solve_triangular(root, y[:, None].expand(len(at), -1, 1), upper=False)[
            ..., 0
        ]
        fit = -0.5 * z.square().sum(-1) - root.diagonal(dim1=1, dim2=2).log().sum(-1)
        return fit + _curve_prior(length, height) + normal(noise, 0, 1)

    return Written(dict.fromkeys(("rho", "alpha", "sigma"), POSITIVE), joint)


def poisson_process(data: Data) -> Written:
    """Counts whose log-rate is a curve f = L f_tilde."""
    x, counts = (torch.tensor(data[part], dtype=torch.float64) for part in ("x", "k"))
    count = len(x)

    def root(length: Tensor, height: Tensor) -> Tensor:
        jitter = 1e-10 * torch.eye(count, dtype=torch.float64)
        held: Tensor = torch.linalg.cholesky(_kernel(x, height, length) + jitter)
        return held

    def joint(at: Tensor) -> PerPoint:
        length, height, base = at[:, 0], at[:, 1], at[:, 2:]
        f = (root(length, height) @ base[..., None])[..., 0]
        return (counts * f - f.exp() + normal(base, 0, 1)).sum(-1) + _curve_prior(length, height)

    def free(draws: Named) -> Named:
        f = torch.stack([draws[name].flatten() for name in numbered("f", count)], -1)
        held = root(draws["rho"].flatten(), draws["alpha"].flatten())
        base = torch.linalg.solve_triangular(held, f[..., None], upper=False)[..., 0]
        return {**draws, **dict(zip(numbered("f_tilde", count), base.unbind(-1), strict=True))}

    kinds = {"rho": POSITIVE, "alpha": POSITIVE} | dict.fromkeys(numbered("f_tilde", count), REAL)
    return Written(kinds, joint, free)


def _forward(emitted: Tensor, stay: Tensor, back: Tensor) -> PerPoint:
    """Log-likelihood of two hidden states, none of them favored at first.

    Args:
        emitted: (T, n, 2) log-density of what was seen, by state.
        stay: probability of the first state after the first; back: of the first after the second.
    """
    steps = torch.stack([torch.stack([stay, 1 - stay], -1), torch.stack([back, 1 - back], -1)], -2).log()
    held = emitted[0]
    for now in emitted[1:]:
        held = torch.logsumexp(held[:, :, None] + steps, 1) + now
    return torch.logsumexp(held, -1)


def hidden_states(data: Data) -> Written:
    """hmm_example: two states, normal around mu with standard deviation 1."""
    y = torch.tensor(data["y"], dtype=torch.float64)

    def joint(x: Tensor) -> PerPoint:
        stay, back, first, gap = x.unbind(-1)
        mu = torch.stack([first, first + gap], -1)
        fit = _forward(normal(y[:, None, None], mu, 1), stay, back)
        return fit + normal(mu[:, 0], 3, 1) + normal(mu[:, 1], 10, 1)

    kinds = {"theta1[1]": SHARE, "theta2[1]": SHARE, "mu[1]": POSITIVE, "mu[2]-mu[1]": POSITIVE}
    return Written(kinds, joint, lambda draws: _gaps(draws, "mu"))


def drive(data: Data, *, exponential: bool) -> Written:
    """Basketball: speed u and distance v, exponential or normal in each of two states."""
    u, v = (torch.tensor(data[part], dtype=torch.float64)[:, None, None] for part in ("u", "v"))
    counts = torch.tensor(data["alpha"], dtype=torch.float64) - 1

    def emitted(phi: Tensor, lam: Tensor) -> Tensor:
        if exponential:
            return (phi * lam).log() - phi * u - lam * v
        return normal(u, phi, float(data["tau"])) + normal(v, lam, float(data["rho"]))

    def joint(x: Tensor) -> PerPoint:
        stay, back = x[:, 0], x[:, 1]
        phi, lam = (torch.stack([x[:, k], x[:, k] + x[:, k + 1]], -1) for k in (2, 4))
        chances = torch.stack([stay, 1 - stay, back, 1 - back], -1).log() @ counts.flatten()
        prior = sum(normal(at[:, 0], 0, 1) + normal(at[:, 1], 3, 1) for at in (phi, lam))
        return _forward(emitted(phi, lam), stay, back) + chances + prior

    first = POSITIVE if exponential else REAL
    kinds = {"theta1[1]": SHARE, "theta2[1]": SHARE}
    for name in ("phi", "lambda"):
        kinds |= {f"{name}[1]": first, f"{name}[2]-{name}[1]": POSITIVE}
    return Written(kinds, joint, lambda draws: _gaps(draws, "phi", "lambda"))


MODELS: dict[str, Callable[[Data], Written]] = {
    **{name: partial(regressions.regression, name) for name in regressions.MODELS},
    "blr": regressions.sparse,
    "kilpisjarvi": regressions.trend,
    "arK": regressions.autoregression,
    "diamonds": regressions.diamonds,
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
    return DatabasePosterior(MODELS[posterior.model](posterior.data))


def reference_points(posterior: Posterior, q: DatabasePosterior) -> Tensor:
    """(chains, draws, d) reference draws in the coordinates of the density."""
    chains, draws, _ = posterior.draws.shape
    named = dict(zip(posterior.names, posterior.draws.flatten(0, 1).unbind(-1), strict=True))
    return q.unconstrain(named).view(chains, draws, -1)
