"""Nets of a diffusion model, at one noise level."""

import numpy as np
import pytest
import torch
from torch import nn

from model_contract import TWO, Case, ModelContract, cases
from reference import Z_MAX, z_of_mean
from steincritic.errors import InputError, ModelError
from steincritic.models import DiffusionModel, GaussianMixture, Langevin, LangevinModel


def noisy_mixture(sigma, alpha):
    return GaussianMixture(alpha * TWO.means, alpha**2 * TWO.covariances + sigma**2 * torch.eye(2))


def diffusion(prediction):
    """The best net there is for the mixture, at one noise level."""
    sigma, alpha = 0.6, 0.8
    level = noisy_mixture(sigma, alpha)
    nets = {
        "epsilon": lambda x, t: -sigma * level.score(x),
        "score": lambda x, t: level.score(x),
        "denoised": lambda x, t: (x + sigma**2 * level.score(x)) / alpha,
    }
    model = DiffusionModel(nets[prediction], sigma=sigma, alpha=alpha, time=7, prediction=prediction)
    return Case(model, model.noised(TWO.sample(20_000, seed=0), seed=1))


CASES = {
    "noise": lambda: diffusion("epsilon"),
    "score": lambda: diffusion("score"),
    "denoised": lambda: diffusion("denoised"),
}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_a_diffusion_net_is_asked_with_its_time_and_shape():
    asked = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x, t):
            asked.append((x.shape, x.dtype, t.tolist()))
            return type("Output", (), {"sample": self.weight * x})()

    model = DiffusionModel.at_step(Net(), 1, [0.9, 0.36], shape=(1, 2, 2))
    x = torch.ones(3, 4, dtype=torch.float64)
    torch.testing.assert_close(model.score(x), -x / 0.8)
    assert asked == [(torch.Size([3, 1, 2, 2]), torch.float32, [1, 1, 1])]
    assert model.dim == 4 and (model.alpha, model.sigma) == (0.6, 0.8)


def test_a_diffusion_net_takes_numbers_of_numpy_and_torch():
    seen = []
    net = DiffusionModel(
        lambda x, time: seen.append(time) or x,
        sigma=np.float32(0.5),
        alpha=torch.tensor(0.8),
        time=np.int64(3),
    )
    net.score(net.noised(np.ones((3, 2))))
    assert seen[0].dtype == torch.long and seen[0].tolist() == [3, 3, 3]
    with pytest.raises(InputError, match="sigma must be a number"):
        DiffusionModel(lambda x: x, sigma=torch.ones(2))


def test_bad_diffusion_settings_are_refused():
    with pytest.raises(InputError, match="sigma must be a positive"):
        DiffusionModel(lambda x: x, sigma=0.0)
    with pytest.raises(InputError, match="prediction must be one of epsilon, score, denoised"):
        DiffusionModel(lambda x: x, sigma=1.0, prediction="v")
    with pytest.raises(InputError, match="steps 0 to 1, got 2"):
        DiffusionModel.at_step(lambda x, t: x, 2, [0.9, 0.5])
    with pytest.raises(ModelError, match="must return the shape"):
        DiffusionModel(lambda x: x[:, :1], sigma=1.0).score(torch.zeros(2, 3))


def test_levels_of_a_diffusion_net_are_a_ladder_for_langevin():
    levels = [
        DiffusionModel(noisy_mixture(s, 1.0).score, sigma=s, prediction="score") for s in (3.0, 1.0, 0.3)
    ]
    x = LangevinModel(levels[-1], dim=2, settings=Langevin(warmup=80, steps=80), ladder=levels[:-1]).sample(
        1_000, seed=0
    )
    target = noisy_mixture(0.3, 1.0)
    for j in range(2):
        assert abs(z_of_mean(x[:, j], float(target.means[:, j].mean()))) < Z_MAX
