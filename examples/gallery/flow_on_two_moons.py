# needs: zuko
"""
A zuko flow on two moons
========================

A normalizing flow was trained for a while, and its samples look fine. Has it been trained long enough?
"""

import math

import matplotlib.pyplot as plt
import torch

import steincritic as sc

try:
    import zuko
except ImportError:
    raise SystemExit("this example needs zuko: pip install 'steincritic[zuko]'") from None


def two_moons(n: int, seed: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    angle = math.pi * torch.rand(n, generator=source)
    moon = torch.stack([angle.cos(), angle.sin()], 1)
    moon[n // 2 :] = torch.tensor([1.0, 0.5]) - moon[n // 2 :]
    moon = moon + 0.1 * torch.randn(n, 2, generator=source)
    return moon[torch.randperm(n, generator=source)].double()


# %%
# A masked autoregressive flow, checked after 40 steps and after 400, on rows that it has not seen. 99
# null sets are enough for a level of 0.05, and quick to draw.

torch.manual_seed(0)
flow = zuko.flows.MAF(2, transforms=5, hidden_features=(64, 64)).double()
optimizer = torch.optim.Adam(flow.parameters(), lr=3e-3)
train, test = two_moons(4000, seed=1), two_moons(400, seed=2)
test_by = sc.Combined(critics=None, draws=99)
results, draws = {}, {}
for step in range(1, 401):
    loss = -flow().log_prob(train[torch.randint(len(train), (256,))]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step in (40, 400):
        results[step] = sc.check(flow, test, test=test_by, names=["x", "y"], seed=0)
        draws[step] = flow().sample((400,))
        print(f"after {step} steps, loss {loss:.2f}: {results[step].summary()}\n")

# %%
# Left and right: draws of the flow and the rows of the test.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharex=True, sharey=True)
for ax, step in zip(axes, results, strict=True):
    ax.plot(*draws[step].T, ".", color="#5b8db8", markersize=3, label="flow")
    ax.plot(*test.T, ".", color="#d1495b", markersize=3, label="data")
    ax.set(xlabel="x", ylabel="y", title=f"{step} steps: p = {results[step].test.pvalue:.2g}")
axes[0].legend()
plt.show()

# %%
# And where the early flow is wrong: red places speak against it, arrows point to where it should put
# more mass.

results[40].critic.plot(x=test)
plt.show()

# %%
# Next: a flow in many dimensions, ``flow_on_digits.py``.
