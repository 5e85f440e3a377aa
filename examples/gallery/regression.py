"""
A regression: is y given x right?
=================================

A straight line was fitted to the electricity use of houses against the temperature outside. Where are
its predictions wrong, the mean or the spread?
"""

import matplotlib.pyplot as plt
import torch

import steincritic as sc

# %%
# 600 days: heating below 15 °C, cooling above 24 °C, and more scatter when it is cold.


def days(n: int, seed: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    temperature = -5 + 40 * torch.rand(n, generator=source, dtype=torch.float64)
    heating, cooling = (15 - temperature).clamp(min=0), (temperature - 24).clamp(min=0)
    noise = torch.randn(n, generator=source, dtype=torch.float64)
    return torch.stack([temperature, 12 + 1.1 * heating + 0.9 * cooling + (1.5 + 0.1 * heating) * noise], 1)


past, new = days(600, seed=1), days(400, seed=2)
design = torch.stack([torch.ones(600, dtype=torch.float64), past[:, 0]], 1)
weights = torch.linalg.lstsq(design, past[:, 1:]).solution[:, 0]
spread = float((past[:, 1] - design @ weights).std())
line = sc.models.Regression(lambda x: weights[0] + weights[1] * x[:, 0], spread)

# %%
# Nothing has to be known about temperatures: the null sets have the same ones, with the use drawn anew.

result = sc.check(line, new, target="use", names=["temperature", "use"], seed=0)
print(result.summary())

# %%
# The line with two standard deviations, and the loudest finding.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
at = torch.linspace(-5, 35, 50, dtype=torch.float64)
mean = weights[0] + weights[1] * at
left.plot(*new.T, ".", markersize=3, color="#d1495b", label="new days")
left.plot(at, mean, color="#5b8db8", label="the line")
left.fill_between(at, mean - 2 * spread, mean + 2 * spread, color="#5b8db8", alpha=0.2)
left.set(xlabel="temperature (°C)", ylabel="use (kWh per day)")
left.legend()
result.plot_finding(0, ax=right)
plt.show()

# %%
# Next: put heating and cooling degrees in place of the temperature, with a spread that grows with the
# former, and check again.
