"""
Watching a stream
=================

A sensor was calibrated last year. Readings come in all day: when do they stop looking like the
calibration, and may one look after every batch?
"""

import matplotlib.pyplot as plt
import torch

import steincritic as sc

# %%
# The calibration: temperature and humidity are normal and go together. From batch 15 on, the humidity
# sensor drifts slowly.

calibration = sc.models.GaussianMixture([[20.0, 45.0]], [[[1.0, 1.5], [1.5, 9.0]]])
batches = []
for k in range(40):
    drift = torch.tensor([0.0, 0.15 * max(0, k - 15)])
    batches.append(calibration.sample(50, seed=k) + drift)

# %%
# ``watch`` bets against the model with a critic that was trained on earlier rows alone. Wealth of 1 /
# level is a verdict, whenever it comes: looking often costs nothing.

for state in sc.watch(calibration, batches, level=0.01, seed=0):
    if state.rejected:
        break
print(state.summary())
print(f"wealth {state.log_wealth:.1f} nats, p = {state.pvalue:.2g} after {state.batches} batches")

# %%
# The wealth, and the readings beside it.

fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5), layout="constrained", sharex=True)
state.plot(ax=top)
humidity = torch.cat(batches)[: state.points, 1]
bottom.plot(humidity, ".", markersize=2, color="#5b8db8")
bottom.axvline(15 * 50, color="gray", linestyle=":", label="drift begins")
bottom.set(xlabel="reading", ylabel="humidity (%)")
bottom.legend(loc="upper left")
plt.show()

# %%
# Next: ``state.save("sensor.watch")`` keeps the wealth over night, and ``steincritic watch
# readings.csv`` follows a file that grows.
