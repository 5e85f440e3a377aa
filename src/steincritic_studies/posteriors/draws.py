"""The posteriors of `models.py` as NumPyro programs, and what its engines draw from them."""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.models.adapters.jax import key
from steincritic.models.adapters.numpyro import NumPyroPosterior
from steincritic.models.adapters.outside import require
from steincritic_studies.posteriors.models import EFFECTS, ERRORS, PRIOR, regression_data

_VI_STEPS = 20_000
_VI_RATE = 0.01  # falls to a hundredth


def eight_schools(effects: Any, errors: Any) -> None:
    """The non-centered form: school effects are mu + tau theta_base."""
    numpyro, dist = _numpyro()
    mu = numpyro.sample("mu", dist.Normal(0, PRIOR))
    tau = numpyro.sample("tau", dist.HalfCauchy(PRIOR))
    with numpyro.plate("school", len(effects)):
        base = numpyro.sample("theta_base", dist.Normal(0, 1))
        numpyro.sample("effect", dist.Normal(mu + tau * base, errors), obs=effects)


def eight_schools_centered(effects: Any, errors: Any) -> None:
    """The centered form, whose posterior has a narrow neck at small tau."""
    numpyro, dist = _numpyro()
    mu = numpyro.sample("mu", dist.Normal(0, PRIOR))
    tau = numpyro.sample("tau", dist.HalfCauchy(PRIOR))
    with numpyro.plate("school", len(effects)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


def regression(design: Any, response: Any) -> None:
    numpyro, dist = _numpyro()
    beta = numpyro.sample("beta", dist.Normal(0, PRIOR).expand([design.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(PRIOR))
    numpyro.sample("response", dist.Normal(design @ beta, sigma), obs=response)


Program = tuple[Callable[..., None], tuple[np.ndarray, ...]]


def program(name: str) -> Program:
    """The NumPyro program of a posterior of `models.py`, and its data."""
    if name == "collinear regression":
        design, response = regression_data()
        return regression, (design.numpy(), response.numpy())
    return eight_schools, (np.array(EFFECTS), np.array(ERRORS))


@cache
def posterior(name: str) -> NumPyroPosterior:
    """In 64 bits, as the posteriors written out in torch are."""
    require("jax", extra="numpyro").config.update("jax_enable_x64", True)
    model, data = program(name)
    return NumPyroPosterior(model, *data)


@lru_cache(maxsize=1)  # for those who test the same chains in two ways
def nuts(name: str, *, chains: int, warmup: int, draws: int, seed: int) -> Tensor:
    """(chains, draws, d) by NUTS with its default settings, all chains side by side."""
    q = posterior(name)
    return _by_chain(_run_nuts(program(name), chains, warmup, draws, seed), q)


def nuts_centered(name: str, *, chains: int, warmup: int, draws: int, seed: int) -> Tensor:
    """The same of the centered program, in the coordinates of the other: theta_base = (theta - mu) / tau."""
    q = posterior(name)
    centered = (eight_schools_centered, program(name)[1])
    samples = _run_nuts(centered, chains, warmup, draws, seed)
    mu, tau, theta = (np.asarray(samples[part]) for part in ("mu", "tau", "theta"))
    base = (theta - mu[..., None]) / tau[..., None]
    return _by_chain({"mu": mu, "tau": tau, "theta_base": base}, q)


def mean_field(name: str, *, draws: int, seed: int, steps: int = _VI_STEPS) -> Tensor:
    """(draws, d) of independent normals fitted by variational inference (AutoNormal)."""
    q = posterior(name)
    infer = require("numpyro.infer", extra="numpyro")
    guides = require("numpyro.infer.autoguide", extra="numpyro")
    optim = require("numpyro.optim", extra="numpyro")
    jax = require("jax", extra="numpyro")
    model, data = program(name)
    guide = guides.AutoNormal(model)
    rate = lambda step: _VI_RATE * 0.01 ** (step / steps)  # noqa: E731
    loss = infer.Trace_ELBO(num_particles=10)
    fitted = infer.SVI(model, guide, optim.Adam(rate), loss)
    found = fitted.run(key(seed), steps, *data, progress_bar=False)
    samples = guide.sample_posterior(jax.random.fold_in(key(seed), 1), found.params, sample_shape=(draws,))
    return q.unconstrain(samples)


def _run_nuts(of: Program, chains: int, warmup: int, draws: int, seed: int) -> dict[str, Any]:
    infer = require("numpyro.infer", extra="numpyro")
    model, data = of
    mcmc = infer.MCMC(
        infer.NUTS(model),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(key(seed), *data)
    samples: dict[str, Any] = mcmc.get_samples(group_by_chain=True)
    return samples


def _by_chain(samples: dict[str, Any], q: NumPyroPosterior) -> Tensor:
    chains = next(iter(samples.values())).shape[0]
    joined = {name: np.asarray(values).reshape(-1, *values.shape[2:]) for name, values in samples.items()}
    points = q.unconstrain(joined)
    return points.view(chains, -1, points.shape[1]).to(torch.float64)


def _numpyro() -> tuple[Any, Any]:
    return require("numpyro", extra="numpyro"), require("numpyro.distributions", extra="numpyro")
