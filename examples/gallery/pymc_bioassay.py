# needs: pymc
"""
A PyMC posterior, a bad and a good sampler
==========================================

How deadly is a dose? A logistic regression has two parameters that go together. Are the draws of ADVI,
which takes them for independent, as good as those of NUTS?
"""

import logging

import matplotlib.pyplot as plt
import numpy as np

import steincritic as sc

try:
    import pymc as pm
except ImportError:
    raise SystemExit("this example needs PyMC: pip install 'steincritic[pymc]'") from None

logging.getLogger("pymc").setLevel(logging.ERROR)

# %%
# Four groups of animals, the log dose that each got, and how many of five died.

log_dose, deaths = np.array([-0.86, -0.30, -0.05, 0.73]), np.array([0, 1, 3, 5])
with pm.Model() as bioassay:
    alpha = pm.Normal("alpha", 0, 5)
    beta = pm.Normal("beta", 0, 20)
    pm.Binomial("deaths", n=5, logit_p=alpha + beta * log_dose, observed=deaths)
    nuts = pm.sample(500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
    faster = {"obj_optimizer": pm.adam(learning_rate=0.02), "progressbar": False}
    advi = pm.fit(10_000, method="advi", random_seed=1, **faster).sample(1000, random_seed=2)
traces = {"NUTS": nuts, "ADVI": advi}

# %%
# PyMC gives the score, and ``check_draws`` takes traces as they are.

results = {name: sc.check_draws(bioassay, trace, seed=0) for name, trace in traces.items()}
for name, result in results.items():
    print(f"{name}\n{result.summary()}\n")

# %%
# The two parameters: ADVI has the middle, and misses that large slopes come with large intercepts.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharex=True, sharey=True)
for ax, (name, trace) in zip(axes, traces.items(), strict=True):
    draws = trace.posterior
    ax.plot(np.ravel(draws["alpha"]), np.ravel(draws["beta"]), ".", markersize=3, color="#5b8db8")
    ax.set_title(f"{name}: p = {results[name].test.pvalue:.2g}")
    ax.set(xlabel="alpha", ylabel="beta (per unit of log dose)")
plt.show()

# %%
# Next: ``pm.fit(method="fullrank_advi")``, checked in the same way; chains that have not met are
# refused with the reason.
