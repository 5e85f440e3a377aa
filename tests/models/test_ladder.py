"""Noised scores by closed form, by draws, and draws by noised scores."""

import pytest
import torch

from steincritic.errors import InputError
from steincritic.models import DiffusionModel, GaussianMixture
from steincritic.models.adapters.kernel_density import KernelDensity
from steincritic.models.base import knows_noise, noise_levels
from steincritic.models.ladder import KernelNoise, ladder_draws

Q = GaussianMixture([[0.0, 0.0], [6.0, 1.0]], [[1.0, 0.25], [0.5, 1.0]], [0.7, 0.3])
SD = torch.tensor([2.0, 0.5], dtype=torch.float64)
MODELS = {"mixture": Q, "kernels": KernelDensity(Q.sample(20, seed=1), [[0.3, 0.1], [0.1, 0.4]])}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_noised_model_is_the_law_of_noised_draws(model):
    noised = model.with_noise(SD)
    y = (model.sample(50, seed=2) + SD).requires_grad_()
    (slow,) = torch.autograd.grad(noised.log_prob(y).sum(), y)
    torch.testing.assert_close(noised.score(y.detach()), slow)
    z = torch.randn(40_000, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    near = torch.tensor([[1.0, 0.5], [5.0, 1.5]], dtype=torch.float64)
    values = torch.stack([model.log_prob(at - SD * z).exp() for at in near])
    error = values.std(1) / len(z) ** 0.5
    assert bool(((values.mean(1) - noised.log_prob(near).exp()).abs() < 5 * error).all())


def test_a_kernel_estimate_tends_to_the_noised_score():
    with pytest.raises(InputError, match="sd must be a number or 2 numbers"):
        Q.with_noise([1.0, 1.0, 1.0])
    y = Q.with_noise(SD).sample(200, seed=4)
    exact = Q.with_noise(SD).score(y)
    gaps = [
        float((KernelNoise(Q.sample(m, seed=5), SD).score(y) - exact).square().mean().sqrt())
        for m in (200, 20_000)
    ]
    assert gaps[1] < 0.25 * gaps[0]  # of 100 times as many draws, a tenth


@pytest.mark.parametrize("distance", [6.0, 200.0])
def test_draws_come_down_the_ladder_wherever_the_points_are(distance):
    q = GaussianMixture([[0.0, 0.0], [distance, 3.0]], 1.0, [0.7, 0.3])
    points = GaussianMixture([[0.0, 0.0]]).sample(50, seed=6)
    x = ladder_draws(q, points, 2000, seed=7)
    right = x[:, 0] > distance / 2
    assert abs(float(right.double().mean()) - 0.3) < 0.05  # five standard errors
    assert float((x[right].mean(0) - q.means[1]).abs().max()) < 0.1 + 0.01 * distance


def test_levels_of_a_net_are_those_of_its_noisier_steps():
    kept = [0.9, 0.5, 0.1]

    def net(x, time):
        a = kept[int(time[0])]
        level = GaussianMixture(a**0.5 * Q.means, a * Q.covariances + (1 - a) * torch.eye(2), Q.weights)
        return -((1 - a) ** 0.5) * level.score(x)

    model = DiffusionModel.at_step(net, 0, kept)
    now = GaussianMixture(0.9**0.5 * Q.means, 0.9 * Q.covariances + 0.1 * torch.eye(2), Q.weights)
    assert len(noise_levels(model)) == 2 and knows_noise(model)
    y = Q.sample(20, seed=8)
    for sd in model.noise_levels:
        torch.testing.assert_close(model.with_noise(sd).score(y), now.with_noise(sd).score(y))
    with pytest.raises(InputError, match="sd must be one of noise_levels"):
        model.with_noise(0.01)
    alone = DiffusionModel(lambda x: x, sigma=1.0)
    assert not knows_noise(alone)
    with pytest.raises(InputError, match="knows no noisier ones"):
        alone.with_noise(1.0)
