"""Eight schools: did NUTS find the posterior, and what does mean-field variational inference miss?

Needs NumPyro (pip install 'steincritic[numpyro]'); reports go to out/eight-schools.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import steincritic as sc

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(effects, errors):  # noqa: ANN001, ANN201
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", len(effects)):
        base = numpyro.sample("theta_base", dist.Normal(0, 1))
        numpyro.sample("effect", dist.Normal(mu + tau * base, errors), obs=effects)


def main(out: Path, draws: int = 1000) -> dict[str, sc.CheckResult]:
    q = sc.models.NumPyroPosterior(eight_schools, EFFECTS, ERRORS)  # known by its score
    q = sc.models.LangevinModel(q)  # with a sampler, so that the report can say where

    mcmc = MCMC(
        NUTS(eight_schools), num_warmup=500, num_samples=draws, num_chains=4, chain_method="vectorized"
    )
    mcmc.run(jax.random.key(0), EFFECTS, ERRORS)

    guide = AutoNormal(eight_schools)
    svi = SVI(eight_schools, guide, numpyro.optim.Adam(0.005), Trace_ELBO(num_particles=10))
    params = svi.run(jax.random.key(1), 10_000, EFFECTS, ERRORS).params
    guessed = guide.sample_posterior(jax.random.key(2), params, sample_shape=(2 * draws,))

    found = {}
    for name, samples, chains in (("NUTS", mcmc.get_samples(), 4), ("mean-field VI", guessed, 1)):
        result = sc.check_draws(q, q.model.unconstrain(samples), chains=chains, names=q.model.names)
        print(f"\n{name}\n{result.summary()}")
        result.save(out / name, title=f"Eight schools: {name}")
        found[name] = result
    return found


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/eight-schools"))
