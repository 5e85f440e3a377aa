"""
An energy network, learned here and checked
===========================================

Nothing but rows of data: can an energy network learn their density, and how do we know that it did?
"""

import math

import matplotlib.pyplot as plt
import torch

import steincritic as sc


def ring(n: int, seed: int) -> torch.Tensor:
    """A ring of radius 2, thicker on the right."""
    source = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(n, generator=source)
    radius = 2 + (0.25 + 0.1 * angle.cos()) * torch.randn(n, generator=source)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


# %%
# ``fit_energy`` learns by the Stein discrepancy: no draws of the model, no normalizing constant.

learning = sc.Learning(
    steps=500,
    learning_rate=3e-3,
    critic_learning_rate=5e-3,
    betas=(0.9, 0.99),
    weight_decay=0.1,
    staging=sc.fixed(3.0),
    critic=sc.MLP(hidden=(64, 64)),
)
fitted = sc.fit_energy(sc.EnergyMLP(hidden=(64, 64)), ring(10_000, seed=1), learning=learning, seed=0)
quick = sc.Combined(critics=None)  # quick lenses alone; leave it out for critics too
result = sc.check(fitted.model, ring(500, seed=2), test=quick, names=["x", "y"], seed=0)
print(result.summary())

# %%
# Left: what the critic still finds while the model learns. Right: the density that was learned, with
# fresh data.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
fitted.plot(ax=left)
line = torch.linspace(-3.2, 3.2, 120)
log_density = fitted.model.log_prob(torch.cartesian_prod(line, line)).view(120, 120).T
right.contourf(line, line, (log_density - log_density.max()).exp(), levels=12, cmap="Blues")
right.plot(*ring(300, seed=3).T, ".", color="#d1495b", markersize=2, label="fresh data")
right.set(xlabel="x", ylabel="y", title=f"p = {result.test.pvalue:.2g}", aspect="equal")
right.legend(loc="upper right")
plt.show()

# %%
# Next: more steps and more rows where the check rejects; ``sc.models.save_model(fitted.model,
# "ring.safetensors")`` keeps it for ``steincritic check``.
