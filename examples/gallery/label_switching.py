"""
Label switching: what scores do not see
=======================================

Two components of a mixture can change places, so the posterior has two mirrored modes. What does the
check say of draws that have only one of them?
"""

import warnings

import matplotlib.pyplot as plt
import torch

import steincritic as sc

NAMES = ["first mean", "second mean", "log sigma"]
source = torch.Generator().manual_seed(0)
side = 2.0 * torch.bernoulli(torch.full((60,), 0.5, dtype=torch.float64), generator=source) - 1
y = 1.5 * side + 0.6 * torch.randn(60, generator=source, dtype=torch.float64)

# %%
# The posterior of two means and the log of their common spread; swapping the means changes nothing.


def log_posterior(x: torch.Tensor) -> torch.Tensor:
    means, log_sigma = x[:, :2], x[:, 2]
    away = (y[:, None] - means[:, None]) / log_sigma.exp()[:, None, None]  # (n, 60, 2)
    likelihood = torch.logsumexp(-0.5 * away.square() - log_sigma[:, None, None], -1).sum(-1)
    return likelihood - 0.5 * (means / 3).square().sum(-1) - 0.5 * log_sigma.square()


# %%
# Three sets of 1,000 draws: of one mode, nine to one of both, and of a normal law laid over both.

start = torch.tensor([-1.5, 1.5, -0.5], dtype=torch.float64)
chains = sc.models.LangevinModel(log_posterior, dim=3, start=lambda n, source: start.expand(n, 3))
one = chains.sample(1000, seed=1)
swapped = one[:, [1, 0, 2]]
both = torch.cat([one, swapped])
noise = torch.randn(1000, 3, generator=source, dtype=torch.float64)
cases = {
    "one mode": one,
    "nine to one": torch.cat([one[:900], swapped[900:]])[torch.randperm(1000, generator=source)],
    "a normal fit": both.mean(0) + noise @ torch.linalg.cholesky(torch.cov(both.T)).T,
}
with warnings.catch_warnings():  # the result itself says, too, that weights of modes are not seen
    warnings.simplefilter("ignore", sc.DoubtfulWarning)
    results = {name: sc.check_draws(log_posterior, x, names=NAMES, seed=0) for name, x in cases.items()}
for name, result in results.items():
    print(f"{name}\n{result.summary()}\n")

# %%
# Scores see the shape within each mode, and draws between modes. How much each mode weighs they do not
# see: the score of separated modes is that of the nearest one, whatever the weights.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained", sharex=True, sharey=True)
for ax, (name, x) in zip(axes, cases.items(), strict=True):
    ax.plot(x[:, 0], x[:, 1], ".", markersize=3, color="#5b8db8")
    ax.set(xlabel="first mean", ylabel="second mean", title=f"{name}: p = {results[name].test.pvalue:.2g}")
plt.show()

# %%
# Next: for mirrored labels this does no harm; order them and one mode is all there is. Where modes mean
# different things, start chains at scattered places and compare them, or use a model that can be
# sampled.
