"""The posteriors of `models.py` as NumPyro programs, and what its engines draw from them."""

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.models import NumPyroPosterior
from steincritic.models.adapters.jax import key
from steincritic.models.adapters.outside import require
from studies.posteriors.models import EFFECTS, ERRORS, PRIOR, regression_data

_VI_RATE = 0.01  # falls to a hundredth


def _numpyro(part: str) -> Any:
    return require(f"numpyro.{part}", extra="numpyro")


def eight_schools(effects: Any, errors: Any, *, centered: bool = False) -> None:
    """School effects as they are, whose posterior has a narrow neck at small tau, or mu + tau theta_base."""
    sample, dist = _numpyro("primitives").sample, _numpyro("distributions")
    mu = sample("mu", dist.Normal(0, PRIOR))
    tau = sample("tau", dist.HalfCauchy(PRIOR))
    with _numpyro("primitives").plate("school", len(effects)):
        if centered:
            theta = sample("theta", dist.Normal(mu, tau))
        else:
            theta = mu + tau * sample("theta_base", dist.Normal(0, 1))
        sample("effect", dist.Normal(theta, errors), obs=effects)


def regression(design: Any, response: Any) -> None:
    sample, dist = _numpyro("primitives").sample, _numpyro("distributions")
    beta = sample("beta", dist.Normal(0, PRIOR).expand([design.shape[1]]).to_event(1))
    sigma = sample("sigma", dist.HalfCauchy(PRIOR))
    sample("response", dist.Normal(design @ beta, sigma), obs=response)


def program(name: str, *, centered: bool = False) -> tuple[Callable[..., None], tuple[np.ndarray, ...]]:
    """The NumPyro program of a posterior of `models.py`, and its data."""
    if name == "collinear regression":
        design, response = regression_data()
        return regression, (design.numpy(), response.numpy())
    return partial(eight_schools, centered=centered), (np.array(EFFECTS), np.array(ERRORS))


@cache
def posterior(name: str) -> NumPyroPosterior:
    """In 64 bits, as the posteriors written out in torch are."""
    require("jax", extra="numpyro").config.update("jax_enable_x64", True)
    model, data = program(name)
    return NumPyroPosterior(model, *data)


@lru_cache(maxsize=1)  # for those who test the same chains in two ways
def nuts(name: str, *, chains: int, draws: int, seed: int, centered: bool = False) -> Tensor:
    """(chains, draws, d) by NUTS with its default settings and 500 steps of warmup, all chains side by side.

    Those of the centered program are in the coordinates of the other: theta_base = (theta - mu) / tau.
    """
    q, infer = posterior(name), _numpyro("infer")
    model, data = program(name, centered=centered)
    options = {"num_chains": chains, "chain_method": "vectorized", "progress_bar": False}
    mcmc = infer.MCMC(infer.NUTS(model), num_warmup=500, num_samples=draws, **options)
    mcmc.run(key(seed), *data)
    samples = {part: np.asarray(values) for part, values in mcmc.get_samples().items()}
    if centered:
        mu, tau = samples["mu"][:, None], samples["tau"][:, None]
        samples["theta_base"] = (samples.pop("theta") - mu) / tau
    return q.unconstrain(samples).view(chains, draws, -1).to(torch.float64)


def mean_field(name: str, *, draws: int, seed: int, steps: int = 20_000) -> Tensor:
    """(draws, d) of independent normals fitted by variational inference (AutoNormal)."""
    jax, infer = require("jax", extra="numpyro"), _numpyro("infer")
    q, (model, data) = posterior(name), program(name)
    guide = _numpyro("infer.autoguide").AutoNormal(model)
    adam = _numpyro("optim").Adam(lambda step: _VI_RATE * 0.01 ** (step / steps))
    search = infer.SVI(model, guide, adam, infer.Trace_ELBO(num_particles=10))
    fitted = search.run(key(seed), steps, *data, progress_bar=False)
    samples = guide.sample_posterior(jax.random.fold_in(key(seed), 1), fitted.params, sample_shape=(draws,))
    return q.unconstrain(samples)
