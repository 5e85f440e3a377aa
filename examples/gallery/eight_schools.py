# needs: numpyro
"""
A NumPyro posterior, a bad and a good sampler
=============================================

Eight schools: did NUTS find the posterior, and what does a mean-field guide, which is so much faster,
get wrong?
"""

import matplotlib.pyplot as plt
import numpy as np

import steincritic as sc

try:
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
except ImportError:
    raise SystemExit("this example needs NumPyro: pip install 'steincritic[numpyro]'") from None

jax.config.update("jax_enable_x64", True)
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

# %%
# The model, with effects as deviations from their mean in units of tau.


def eight_schools():  # noqa: ANN201
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        base = numpyro.sample("theta_base", dist.Normal(0, 1))
        numpyro.sample("effect", dist.Normal(mu + tau * base, ERRORS), obs=EFFECTS)


mcmc = MCMC(
    NUTS(eight_schools),
    num_warmup=500,
    num_samples=500,
    num_chains=4,
    chain_method="vectorized",
    progress_bar=False,
)
mcmc.run(jax.random.key(0))
guide = AutoNormal(eight_schools)
svi = SVI(eight_schools, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=5))
params = svi.run(jax.random.key(1), 3000, progress_bar=False).params
draws = {
    "NUTS": mcmc.get_samples(group_by_chain=True),
    "mean-field guide": guide.sample_posterior(jax.random.key(2), params, sample_shape=(1000,)),
}

# %%
# The posterior is known by its score, which NumPyro has. Draws go in as the sampler leaves them; they
# are taken to coordinates without bounds, log tau in place of tau.

posterior = sc.models.NumPyroPosterior(eight_schools)
results = {name: sc.check_draws(posterior, samples, seed=0) for name, samples in draws.items()}
for name, result in results.items():
    print(f"{name}\n{result.summary()}\n")

# %%
# Where the two differ: the guide is too narrow in log tau, and knows nothing of small tau.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for name, samples in draws.items():
    log_tau = np.log(np.ravel(samples["tau"]))
    left.hist(log_tau, bins=40, density=True, histtype="step", linewidth=1.8, label=name)
left.set(xlabel="log tau", ylabel="density")
left.legend(loc="upper left")
results["mean-field guide"].plot(ax=right, most=6)
plt.show()

# %%
# Next: the same while the guide is trained, ``collinear_regression.py``.
