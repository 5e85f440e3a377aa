"""
An energy on two moons
======================

Critics find where a model is wrong. Can they also teach one, and is the model right when they are done?
"""

import math

import matplotlib.pyplot as plt
import torch
from torch import nn

import steincritic as sc


def two_moons(n: int, seed: int) -> torch.Tensor:
    """Moons of radius 4: a net of two layers can then follow what is as fine as their thickness, 0.8."""
    source = torch.Generator().manual_seed(seed)
    angle = math.pi * torch.rand(n, generator=source)
    moon = torch.stack([angle.cos(), angle.sin()], 1)
    moon[n // 2 :] = torch.tensor([1.0, 0.5]) - moon[n // 2 :]
    moon = 4 * moon + 0.8 * torch.randn(n, 2, generator=source)
    return moon[torch.randperm(n, generator=source)]


class Energy(nn.Module):
    """A Gaussian's energy plus a net, which is zero at first and grows no faster than linearly."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.center, self.scale = x.mean(0), x.std(0)
        layers = nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
        nn.init.zeros_(layers[-1].weight)
        self.net = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x - self.center) / self.scale
        return 0.5 * y.square().sum(1) + self.net(x - self.center)[:, 0]


# %%
# They take turns: a critic of the present energy estimates s_q - s_p, the error of its score at the rows;
# then the score takes some steps to where it would be with most of this error gone. No draws of the model
# and no normalizing constant are needed.

torch.manual_seed(0)
train, test = two_moons(4000, seed=1), two_moons(400, seed=2)
energy = Energy(train)
optimizer = torch.optim.Adam(energy.parameters(), lr=3e-3)
gaussian = sc.check(energy, test, test=sc.Combined(critics=None), names=["x", "y"], seed=0)
settings = {
    "staging": sc.fixed(1.0),
    "network": sc.MLP(hidden=(64, 64)),
    "training": sc.Training(epochs=5, learning_rate=5e-3),
    "standardize": False,
}
errors = []
for turn in range(30):
    critic = sc.fit_critic(energy, train, seed=turn, **settings)
    gap = critic.score_gap(train).detach()
    errors.append(float(gap.square().sum(1).mean()))
    target = sc.as_model(energy).score(train).detach() - 0.7 * gap
    for _ in range(20):
        rows = torch.randint(len(train), (500,))
        x = train[rows].requires_grad_()
        (slope,) = torch.autograd.grad(energy(x).sum(), x, create_graph=True)
        optimizer.zero_grad()
        (slope + target[rows]).square().sum(1).mean().backward()
        optimizer.step()

# %%
# Rows that it has not learned from, and scores alone: before the first turn and after the last.

result = sc.check(energy, test, test=sc.Combined(critics=None), names=["x", "y"], seed=0)
print(f"at first, a Gaussian: {gaussian.summary()}\n")
print(f"after {len(errors)} turns: {result.summary()}")

# %%
# Left: the error that each critic found. Right: the density that was learned, and the rows of the test.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.semilogy(range(1, len(errors) + 1), errors, color="#444444")
left.set(xlabel="turn", ylabel="mean |s_q - s_p|² by the critic")
line = torch.linspace(-8, 12, 200)
with torch.no_grad():
    density = torch.exp(-energy(torch.cartesian_prod(line, line))).view(200, 200).T
right.contourf(line, line, density / density.max(), levels=12, cmap="Blues")
right.plot(*test.T, ".", color="#d1495b", markersize=2, label="rows of the test")
right.set(xlabel="x", ylabel="y", ylim=(-6, 8), title=f"p = {result.test.pvalue:.2g}")
right.legend(loc="upper right")
plt.show()

# %%
# Next: ``sc.models.LangevinModel(energy, dim=2)`` draws from it, which makes the check exact.
