"""
Writing one's own lens
======================

Positions of stars were measured on a square grid of pixels. The errors should be round; do they follow
the grid? A question of one's own becomes part of the test.
"""

import math

import matplotlib.pyplot as plt
import torch

import steincritic as sc

# %%
# The model says that errors are round. In truth they lie a little more often along the diagonals of the
# pixels, which changes neither means nor spreads nor correlations.

model = sc.models.GaussianMixture([[0.0, 0.0]])


def errors(n: int, seed: int, strength: float = 0.4) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(4 * n, 2, generator=source, dtype=torch.float64)
    keep = torch.rand(4 * n, generator=source) < (1 - strength * (4 * angle(x)).cos()) / 2
    return x[keep][:n]


def angle(x: torch.Tensor) -> torch.Tensor:
    return torch.atan2(x[:, 1], x[:, 0])


x = errors(300, seed=1)
usual = sc.Combined(critics=None)  # quick lenses alone
print(sc.gof_test(model, x, usual, seed=0).verdict)

# %%
# A lens is a way to look. ``Field`` makes one of a function: a value per row, whose mean is compared
# with that of the model's draws, or a vector per row, whose Stein value has mean zero under the model.
# It joins the others, and the test stays exact.

grid = sc.lenses.Field(lambda x: (4 * angle(x)).cos(), name="pixel grid")
own = sc.Combined(lenses=(*usual.lenses, grid), critics=None)
result = sc.gof_test(model, x, own, seed=0)
print(result.summary())

# %%
# What the lens saw: the directions of the errors, and how often chance alone gives such a mean.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.hist(angle(x) * 180 / math.pi, bins=24, color="#5b8db8")
left.set(xlabel="direction of the error (degrees)", ylabel="stars", xticks=range(-180, 181, 90))
means = [(4 * angle(model.sample(300, seed=k))).cos().mean().item() for k in range(500)]
right.hist(means, bins=30, color="#9aa5b1", label="draws of the model")
right.axvline((4 * angle(x)).cos().mean(), color="#c0392b", label="these stars")
right.set(xlabel="mean of cos(4 × direction)", ylabel="sets of 300 stars")
right.legend()
plt.show()

# %%
# Next: a lens with many numbers is a class with ``prepare``; ``sc.lenses.Cells`` is a short one to
# copy.
