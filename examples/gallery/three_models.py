"""
Comparing three models
======================

Daily returns of two stocks: a normal law, a Student law and a kernel density were fitted to the past.
Which of them is nearest to new returns, and is any of them right?
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import steincritic as sc

# %%
# The returns, in percent: correlated, with more very bad and very good days than a normal law has.

truth = stats.multivariate_t([0.05, 0.03], [[1.0, 0.6], [0.6, 1.5]], df=4)
returns = truth.rvs(1600, random_state=0)
past, new = returns[:800], returns[800:]

# %%
# Each model is fitted to the past and compared on what came later. ``critics=None``: quick lenses alone
# test each of them.

center, covariance = past.mean(0), np.cov(past.T)
models = {
    "normal": stats.multivariate_normal(center, covariance),
    "Student t": stats.multivariate_t(center, covariance * 2 / 4, df=4),
    "kernel density": stats.gaussian_kde(past.T),
}
comparison = sc.compare(models, new, test=sc.Combined(critics=None), seed=0)
print(comparison.summary())

# %%
# How much farther each is than the nearest, with intervals for all pairs at once.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
comparison.plot(ax=left)
right.plot(*new.T, ".", markersize=3, color="#d1495b")
right.set(xlabel="return of the first stock (%)", ylabel="return of the second (%)", title="new days")
plt.show()

# %%
# Next: ``sc.check`` of the nearest one says whether it gets anything wrong.
