"""A folder to work in, with data, models and a critic, for every test of the command line."""

from pathlib import Path

import numpy as np
import pytest

import steincritic as sc

Q = sc.models.GaussianMixture([[0.0, 0.0]])
MODELS = """
import torch

from steincritic import ConditionalModel
from steincritic.models import GaussianMixture, PairModel
from steincritic.rng import Source

normal, moved, far = (GaussianMixture([[m, 0.0]]) for m in (0.0, 0.1, 3.0))
narrow, three = GaussianMixture([[0.0]]), GaussianMixture([[0.0, 0.0, 0.0]])
scores = (normal.score, None)
wrong = PairModel(lambda x: x, lambda n, seed: normal.sample(n, seed=seed))
number, text = 3, "gm-2d"
flat, nan, none = (lambda x: x[0], None), (lambda x: x / 0 * 0, None), (lambda x: None, None)
few = (normal.score, lambda n, seed: normal.sample(2))
edge = (lambda x: torch.where(x > 2.9, torch.nan, -x), None)
exponential = torch.distributions.Exponential(torch.ones(1).double())
half_line = (lambda x: -torch.ones_like(x), None)
noise = lambda x, seed: Source(seed, "y").normals(len(x), 1, dtype=x.dtype)
given = ConditionalModel(lambda x, y: x[:, :1] - y, lambda x, seed: x[:, :1] + noise(x, seed))


class Model:
    def score(self, x):
        return -x
"""


@pytest.fixture(scope="session")
def critic():
    x = Q.sample(230, seed=1) + 0.5
    return sc.fit_critic(Q, x, training=sc.Training(epochs=3), seed=0, callbacks=())


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, critic):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    x = Q.sample(60, seed=1).numpy()
    np.save("x.npy", x)
    np.savetxt("x.csv", x, delimiter=",", fmt="%.17g", header="a,b", comments="")
    np.save("wrong.npy", x + 1.0)
    np.save("few.npy", x[:6])
    Path("models.py").write_text(MODELS)
    critic.save("critic")
    return tmp_path
