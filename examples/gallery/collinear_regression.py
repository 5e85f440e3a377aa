"""
Watching a variational guide
============================

Two columns of a regression have a correlation of 0.96, so that their slopes can hardly be told apart.
Is a normal guide with independent coordinates good enough, and when is it trained?
"""

import matplotlib.pyplot as plt
import torch

import steincritic as sc
from steincritic.diagnosis.by_scores import Gaps

NAMES = ["intercept", "left", "right", "log sigma"]

# %%
# 40 rows, and the posterior of an intercept, two slopes and log sigma.

noise = torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
left, right = noise[:, 0], noise[:, 0] + 0.3 * noise[:, 1]
design = torch.stack([torch.ones_like(left), left, right], 1)
response = 1 + left + right + 0.5 * noise[:, 2]


def log_posterior(x: torch.Tensor) -> torch.Tensor:
    weights, log_sigma = x[:, :3], x[:, 3]
    error = (response - weights @ design.T) / log_sigma.exp()[:, None]
    prior = -0.5 * (weights / 3).square().sum(-1) - 0.5 * log_sigma.square()
    return prior - 0.5 * error.square().sum(-1) - len(response) * log_sigma


# %%
# A mean-field guide by gradients of the ELBO. Every 100 steps its draws and the posterior's score there say
# how far mean and spread of each coordinate are off.

posterior, looks = sc.as_model(log_posterior), {}
source = torch.Generator().manual_seed(0)
mean = torch.zeros(4, dtype=torch.float64, requires_grad=True)
log_sd = torch.full((4,), -2.0, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.Adam([mean, log_sd], lr=0.01)
for step in range(2001):
    x = mean + log_sd.exp() * torch.randn(100, 4, generator=source, dtype=torch.float64)
    loss = -log_posterior(x).mean() - log_sd.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        looks[step] = Gaps.of(sc.ScoredPoints(x.detach(), posterior.score(x.detach())))
for name, ratio, shift in zip(NAMES, looks[2000].log_ratio.exp(), looks[2000].shift, strict=True):
    print(f"{name}: {ratio:.2f} of the posterior's spread, off by {shift:+.2f} of it")

# %%
# It stops getting better long before it is right. A check of fresh draws says what is missing.

fresh = torch.randn(1000, 4, generator=source, dtype=torch.float64)
guided = (mean + log_sd.exp() * fresh).detach()
result = sc.check_draws(log_posterior, guided, names=NAMES, seed=0)
print(result.summary())

# %%
# Left: spreads while it was trained. Right: the two slopes, the guide's and those of chains.

settings = sc.models.Langevin(steps=1600)
chains = sc.models.LangevinModel(log_posterior, dim=4, settings=settings).sample(500, seed=1)
fig, (first, second) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
first.plot(list(looks), torch.stack([gaps.log_ratio.exp() for gaps in looks.values()]), label=NAMES)
first.axhline(1, color="#9aa5b1", linestyle="--")
first.set(xlabel="step", ylabel="spread over the posterior's", yscale="log")
first.legend()
second.plot(chains[:, 1], chains[:, 2], ".", markersize=3, color="#5b8db8", label="chains")
second.plot(guided[:500, 1], guided[:500, 2], ".", markersize=3, color="#d1495b", label="guide")
second.set(xlabel="slope of left", ylabel="slope of right")
second.legend()
plt.show()

# %%
# Next: a guide with a full covariance. A mean-field guide has the spread that each coordinate has
# *given the others*.
