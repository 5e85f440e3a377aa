"""
A model fitted to its own data
==============================

There are only 60 rows, too few to hold some out: the normal law was fitted to the very rows that test
it. Does that matter?
"""

import warnings

import matplotlib.pyplot as plt
import torch

import steincritic as sc

# %%
# Rows of four columns with somewhat heavier tails than a normal law has.

source = torch.Generator().manual_seed(1)
normal = torch.randn(60, 4, generator=source, dtype=torch.float64)
wide = torch.randn(60, 6, generator=source, dtype=torch.float64).square().mean(1, keepdim=True).sqrt()
rows = normal / wide

# %%
# The plain way takes the fitted law for a fixed one. It was made to fit these rows, better than it fits
# its own draws, so the test is too forgiving; a warning says so, which we read below instead.
# ``Fitted`` fits every null set anew, as the rows were: exact for normal laws.

quick = sc.Combined(critics=None)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", sc.DoubtfulWarning)
    law = torch.distributions.MultivariateNormal(rows.mean(0), torch.cov(rows.T))
    plain = sc.gof_test(law, rows, quick, seed=0)
anew = sc.gof_test(sc.Fitted(sc.models.FitNormal(), rows), rows, quick, seed=0)
print(f"taken for fixed\n{plain.summary()}\n\nfitted anew\n{anew.summary()}")

# %%
# The statistic of the rows among those of the null sets.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, result, title in zip(axes, (plain, anew), ("taken for fixed", "fitted anew"), strict=True):
    result.plot(ax=ax).set_title(f"{title}: p = {result.pvalue:.3g}")
plt.show()

# %%
# Next: ``sc.Fitted`` takes any function from rows to a model, an estimator of scikit-learn or a family
# of scipy.stats; on the command line it is ``--fitted``.
