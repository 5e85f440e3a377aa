# needs: zuko, sklearn
"""
A zuko flow on digits
=====================

Which pixels does a flow of handwritten digits, 64 dimensions, get wrong?
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import torch

import steincritic as sc

try:
    import zuko
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("needs zuko and scikit-learn: pip install 'steincritic[zuko,sklearn]'") from None

# %%
# 1,797 images of 8 x 8 pixels with 17 gray levels. A density needs continuous numbers, so each level
# gets the noise of its width; otherwise a flow can put all of its mass on whole numbers.

source = torch.Generator().manual_seed(0)
pixels = torch.tensor(load_digits().data, dtype=torch.float64)
images = (pixels + torch.rand(pixels.shape, generator=source)) / 17
images = images[torch.randperm(len(images), generator=source)]
train, test = images[:1200], images[1200:1500]

# %%
# A masked autoregressive flow, trained for some seconds. Each layer stretches by at most a factor of
# ten; with more, some draws fly so far away that their score overflows, and ``check`` says so.

torch.manual_seed(0)
gentle = partial(zuko.transforms.MonotonicAffineTransform, slope=0.1)
flow = zuko.flows.MAF(64, transforms=3, hidden_features=(128,), univariate=gentle).double()
optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
for _ in range(300):
    loss = -flow().log_prob(train[torch.randint(len(train), (128,))]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

quick = sc.Combined(critics=None, draws=99)
names = [f"row {k // 8} column {k % 8}" for k in range(64)]
result = sc.check(flow, test, test=quick, names=names, seed=0)
print(result.summary())

# %%
# The z value of each pixel, as an image, beside a digit and a draw of the flow.

z = np.zeros(64)
for coordinate in result.coordinates:
    z[coordinate.first] = coordinate.z
pictures = {"a test image": test[0], "a draw of the flow": flow().sample((1,))[0], "z of each pixel": z}
fig, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for ax, (title, picture) in zip(axes, pictures.items(), strict=True):
    color = "Reds" if title.startswith("z") else "gray"
    drawn = ax.imshow(np.asarray(picture).reshape(8, 8), cmap=color)
    ax.set(title=title, xlabel="column", ylabel="row")
fig.colorbar(drawn, ax=axes[-1], label="z")
plt.show()

# %%
# Next: a flow with more layers and longer training; ``result.save("report", image_shape=(8, 8))`` shows
# the rows that fit worst as images.
