"""
A funnel: in which coordinates to look
======================================

Neal's funnel, a log scale v ~ N(0, 3²) and x ~ N(0, exp v) given v: did chains reach its neck, and in
which coordinates does one see it?
"""

import warnings

import matplotlib.pyplot as plt
import torch

import steincritic as sc

NAMES = ["log scale", *(f"x{j}" for j in range(1, 5))]

# %%
# The same law in two sets of coordinates: x as it is, and x over its scale.


def centered(x: torch.Tensor) -> torch.Tensor:
    v, rest = x[:, 0], x[:, 1:]
    return -0.5 * (v / 3).square() - 0.5 * rest.square().sum(-1) * (-v).exp() - 2 * v


def non_centered(z: torch.Tensor) -> torch.Tensor:
    return -0.5 * (z[:, 0] / 3).square() - 0.5 * z[:, 1:].square().sum(-1)


settings = sc.models.Langevin(warmup=200, steps=200)
with warnings.catch_warnings():  # the sampler itself says that these chains have hardly mixed
    warnings.simplefilter("ignore", sc.DoubtfulWarning)
    x = sc.models.LangevinModel(centered, dim=5, settings=settings).sample(1000, seed=1)
    z = sc.models.LangevinModel(non_centered, dim=5, settings=settings).sample(1000, seed=1)
same = torch.cat([x[:, :1], x[:, 1:] * (-0.5 * x[:, :1]).exp()], 1)  # the draws x in the other coordinates

# %%
# In the funnel's own coordinates scores near the neck are so large and so variable that draws which
# miss it pass. The very same draws, where the law is nearly normal, are rejected with the right name
# and nearly the right number.

cases = {
    "centered chains": (centered, x),
    "the same draws, non-centered": (non_centered, same),
    "non-centered chains": (non_centered, z),
}
results = {}
for name, (density, draws) in cases.items():
    results[name] = sc.check_draws(density, draws, names=NAMES, seed=0)
    v = draws[:, 0]
    print(f"{name}: log scale has mean {v.mean():.2f} and spread {v.std():.2f}; truth 0 and 3")
    print("\n".join(results[name].summary().splitlines()[:3]), "\n")

# %%
# The neck is on the left; chains in the funnel's own coordinates do not reach it.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharex=True)
for ax, draws, title in zip(axes, (x, z), ("centered chains", "non-centered chains"), strict=True):
    first = draws[:, 1] if draws is x else draws[:, 1] * (0.5 * draws[:, 0]).exp()
    ax.plot(draws[:, 0], first, ".", markersize=3, color="#5b8db8")
    ax.set(xlabel="log scale", ylabel="x1", title=title)
    ax.set_yscale("symlog")
plt.show()

# %%
# Next: a change of coordinates changes no law, so where there is another parametrization, check there
# too. It is also the cure.
