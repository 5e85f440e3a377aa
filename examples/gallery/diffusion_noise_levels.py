"""
A diffusion net at several noise levels
=======================================

A denoiser was trained on noisy copies of data. At which levels of noise is its score right?
"""

import math

import matplotlib.pyplot as plt
import torch
from torch import nn

import steincritic as sc


def spiral(n: int, seed: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    angle = 3 * math.pi * torch.rand(n, generator=source).sqrt()
    points = torch.stack([angle * angle.cos(), angle * angle.sin()], 1) / 4
    return points + 0.05 * torch.randn(n, 2, generator=source)


class Denoiser(nn.Module):
    """The noise in x, given x and the log of its standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        middle = nn.SiLU(), nn.Linear(96, 96), nn.SiLU()
        self.layers = nn.Sequential(nn.Linear(3, 96), *middle, nn.Linear(96, 2))

    def forward(self, x: torch.Tensor, log_sigma: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([x, log_sigma[:, None]], 1))


# %%
# Denoising score matching, for noise between 0.1 and 2; a few seconds.

torch.manual_seed(0)
net, data = Denoiser(), spiral(4000, seed=1)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(1500):
    x = data[torch.randint(len(data), (256,))]
    log_sigma = math.log(0.1) + math.log(20.0) * torch.rand(256)
    noise = torch.randn_like(x)
    loss = (net(x + log_sigma.exp()[:, None] * noise, log_sigma) - noise).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %%
# At each level the net is a model of noisy data: fresh data with that noise are tested, by scores
# alone.

levels, fresh = [0.1, 0.2, 0.4, 0.8, 1.6], spiral(1000, seed=2)
results, quick = {}, sc.Combined(critics=None)
for sigma in levels:
    model = sc.models.DiffusionModel(net.eval(), sigma=sigma, time=math.log(sigma))
    results[sigma] = sc.gof_test((model.score, None), model.noised(fresh, seed=3), quick, seed=0)
    print(f"noise {sigma}: {results[sigma].verdict}")

# %%
# The p-value by level, and the score at a low one.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.plot(levels, [result.pvalue for result in results.values()], "o-", color="#2c3e50")
left.axhline(0.05, color="#c0392b", linestyle="--", label="level 0.05")
left.set(xscale="log", yscale="log", xlabel="standard deviation of the noise", ylabel="p-value")
left.legend()
low = sc.models.DiffusionModel(net, sigma=0.2, time=math.log(0.2))
noisy, line = low.noised(fresh[:400], seed=4), torch.linspace(-2.6, 2.6, 22)
grid = torch.cartesian_prod(line, line)
score = low.score(grid)
right.plot(*noisy.T, ".", markersize=3, color="#d1495b", label="data with noise 0.2")
right.quiver(*grid.T, *(score / score.norm(dim=1, keepdim=True)).T, color="#5b8db8", width=0.003)
right.set(xlabel="x", ylabel="y", title="direction of the score", aspect="equal")
right.legend(loc="upper right")
plt.show()

# %%
# Next: train longer where the p-value is small; ``DiffusionModel.at_step`` takes a schedule of steps.
